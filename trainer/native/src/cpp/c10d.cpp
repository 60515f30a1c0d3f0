// Collectives of libtorch's c10d with a C interface: a TCP store for the rendezvous, Gloo on CPUs, NCCL on GPUs.
//
// Handles are pointers that the caller frees once. Functions report faults as guard.h says; a peer that is gone, or that does not
// answer within the group's timeout, is such a fault.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <cstdlib>
#include <string>

#include "guard.h"

namespace {

using napmem::guarded;
using Milliseconds = std::chrono::milliseconds;
using StoreHandle = c10::intrusive_ptr<c10d::Store>;

struct Group {
  c10::intrusive_ptr<c10d::Backend> backend;
  int size;
  bool is_gloo;
};

// A collective in flight. `received` and `sum` are set for a reduce-scatter that ends with a sum of our own.
struct Pending {
  c10::intrusive_ptr<c10d::Work> work;
  at::Tensor received;
  at::Tensor sum;
};

const at::Tensor& tensor_of(const void* pointer) { return *static_cast<const at::Tensor*>(pointer); }

c10::intrusive_ptr<c10d::Backend> gloo_backend(const StoreHandle& store, const std::string& host, int rank, int size, Milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  } else if (host == "127.0.0.1" || host == "localhost") {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  }
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

c10::intrusive_ptr<c10d::Backend> nccl_backend(const StoreHandle& store, int rank, int size, int device, Milliseconds timeout) {
#ifdef USE_C10D_NCCL
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
#else
  TORCH_CHECK(false, "this build has no NCCL");
#endif
}

Pending* start(c10::intrusive_ptr<c10d::Work> work) { return new Pending{std::move(work), {}, {}}; }

}  // namespace

extern "C" {

// The server listens on `port`; returns when `size` processes have joined. Keys get `prefix`.
char* napmem_store_new(const char* host, int port, int is_server, int size, const char* prefix, int64_t timeout_ms,
                       void** store) {
  return guarded([&] {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(port);
    options.isServer = is_server != 0;
    options.numWorkers = static_cast<std::size_t>(size);
    options.timeout = Milliseconds(timeout_ms);
    StoreHandle tcp = c10::make_intrusive<c10d::TCPStore>(std::string(host), options);
    *store = new StoreHandle(c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(tcp)));
  });
}

void napmem_store_free(void* store) { delete static_cast<StoreHandle*>(store); }

// `device` is the CUDA device of an NCCL group, or -1 for Gloo.
char* napmem_group_new(const void* store, const char* host, int device, int rank, int size, int64_t timeout_ms, void** group) {
  return guarded([&] {
    const auto& handle = *static_cast<const StoreHandle*>(store);
    const Milliseconds timeout(timeout_ms);
    const bool is_gloo = device < 0;
    auto backend = is_gloo ? gloo_backend(handle, host, rank, size, timeout) : nccl_backend(handle, rank, size, device, timeout);
    *group = new Group{std::move(backend), size, is_gloo};
  });
}

void napmem_group_free(void* group) { delete static_cast<Group*>(group); }

char* napmem_broadcast(void* group, const void* tensor, int root, void** pending) {
  return guarded([&] {
    std::vector<at::Tensor> tensors{tensor_of(tensor)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    *pending = start(static_cast<Group*>(group)->backend->broadcast(tensors, options));
  });
}

// output holds the inputs of all ranks one after the other.
char* napmem_all_gather(void* group, const void* output, const void* input, void** pending) {
  return guarded([&] {
    at::Tensor out = tensor_of(output), in = tensor_of(input);
    *pending = start(static_cast<Group*>(group)->backend->_allgather_base(out, in));
  });
}

// output, 1/size of input's length, gets the sum over ranks of each rank's part of the inputs. Gloo's own reduce-scatter is an
// all-reduce; exchanging the parts and adding them in the order of ranks moves half the bytes, and the order of the sum is known.
char* napmem_reduce_scatter(void* group, const void* output, const void* input, void** pending) {
  return guarded([&] {
    auto* all = static_cast<Group*>(group);
    at::Tensor out = tensor_of(output), in = tensor_of(input);
    if (!all->is_gloo) {
      *pending = start(all->backend->_reduce_scatter_base(out, in));
      return;
    }
    at::Tensor received = at::empty_like(in);
    std::vector<int64_t> even;
    auto work = all->backend->alltoall_base(received, in, even, even);
    *pending = new Pending{std::move(work), received.view({all->size, out.numel()}), out};
  });
}

// Waits and frees.
char* napmem_pending_wait(void* pending) {
  std::unique_ptr<Pending> owned(static_cast<Pending*>(pending));
  return guarded([&] {
    owned->work->wait();
    if (!owned->sum.defined()) return;
    owned->sum.copy_(owned->received[0]);
    for (int64_t rank = 1; rank < owned->received.size(0); ++rank) owned->sum.add_(owned->received[rank]);
  });
}

void napmem_pending_free(void* pending) { delete static_cast<Pending*>(pending); }

}  // extern "C"

// The functions of libtorch that tch does not offer, with a C interface.
//
// Every function returns nullptr on success, or a message that the caller frees with napmem_free_message. No C++
// exception leaves this file. Tensors are passed as torch-sys does: pointers to at::Tensor owned by the caller.

#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/autograd/autograd.h>

#include "guard.h"

namespace {

using napmem::guarded;

torch::autograd::variable_list tensors_of(const void* const* pointers, size_t count) {
  torch::autograd::variable_list tensors;
  tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) tensors.push_back(*static_cast<const at::Tensor*>(pointers[i]));
  return tensors;
}

// The allocator is registered by libtorch_cuda when it is loaded; through this interface no CUDA header is needed.
c10::DeviceAllocator& cuda_allocator() {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::DeviceType::CUDA));
  TORCH_CHECK(allocator != nullptr, "this libtorch has no CUDA allocator");
  TORCH_CHECK(allocator->initialized(), "CUDA is not initialised in this process");
  return *allocator;
}

}  // namespace

extern "C" {

void napmem_free_message(char* message) { std::free(message); }

// Accumulates into the .grad of the leaves: the gradient of sum_i <outputs[i], grad_outputs[i]>.
char* napmem_backward(const void* const* outputs, const void* const* grad_outputs, size_t count) {
  return guarded([&] {
    torch::autograd::backward(tensors_of(outputs, count), tensors_of(grad_outputs, count));
  });
}

// Drops the gradient of a leaf, memory included.
char* napmem_clear_grad(const void* leaf) {
  return guarded([&] { static_cast<const at::Tensor*>(leaf)->mutable_grad().reset(); });
}

// statistics: bytes allocated now, at the peak; bytes reserved from the device now, at the peak.
char* napmem_cuda_memory(int device, int64_t* statistics) {
  return guarded([&] {
    const auto all = cuda_allocator().getDeviceStats(static_cast<c10::DeviceIndex>(device));
    const auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    statistics[0] = all.allocated_bytes[aggregate].current;
    statistics[1] = all.allocated_bytes[aggregate].peak;
    statistics[2] = all.reserved_bytes[aggregate].current;
    statistics[3] = all.reserved_bytes[aggregate].peak;
  });
}

char* napmem_cuda_reset_peak(int device) {
  return guarded([&] { cuda_allocator().resetPeakStats(static_cast<c10::DeviceIndex>(device)); });
}

char* napmem_cuda_empty_cache() {
  return guarded([] { cuda_allocator().emptyCache(); });
}

}  // extern "C"

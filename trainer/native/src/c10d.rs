//! Collectives over the processes of a run, by libtorch's own c10d: Gloo between CPUs, NCCL between GPUs.
//!
//! Every rank calls the same operations in the same order. One whose peer is gone, or does not answer within the group's
//! timeout, fails; the group is of no use after that.

use std::cell::Cell;
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::time::Duration;

use tch::Tensor;

use crate::{NativeError, ffi};

/// Where the ranks of a run meet, and which one this process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendezvous {
    /// Host of rank 0.
    pub host: String,
    /// Port on which rank 0 listens.
    pub port: u16,
    /// This process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// True on the rank that listens there; nobody where a launcher's agent does.
    pub is_server: bool,
    /// Keeps apart groups that meet in one store.
    pub prefix: String,
    /// Bound of the rendezvous and of each operation.
    pub timeout: Duration,
}

/// The processes of a run, joined. Not for use from several threads.
#[derive(Debug)]
pub struct ProcessGroup {
    raw: *mut c_void,
    store: *mut c_void,
    rank: usize,
    size: usize,
    num_sent_bytes: Cell<u64>,
}

/// An operation that was started, and holds on to its tensors; they have the result after [`Pending::wait`].
#[derive(Debug)]
#[must_use = "the result is there after `wait`"]
pub struct Pending {
    raw: *mut c_void,
}

impl ProcessGroup {
    /// Joins the others: over NCCL with a CUDA device, over Gloo without.
    ///
    /// # Errors
    /// Not all ranks came within the timeout, the port is taken, or this build has no NCCL.
    pub fn join(meeting: &Rendezvous, cuda_device: Option<usize>) -> Result<Self, NativeError> {
        let string = |text: &str| CString::new(text).map_err(|e| NativeError::Libtorch(e.to_string()));
        let (host, prefix) = (string(&meeting.host)?, string(&meeting.prefix)?);
        let (rank, size) = (int(meeting.rank), int(meeting.size));
        let timeout_ms = i64::try_from(meeting.timeout.as_millis()).unwrap_or(i64::MAX);
        let is_server = c_int::from(meeting.is_server);
        let mut store = ptr::null_mut();
        // SAFETY: the strings live through the call, which stores one pointer.
        ffi::checked(unsafe {
            let port = c_int::from(meeting.port);
            ffi::napmem_store_new(host.as_ptr(), port, is_server, size, prefix.as_ptr(), timeout_ms, &raw mut store)
        })?;
        let mut group =
            Self { raw: ptr::null_mut(), store, rank: meeting.rank, size: meeting.size, num_sent_bytes: Cell::new(0) };
        let device = cuda_device.map_or(-1, int);
        // SAFETY: `store` is a live handle; the call stores one pointer.
        ffi::checked(unsafe {
            ffi::napmem_group_new(store, host.as_ptr(), device, rank, size, timeout_ms, &raw mut group.raw)
        })?;
        Ok(group)
    }

    /// This process, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of tensors that this rank has sent: `(size − 1)/size` of the long side of a gather or scatter; all of a broadcast, once.
    pub fn num_sent_bytes(&self) -> u64 {
        self.num_sent_bytes.get()
    }

    /// Every rank's `tensor` becomes that of `root`.
    ///
    /// # Errors
    /// As the module says, here and when waiting.
    pub fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Pending, NativeError> {
        if self.rank == root {
            self.count(num_bytes(tensor));
        }
        // SAFETY: a live group and tensor; the shim keeps its own reference to the tensor.
        self.start(|pending| unsafe { ffi::napmem_broadcast(self.raw, tensor.as_ptr().cast(), int(root), pending) })
    }

    /// `output` \[size·n\] gets the `input` \[n\] of all ranks in order, of one type.
    ///
    /// # Errors
    /// As the module says, here and when waiting.
    ///
    /// # Panics
    /// On lengths that do not fit.
    pub fn all_gather(&self, output: &Tensor, input: &Tensor) -> Result<Pending, NativeError> {
        assert_eq!(output.numel(), input.numel() * self.size, "all-gather over {} ranks", self.size);
        self.count(num_bytes(input) * (self.size as u64 - 1));
        // SAFETY: as in `broadcast`.
        self.start(|pending| unsafe {
            ffi::napmem_all_gather(self.raw, output.as_ptr().cast(), input.as_ptr().cast(), pending)
        })
    }

    /// `output` \[n\] gets Σ over ranks of part `rank` of their `input` \[size·n\]; Gloo adds in the order of ranks.
    ///
    /// # Errors
    /// As the module says, here and when waiting.
    ///
    /// # Panics
    /// On lengths that do not fit.
    pub fn reduce_scatter(&self, output: &Tensor, input: &Tensor) -> Result<Pending, NativeError> {
        assert_eq!(input.numel(), output.numel() * self.size, "reduce-scatter over {} ranks", self.size);
        self.count(num_bytes(output) * (self.size as u64 - 1));
        // SAFETY: as in `broadcast`.
        self.start(|pending| unsafe {
            ffi::napmem_reduce_scatter(self.raw, output.as_ptr().cast(), input.as_ptr().cast(), pending)
        })
    }

    fn start(&self, call: impl FnOnce(*mut *mut c_void) -> *mut std::ffi::c_char) -> Result<Pending, NativeError> {
        let mut raw = ptr::null_mut();
        ffi::checked(call(&raw mut raw))?;
        Ok(Pending { raw })
    }

    fn count(&self, num_bytes: u64) {
        self.num_sent_bytes.set(self.num_sent_bytes.get() + num_bytes);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // SAFETY: both handles are freed once, the group before the store that it uses; freeing null does nothing.
        unsafe {
            ffi::napmem_group_free(self.raw);
            ffi::napmem_store_free(self.store);
        }
    }
}

impl Pending {
    /// Returns when the result is there (on a GPU: when work that is queued later will see it).
    ///
    /// # Errors
    /// A peer is gone or did not answer in time.
    pub fn wait(self) -> Result<(), NativeError> {
        let raw = self.raw;
        std::mem::forget(self);
        // SAFETY: the handle is live and freed by the call.
        ffi::checked(unsafe { ffi::napmem_pending_wait(raw) })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // SAFETY: a handle that nobody waited for is freed once; what is in flight keeps its own references.
        unsafe { ffi::napmem_pending_free(self.raw) }
    }
}

fn num_bytes(tensor: &Tensor) -> u64 {
    (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64
}

fn int(number: usize) -> c_int {
    c_int::try_from(number).expect("ranks and devices are small numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use tch::{Device, Kind};

    fn meeting(port: u16, rank: usize, size: usize, timeout: Duration) -> Rendezvous {
        let (host, prefix) = ("127.0.0.1".to_owned(), "test".to_owned());
        Rendezvous { host, port, rank, size, is_server: rank == 0, prefix, timeout }
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    /// Runs `body` as each of `size` ranks, each on a thread of its own.
    fn on_ranks<T: Send>(size: usize, timeout: Duration, body: impl Fn(&ProcessGroup) -> T + Sync) -> Vec<T> {
        let port = free_port();
        let join = |rank| {
            let meeting = meeting(port, rank, size, timeout);
            body(&ProcessGroup::join(&meeting, None).unwrap())
        };
        std::thread::scope(|scope| {
            let join = &join;
            let threads: Vec<_> = (0..size).map(|rank| scope.spawn(move || join(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    const SECONDS: Duration = Duration::from_secs(20);

    fn ramp(len: i64, kind: Kind) -> Tensor {
        Tensor::arange(len, (Kind::Float, Device::Cpu)).to_kind(kind)
    }

    #[test]
    fn parts_are_summed_in_the_order_of_ranks() {
        for size in [1, 2, 3] {
            // The sum of these in any other order than that of ranks has other bits.
            let values = [1e8f32, 1.0, -1e8];
            let parts = on_ranks(size, SECONDS, |group| {
                let input =
                    Tensor::full([2 * size as i64], f64::from(values[group.rank()]), (Kind::Float, Device::Cpu));
                let output = Tensor::zeros([2], (Kind::Float, Device::Cpu));
                group.reduce_scatter(&output, &input).unwrap().wait().unwrap();
                assert_eq!(group.num_sent_bytes(), 8 * (size as u64 - 1));
                Vec::<f32>::try_from(output).unwrap()
            });
            let sum = values[1..size].iter().fold(values[0], |sum, value| sum + value);
            assert_eq!(parts, vec![vec![sum; 2]; size]);
        }
    }

    #[test]
    fn gathers_and_broadcasts_move_every_kind_of_number() {
        for kind in [Kind::Float, Kind::Double, Kind::Int64, Kind::Uint8] {
            let all = on_ranks(2, SECONDS, |group| {
                let mine = (ramp(3, Kind::Float) + 10.0 * group.rank() as f64).to_kind(kind);
                let gathered = Tensor::zeros([6], (kind, Device::Cpu));
                group.all_gather(&gathered, &mine).unwrap().wait().unwrap();
                group.broadcast(&mine, 1).unwrap().wait().unwrap();
                [gathered, mine].map(|t| Vec::<f64>::try_from(t.to_kind(Kind::Double)).unwrap())
            });
            let expected = [vec![0.0, 1.0, 2.0, 10.0, 11.0, 12.0], vec![10.0, 11.0, 12.0]];
            assert_eq!(all, [expected.clone(), expected], "{kind:?}");
        }
    }

    #[test]
    fn a_peer_that_does_not_answer_is_an_error_after_the_timeout() {
        let timeout = Duration::from_secs(2);
        let results = on_ranks(2, timeout, |group| {
            if group.rank() == 1 {
                std::thread::sleep(timeout * 2);
                return Ok(());
            }
            let start = std::time::Instant::now();
            let result = group.broadcast(&ramp(4, Kind::Float), 1).and_then(Pending::wait);
            assert!(start.elapsed() < timeout * 2, "{:?}", start.elapsed());
            result
        });
        let message = results[0].as_ref().unwrap_err().to_string();
        assert!(message.to_lowercase().contains("timed out"), "{message}");
    }

    #[test]
    fn nobody_else_there_is_an_error() {
        let meeting = meeting(free_port(), 0, 2, Duration::from_secs(1));
        let message = ProcessGroup::join(&meeting, None).unwrap_err().to_string();
        assert!(message.to_lowercase().contains("timed out"), "{message}");
    }
}

//! The C interface of `cpp/shim.cpp`.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::NativeError;
// Named so that torch-sys, whose static library the shim's symbols resolve against, is always linked.
use torch_sys as _;

unsafe extern "C" {
    fn napmem_free_message(message: *mut c_char);
    pub(crate) fn napmem_backward(
        outputs: *const *const c_void,
        grad_outputs: *const *const c_void,
        count: usize,
    ) -> *mut c_char;
    pub(crate) fn napmem_clear_grad(leaf: *const c_void) -> *mut c_char;
    pub(crate) fn napmem_store_new(
        host: *const c_char,
        port: c_int,
        is_server: c_int,
        size: c_int,
        prefix: *const c_char,
        timeout_ms: i64,
        store: *mut *mut c_void,
    ) -> *mut c_char;
    pub(crate) fn napmem_store_free(store: *mut c_void);
    pub(crate) fn napmem_group_new(
        store: *const c_void,
        host: *const c_char,
        device: c_int,
        rank: c_int,
        size: c_int,
        timeout_ms: i64,
        group: *mut *mut c_void,
    ) -> *mut c_char;
    pub(crate) fn napmem_group_free(group: *mut c_void);
    pub(crate) fn napmem_broadcast(
        group: *mut c_void,
        tensor: *const c_void,
        root: c_int,
        pending: *mut *mut c_void,
    ) -> *mut c_char;
    pub(crate) fn napmem_all_gather(
        group: *mut c_void,
        output: *const c_void,
        input: *const c_void,
        pending: *mut *mut c_void,
    ) -> *mut c_char;
    pub(crate) fn napmem_reduce_scatter(
        group: *mut c_void,
        output: *const c_void,
        input: *const c_void,
        pending: *mut *mut c_void,
    ) -> *mut c_char;
    pub(crate) fn napmem_pending_wait(pending: *mut c_void) -> *mut c_char;
    pub(crate) fn napmem_pending_free(pending: *mut c_void);
    pub(crate) fn napmem_cuda_memory(device: c_int, statistics: *mut i64) -> *mut c_char;
    pub(crate) fn napmem_cuda_reset_peak(device: c_int) -> *mut c_char;
    pub(crate) fn napmem_cuda_empty_cache() -> *mut c_char;
}

/// Takes the message that a shim function returned: null is success.
pub(crate) fn checked(message: *mut c_char) -> Result<(), NativeError> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: a non-null message is a NUL-terminated string that the shim allocated and this side now owns.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: the message came from the shim and is freed once.
    unsafe { napmem_free_message(message) };
    Err(NativeError::Libtorch(text))
}

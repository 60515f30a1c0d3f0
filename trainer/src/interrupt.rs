//! SIGINT and SIGTERM: the first asks a run to finish its step, save and leave; the second ends the process at once.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// Exit code of an interrupted process.
pub const INTERRUPTED_EXIT_CODE: i32 = 130;

/// A run that was asked to stop and did, with its state saved.
#[derive(Debug, Clone, Copy, Error)]
#[error("interrupted after step {step}; go on by --resume")]
pub struct Interrupted {
    /// Steps that are complete and saved.
    pub step: u64,
}

/// Whether this process was asked to stop.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts to listen for SIGINT and SIGTERM.
    pub fn install() -> io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // Order matters: the first signal finds the flag down and only raises it, the second finds it up.
            flag::register_conditional_shutdown(signal, INTERRUPTED_EXIT_CODE, Arc::clone(&interrupt.0))?;
            flag::register(signal, Arc::clone(&interrupt.0))?;
        }
        Ok(interrupt)
    }

    /// True once a signal came.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Asks this process to stop, as a signal would.
    pub fn request(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_signal_raises_the_flag() {
        let interrupt = Interrupt::install().unwrap();
        assert!(!interrupt.is_requested());
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert!(interrupt.is_requested());
    }
}

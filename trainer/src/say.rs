//! What commands print. A reader that goes away, as `head` does, ends neither a command nor a training run: what it would have read
//! is dropped.

/// `println!` to whoever still reads.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}
pub(crate) use say;

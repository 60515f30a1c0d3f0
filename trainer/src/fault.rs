//! Places where a test can make a rank fail. Without the feature `fault-points`, which only the tests' own binary has, there are none.
//!
//! `NAPMEM_FAULT=POINT:RANK:ACTION` names a place, the rank, and what happens there the first time, unless the ranks were started
//! again: `kill`, `stop` (the process hangs), `fail` (an error), `oom` (what libtorch does
//! when memory is short) or `nan` (the value that is asked about is no number).

/// Comes to a place where a test may end or stop this process, or make it fail.
///
/// # Errors
/// Where a test asks for one.
pub fn point(name: &str, rank: usize) -> anyhow::Result<()> {
    match action(name, rank).as_deref() {
        Some("kill") => Ok(signal_hook::low_level::raise(signal_hook::consts::SIGKILL)?),
        Some("stop") => Ok(signal_hook::low_level::raise(signal_hook::consts::SIGSTOP)?),
        Some("oom") => panic!("not enough memory: a test asked for it"),
        Some("fail") => anyhow::bail!("failed at `{name}` because a test asked for it"),
        _ => Ok(()),
    }
}

/// `value`, or NaN where a test asks for it.
pub fn value(name: &str, rank: usize, value: f64) -> f64 {
    if action(name, rank).as_deref() == Some("nan") { f64::NAN } else { value }
}

#[cfg(feature = "fault-points")]
fn action(name: &str, rank: usize) -> Option<String> {
    use std::sync::atomic::{AtomicBool, Ordering};
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    let fault = std::env::var("NAPMEM_FAULT").ok()?;
    let [point, of_rank, action] = fault.split(':').collect::<Vec<_>>().try_into().ok()?;
    let is_first_start = std::env::var("TORCHELASTIC_RESTART_COUNT").map_or(true, |count| count == "0");
    let is_meant = point == name && of_rank.parse() == Ok(rank) && is_first_start;
    (is_meant && !IS_DONE.swap(true, Ordering::SeqCst)).then(|| action.to_owned())
}

#[cfg(not(feature = "fault-points"))]
fn action(_name: &str, _rank: usize) -> Option<String> {
    None
}

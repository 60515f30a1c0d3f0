//! Starts the ranks of one host, watches them, and starts them again from the last checkpoint when one ends too early.
//!
//! A rank's stdin is a pipe from here: a byte asks it to stop after its step, and its end, which also comes when this process
//! dies, ends it at once. A rank that fails leaves a report in a file, so that the user sees the cause once, and not what it did to
//! the others.

use super::DistributedError;
use crate::interrupt::Interrupt;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Names the file of a rank's report; only a launcher sets it.
const REPORT_VARIABLE: &str = "NAPMEM_RANK_REPORT";
/// How often ranks are looked at.
const POLL: Duration = Duration::from_millis(20);
/// Exit codes after which starting again would fail again: usage, data, model, and an interrupt.
const FINAL_CODES: [u8; 4] = [2, 3, 4, 130];
/// What ends without a code of its own counts as a failure while running.
const RUNNING: u8 = 5;

/// How ranks are started.
#[derive(Debug, Clone)]
pub struct LaunchOptions {
    /// Number of ranks.
    pub size: usize,
    /// Arguments of each, the program's own name left out.
    pub arguments: Vec<OsString>,
    /// Added to the arguments when they are started again.
    pub resume: OsString,
    /// Logs and reports go there.
    pub log_dir: PathBuf,
    /// Times that they are started again.
    pub max_restarts: usize,
    /// Time that the others have to end by themselves after one has.
    pub grace: Duration,
}

/// Why a rank ended, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Report {
    code: u8,
    text: String,
    /// It failed because another one did.
    is_consequence: bool,
}

/// The end of ranks that were started here, for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// The rank that ended first, or that hung.
    pub rank: usize,
    /// Its exit code; 5 where it has none.
    pub code: u8,
    message: String,
}

impl fmt::Display for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What a failing rank leaves for its launcher; false where it has none, and the user is to be told directly.
pub fn report(code: u8, text: &str, is_consequence: bool) -> bool {
    let Some(file) = std::env::var_os(REPORT_VARIABLE) else { return false };
    let report = Report { code, text: text.to_owned(), is_consequence };
    let json = serde_json::to_vec(&report).expect("a report is plain data");
    fs_err::write(PathBuf::from(file), json).is_ok()
}

/// In a rank that was started here: listens to the launcher, on a thread of its own.
pub fn watch_launcher(interrupt: &Interrupt) {
    if std::env::var_os(REPORT_VARIABLE).is_none() {
        return;
    }
    let interrupt = interrupt.clone();
    std::thread::spawn(move || {
        let mut byte = [0];
        while matches!(std::io::stdin().read(&mut byte), Ok(1)) {
            interrupt.request();
        }
        // The launcher is gone, and with it the one that would restart or stop the others.
        std::process::exit(i32::from(RUNNING));
    });
}

/// Runs `size` ranks of this program to their end. `say` gets a line for each restart.
///
/// # Errors
/// A rank ended badly, and no restart is left or would help.
pub fn launch(options: &LaunchOptions, interrupt: &Interrupt, say: &dyn Fn(&str)) -> Result<(), DistributedError> {
    let file = |source| DistributedError::File { path: options.log_dir.clone(), source };
    fs_err::create_dir_all(&options.log_dir).map_err(file)?;
    for attempt in 0.. {
        let mut ranks = Ranks::start(options, attempt)?;
        let Some(failure) = ranks.watch(options, interrupt) else { return Ok(()) };
        if attempt == options.max_restarts || FINAL_CODES.contains(&failure.code) {
            return Err(DistributedError::RankFailed(failure));
        }
        say(&format!(
            "{failure}; starting again from the last checkpoint ({} of {})",
            attempt + 1,
            options.max_restarts
        ));
    }
    unreachable!("the loop ends by returning")
}

/// The log of a rank.
pub fn log_file(log_dir: &Path, rank: usize) -> PathBuf {
    log_dir.join(format!("rank-{rank:05}.log"))
}

struct Rank {
    child: Child,
    report: PathBuf,
    status: Option<ExitStatus>,
    was_killed_here: bool,
}

struct Ranks(Vec<Rank>);

impl Ranks {
    fn start(options: &LaunchOptions, attempt: usize) -> Result<Self, DistributedError> {
        let port = free_port().map_err(|source| DistributedError::Start { rank: 0, source })?;
        let mut ranks = Self(Vec::new());
        for rank in 0..options.size {
            // Where one cannot be started, dropping the others' pipes ends them.
            let started = start_rank(options, attempt, rank, port);
            ranks.0.push(started.map_err(|source| DistributedError::Start { rank, source })?);
        }
        Ok(ranks)
    }

    /// Waits for all; `None` when all ended well.
    fn watch(&mut self, options: &LaunchOptions, interrupt: &Interrupt) -> Option<Launched> {
        let mut first_failure: Option<Instant> = None;
        let mut was_asked = false;
        while self.0.iter().any(|rank| rank.status.is_none()) {
            for rank in &mut self.0 {
                if rank.status.is_none() {
                    rank.status = rank.child.try_wait().ok().flatten();
                }
            }
            let failed = self.0.iter().any(|rank| rank.status.is_some_and(|status| !status.success()));
            if failed && first_failure.get_or_insert_with(Instant::now).elapsed() >= options.grace {
                self.kill_rest();
            }
            if interrupt.is_requested() && !was_asked {
                was_asked = true;
                self.ask_to_stop();
            }
            std::thread::sleep(POLL);
        }
        first_failure.map(|_| self.cause(options))
    }

    fn kill_rest(&mut self) {
        for rank in self.0.iter_mut().filter(|rank| rank.status.is_none()) {
            rank.was_killed_here = true;
            // It may have ended in between.
            let _ = rank.child.kill();
        }
    }

    fn ask_to_stop(&mut self) {
        for stdin in self.0.iter_mut().filter_map(|rank| rank.child.stdin.as_mut()) {
            // One that has ended needs no asking.
            let _ = stdin.write_all(b"s").and_then(|()| stdin.flush());
        }
    }

    /// The rank that the others ended for.
    fn cause(&self, options: &LaunchOptions) -> Launched {
        let reports: Vec<Option<Report>> = self.0.iter().map(|rank| read_report(&rank.report)).collect();
        let blame = |rank: usize| -> u8 {
            let Rank { status, was_killed_here, .. } = &self.0[rank];
            let status = status.expect("all have ended");
            match &reports[rank] {
                _ if status.success() => 4,
                Some(report) if report.is_consequence => 3,
                Some(_) => 0,
                // Neither ended nor complained while the others failed for want of an answer.
                None if *was_killed_here => 2,
                None => 1,
            }
        };
        let rank = (0..self.0.len()).min_by_key(|&rank| (blame(rank), rank)).expect("there are ranks");
        let Rank { status, was_killed_here, .. } = &self.0[rank];
        let status = status.expect("all have ended");
        let log = log_file(&options.log_dir, rank);
        let name = format!("rank {rank} of {} on {}", options.size, super::host_name());
        let (code, message) = match &reports[rank] {
            Some(report) if report.code == 130 => (130, report.text.clone()),
            Some(report) if rank == 0 && !report.is_consequence => (report.code, report.text.clone()),
            Some(report) => (report.code, format!("{name}: {}", report.text)),
            None if *was_killed_here => (RUNNING, format!("{name} did not answer (log: {})", log.display())),
            None => {
                let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(RUNNING);
                (code, format!("{name} {} (log: {})", ending(status), log.display()))
            }
        };
        Launched { rank, code, message }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.kill_rest();
        self.0.iter_mut().for_each(|rank| drop(rank.child.wait()));
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, code) => format!("ended with code {}", code.unwrap_or(-1)),
    }
}

fn read_report(file: &Path) -> Option<Report> {
    serde_json::from_slice(&fs_err::read(file).ok()?).ok()
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn start_rank(options: &LaunchOptions, attempt: usize, rank: usize, port: u16) -> std::io::Result<Rank> {
    let report = options.log_dir.join(format!("rank-{rank:05}.report"));
    if report.exists() {
        fs_err::remove_file(&report)?;
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(&options.arguments);
    if attempt > 0 && !options.arguments.contains(&options.resume) {
        command.arg(&options.resume);
    }
    let variables =
        [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", options.size), ("TORCHELASTIC_RESTART_COUNT", attempt)];
    command.envs(variables.map(|(name, value)| (name, value.to_string())));
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.env(REPORT_VARIABLE, &report).stdin(Stdio::piped());
    if rank > 0 {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log_file(&options.log_dir, rank))?;
        command.stdout(log.try_clone()?).stderr(log);
    }
    Ok(Rank { child: command.spawn()?, report, status: None, was_killed_here: false })
}

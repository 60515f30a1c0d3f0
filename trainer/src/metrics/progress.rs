//! Progress of a step's phases: bars on a terminal, plain lines elsewhere.

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A phase without a terminal says how far it is no more often than this.
const PLAIN_INTERVAL: Duration = Duration::from_secs(30);

/// Where a run says how far it is.
#[derive(Debug)]
pub struct Progress {
    /// `None` where standard output is no terminal.
    bars: Option<MultiProgress>,
    lines: Lines,
}

/// Where plain lines go.
#[derive(Debug, Clone)]
enum Lines {
    Stdout,
    File(Arc<fs_err::File>),
}

impl Lines {
    fn say(&self, text: &str) {
        match self {
            Self::Stdout => crate::say!("{text}"),
            // A log that cannot be written, on a full disk say, is no reason to end what it tells about.
            Self::File(file) => drop(writeln!(file.as_ref(), "{text}")),
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress {
    /// Bars on standard error if standard output is a terminal, else plain lines on standard output.
    pub fn new() -> Self {
        Self { bars: std::io::stdout().is_terminal().then(MultiProgress::new), lines: Lines::Stdout }
    }

    /// Plain lines at the end of a file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn to_file(path: &Path) -> std::io::Result<Self> {
        let file = fs_err::OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { bars: None, lines: Lines::File(Arc::new(file)) })
    }

    /// Says nothing at all.
    pub fn silent() -> Self {
        let bars = MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::hidden());
        Self { bars: Some(bars), lines: Lines::Stdout }
    }

    /// Prints a line above the bars.
    pub fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) if bars.is_hidden() => {}
            Some(bars) => bars.suspend(|| crate::say!("{text}")),
            None => self.lines.say(text),
        }
    }

    /// Starts a phase of `total` items (`unit` in the plural), such as `rollout` over 32 attempts.
    pub fn phase(&self, name: impl Into<String>, total: u64, unit: &'static str) -> Phase {
        let name = name.into();
        let bar = match &self.bars {
            Some(bars) => bars.add(ProgressBar::new(total).with_style(style(unit)).with_message(name.clone())),
            None => ProgressBar::hidden(),
        };
        bar.set_length(total);
        let start = Instant::now();
        let lines = self.bars.is_none().then(|| self.lines.clone());
        Phase { bar, name, unit, lines, num_tokens: AtomicU64::new(0), start, last_line: Mutex::new(start) }
    }
}

fn style(unit: &str) -> ProgressStyle {
    let template =
        format!("{{msg:>12}} [{{bar:30}}] {{pos}}/{{len}} {unit} {{prefix}} {{elapsed_precise}} ETA {{eta_precise}}");
    ProgressStyle::with_template(&template).expect("the template is well-formed").progress_chars("=> ")
}

/// A running phase; advanced from any thread.
#[derive(Debug)]
pub struct Phase {
    bar: ProgressBar,
    name: String,
    unit: &'static str,
    /// Where plain lines go; `None` where there is a bar instead.
    lines: Option<Lines>,
    num_tokens: AtomicU64,
    start: Instant,
    last_line: Mutex<Instant>,
}

impl Phase {
    /// Counts finished items and the tokens that were computed for them.
    pub fn advance(&self, num_items: u64, num_tokens: u64) {
        self.bar.inc(num_items);
        self.num_tokens.fetch_add(num_tokens, Ordering::Relaxed);
        if self.lines.is_some() {
            self.plain_line();
        } else if num_tokens > 0 {
            self.bar.set_prefix(format!("{:.0} tokens/s", self.tokens_per_s()));
        }
    }

    /// Ends the phase: its bar goes, or its plain line comes.
    pub fn finish(self) {
        self.bar.finish_and_clear();
        if let Some(lines) = &self.lines {
            lines.say(&self.status());
        }
    }

    /// Tokens per second so far.
    pub fn tokens_per_s(&self) -> f64 {
        self.num_tokens.load(Ordering::Relaxed) as f64 / self.start.elapsed().as_secs_f64().max(1e-9)
    }

    fn plain_line(&self) {
        // Whoever holds the lock is printing this line already.
        let Ok(mut last) = self.last_line.try_lock() else {
            return;
        };
        if last.elapsed() >= PLAIN_INTERVAL {
            *last = Instant::now();
            let text = format!("{}, about {} left", self.status(), HumanDuration(self.remaining()));
            self.lines.iter().for_each(|lines| lines.say(&text));
        }
    }

    fn remaining(&self) -> Duration {
        let (done, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
        if done == 0 {
            return Duration::ZERO;
        }
        self.start.elapsed().mul_f64(total.saturating_sub(done) as f64 / done as f64)
    }

    fn status(&self) -> String {
        let (done, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
        let seconds = self.start.elapsed().as_secs_f64();
        let mut text = format!("{}: {done}/{total} {} in {seconds:.1} s", self.name, self.unit);
        if self.num_tokens.load(Ordering::Relaxed) > 0 {
            text += &format!(", {:.0} tokens/s", self.tokens_per_s());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_counts_items_and_tokens_from_many_threads() {
        let phase = Progress { bars: None, lines: Lines::Stdout }.phase("rollout", 8, "attempts");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| phase.advance(1, 100));
            }
        });
        let status = phase.status();
        assert!(status.starts_with("rollout: 8/8 attempts in "), "{status}");
        assert!(status.ends_with(" tokens/s"), "{status}");
        assert_eq!(phase.num_tokens.load(Ordering::Relaxed), 800);
    }

    #[test]
    fn bar_style_is_well_formed() {
        let phase = Progress::silent().phase("update", 2, "micro-batches");
        phase.advance(1, 0);
        assert_eq!((phase.bar.position(), phase.bar.length()), (1, Some(2)));
    }
}

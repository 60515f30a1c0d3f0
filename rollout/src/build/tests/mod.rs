//! Whole builds: by hand, stopped anywhere, with bad input and bad models, over HTTP, and forgetting.

mod bad;
mod crash;
pub(in crate::build) mod endpoint;
mod forget;
mod locomo;
mod log;
mod provenance;

use super::disk::{Disk, RealDisk};
use super::*;
use crate::pyramid::{Message, PyramidData, fixtures::embedder};
use fs_err as fs;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// A message; ids that begin with `a` are the assistant's.
fn said(id: &str, session: &str, time: &str, content: &str) -> Message {
    Message {
        id: id.to_owned(),
        session_id: session.to_owned(),
        time: time.to_owned(),
        role: if id.starts_with('a') { "assistant" } else { "user" }.to_owned(),
        speaker: None,
        content: content.to_owned(),
    }
}

/// A session of turns; what the user says is given, the assistant nods. Ids are `u<n>` and `a<n>`.
fn session(id: &str, day: &str, first: usize, texts: &[&str]) -> Vec<Message> {
    let turn = |(at, text): (usize, &&str)| {
        let n = first + at;
        let time = |minute: usize| format!("{day}T10:{:02}", minute % 60);
        [said(&format!("u{n}"), id, &time(at * 2), text), said(&format!("a{n}"), id, &time(at * 2 + 1), "Ok.")]
    };
    texts.iter().enumerate().flat_map(turn).collect()
}

fn history(messages: Vec<Message>) -> UserHistory {
    UserHistory { user: "ann".to_owned(), messages }
}

/// Three sessions of one user.
fn three_sessions() -> Vec<Message> {
    let mut messages = session(
        "s1",
        "2024-03-01",
        1,
        &["My sister Clara lives in Bergen.", "Clara has a garden.", "Clara grows roses there.", "Clara sells tulips."],
    );
    messages.extend(session("s2", "2024-03-04", 5, &["I bought a telescope yesterday.", "My favorite tea is oolong."]));
    messages.extend(session("s3", "2024-03-09", 7, &["Clara has a big garden.", "My favorite tea is sencha."]));
    messages
}

fn build_with(
    disk: &dyn Disk,
    model: &dyn LanguageModel,
    settings: &BuildSettings,
    messages: Vec<Message>,
    pyramids: &Path,
    progress: &dyn BuildProgress,
) -> Result<UserReport, BuildError> {
    let builder = Builder::new(settings, model, embedder()).expect("sound settings");
    builder.build_on(disk, &[history(messages)], pyramids, progress).remove(0).result
}

fn build_rules(messages: Vec<Message>, pyramids: &Path) -> Result<UserReport, BuildError> {
    build_with(&RealDisk, &RuleModel, &BuildSettings::default(), messages, pyramids, &NoProgress)
}

fn read(pyramids: &Path) -> PyramidData {
    let dir = pyramids.join("ann");
    let data = PyramidData::read(&dir).expect("readable");
    data.validate(&dir).expect("sound");
    data
}

/// All files but the ledger, which holds what was paid for, useful or not.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if !path.ends_with("ledger.jsonl") {
                files.insert(path.strip_prefix(dir).expect("inside").to_owned(), fs::read(&path).expect("readable"));
            }
        }
    }
    files
}

/// A model made of a function of the request and the number of the call.
struct FnModel<F> {
    reply: F,
    num_calls: AtomicUsize,
}

impl<F: Fn(&LanguageRequest, usize) -> Result<String, String> + Send + Sync> FnModel<F> {
    fn new(reply: F) -> Self {
        Self { reply, num_calls: AtomicUsize::new(0) }
    }
}

impl<F: Fn(&LanguageRequest, usize) -> Result<String, String> + Send + Sync> LanguageModel for FnModel<F> {
    fn ask(&self, requests: &[LanguageRequest]) -> Vec<Result<LanguageReply, LanguageError>> {
        let answer = |request: &LanguageRequest| {
            let number = self.num_calls.fetch_add(1, Ordering::SeqCst);
            match (self.reply)(request, number) {
                Ok(text) => Ok(LanguageReply {
                    text,
                    num_input_tokens: 7,
                    num_output_tokens: 3,
                    latency_s: 0.5,
                    num_retries: 1,
                }),
                Err(message) => Err(LanguageError { message, latency_s: 0.25, num_retries: 2 }),
            }
        };
        requests.iter().map(answer).collect()
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        "function".to_owned()
    }
}

/// What the rules would reply.
fn by_rule(request: &LanguageRequest) -> Result<String, String> {
    match RuleModel.ask(std::slice::from_ref(request)).remove(0) {
        Ok(reply) => Ok(reply.text),
        Err(error) => Err(error.message),
    }
}

/// A disk that dies at its n-th operation, some way into it, and never works again.
struct CrashingDisk {
    num_left: AtomicUsize,
    is_dead: AtomicBool,
    num_operations: AtomicUsize,
}

impl CrashingDisk {
    fn new(num_left: usize) -> Self {
        Self { num_left: num_left.into(), is_dead: false.into(), num_operations: 0.into() }
    }

    /// `Ok(true)`: go on. `Ok(false)`: this is where it dies, half done.
    fn step(&self) -> io::Result<bool> {
        if self.is_dead.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is dead"));
        }
        self.num_operations.fetch_add(1, Ordering::SeqCst);
        if self.num_left.load(Ordering::SeqCst) == 0 {
            self.is_dead.store(true, Ordering::SeqCst);
            return Ok(false);
        }
        self.num_left.fetch_sub(1, Ordering::SeqCst);
        Ok(true)
    }

    fn die<T>(&self) -> io::Result<T> {
        Err(io::Error::other("the disk dies"))
    }

    /// An operation that is whole or not: every second crash comes after it.
    fn whole(&self, operation: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let goes_on = self.step()?;
        if goes_on || self.num_operations.load(Ordering::SeqCst).is_multiple_of(2) {
            operation()?;
        }
        if goes_on { Ok(()) } else { self.die() }
    }
}

impl Disk for CrashingDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.whole(|| RealDisk.create_dir(dir))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match self.step()? {
            true => RealDisk.write(path, bytes),
            false => RealDisk.write(path, &bytes[..bytes.len() / 2]).and_then(|()| self.die()),
        }
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match self.step()? {
            true => RealDisk.append(path, bytes),
            false => RealDisk.append(path, &bytes[..bytes.len() / 2]).and_then(|()| self.die()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.whole(|| RealDisk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.whole(|| RealDisk.remove(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.whole(|| RealDisk.sync_dir(dir))
    }
}

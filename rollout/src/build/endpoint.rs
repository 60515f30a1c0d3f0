//! A chat-completions endpoint as a language model: bounded concurrency, timeouts, bounded retries.

use super::error::BuildError;
use super::language::{LanguageError, LanguageModel, LanguageReply, LanguageRequest};
use super::wire;
use chrono::{DateTime, Utc};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::Read;
use std::time::{Duration, Instant};

/// Bytes of an answer that are read; a longer one is malformed.
const MAX_ANSWER_BYTES: u64 = 8 << 20;

/// An OpenAI-compatible endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndpointSettings {
    /// URL before `/chat/completions`, as `https://host/v1`.
    pub base_url: String,
    /// Name of the model there.
    pub model: String,
    /// Name of the environment variable that holds the key; none where no key is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// Requests in flight, of all users together.
    pub max_concurrency: usize,
    /// Seconds that one attempt may take.
    pub timeout_s: f64,
    /// Attempts after the first, on 429, 5xx, timeouts and lost connections.
    pub max_retries: u32,
    /// Seconds before the first retry, doubled for each further one, times a random factor of 0.5 to 1.
    pub backoff_s: f64,
    /// Seconds that a wait has at most, `Retry-After` apart.
    pub backoff_max_s: f64,
    /// Seconds that a `Retry-After` may ask for; more is an error.
    pub retry_after_max_s: f64,
    /// Seeds the random factors.
    pub seed: u64,
    /// Sampling temperature.
    pub temperature: f64,
    /// Ask the endpoint to reply in JSON (`response_format`); off where it does not know that.
    pub json_mode: bool,
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            base_url: "http://localhost:8000/v1".to_owned(),
            model: String::new(),
            key_env: None,
            max_concurrency: 8,
            timeout_s: 120.0,
            max_retries: 5,
            backoff_s: 1.0,
            backoff_max_s: 30.0,
            retry_after_max_s: 120.0,
            seed: 0,
            temperature: 0.0,
            json_mode: true,
        }
    }
}

impl EndpointSettings {
    /// The key that is out of range, with what is allowed.
    ///
    /// # Errors
    /// The key below the endpoint's own section, and the complaint.
    pub fn check(&self) -> Result<(), (String, String)> {
        let fail = |key: &str, message: String| Err((format!("endpoint.{key}"), message));
        let has_scheme = self.base_url.starts_with("http://") || self.base_url.starts_with("https://");
        if !has_scheme || self.base_url.contains(['@', '?', '#', ' ']) {
            return fail(
                "base_url",
                format!("must be http(s)://host/path without credentials, got {:?}", self.base_url),
            );
        }
        if self.model.is_empty() {
            return fail("model", "must name a model".to_owned());
        }
        if !(1..=1_024).contains(&self.max_concurrency) {
            return fail("max_concurrency", format!("must be 1 to 1024, got {}", self.max_concurrency));
        }
        if self.max_retries > 20 {
            return fail("max_retries", format!("must be at most 20, got {}", self.max_retries));
        }
        if !(0.0..=10.0).contains(&self.temperature) {
            return fail("temperature", format!("must be 0 to 10, got {}", self.temperature));
        }
        let seconds = [
            ("timeout_s", self.timeout_s, 0.001),
            ("backoff_s", self.backoff_s, 0.0),
            ("backoff_max_s", self.backoff_max_s, 0.0),
            ("retry_after_max_s", self.retry_after_max_s, 0.0),
        ];
        match seconds.iter().find(|(_, value, least)| !(*least..=86_400.0).contains(value)) {
            Some((key, value, least)) => fail(key, format!("must be {least} to 86400 seconds, got {value}")),
            None => Ok(()),
        }
    }
}

/// A client of one endpoint. Shared by threads.
pub struct ChatEndpoint {
    settings: EndpointSettings,
    url: String,
    key: Option<String>,
    agent: ureq::Agent,
    threads: rayon::ThreadPool,
}

/// The key stays out of whatever is printed.
impl fmt::Debug for ChatEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatEndpoint").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What was read of an answer, and what it took.
pub(super) struct Posted<T> {
    pub(super) value: T,
    latency_s: f64,
    num_retries: u32,
}

/// What an attempt came to.
enum Attempt<T> {
    Done(T),
    /// May succeed later, after at least so many seconds.
    Again(String, Option<f64>),
    Failed(String),
}

impl ChatEndpoint {
    /// Checks the settings, which stand in `section` of a config, and reads the key from the environment.
    pub fn new(settings: &EndpointSettings, section: &str) -> Result<Self, BuildError> {
        let fault = |key: String, message: String| BuildError::Setting { key: format!("{section}.{key}"), message };
        settings.check().map_err(|(key, message)| fault(key, message))?;
        let key = settings.key_env.as_deref().map(|name| match std::env::var(name) {
            Ok(key) if !key.trim().is_empty() => Ok(key.trim().to_owned()),
            _ => {
                let message = format!("names the environment variable `{name}`, which is not set");
                Err(fault("endpoint.key_env".to_owned(), message))
            }
        });
        let timeout = Duration::from_secs_f64(settings.timeout_s);
        let threads = rayon::ThreadPoolBuilder::new().num_threads(settings.max_concurrency).build();
        Ok(Self {
            url: format!("{}/chat/completions", settings.base_url.trim_end_matches('/')),
            key: key.transpose()?,
            agent: ureq::AgentBuilder::new().timeout_connect(timeout).timeout(timeout).redirects(0).build(),
            threads: threads.map_err(|error| std::io::Error::other(error.to_string()))?,
            settings: settings.clone(),
        })
    }

    /// Name of the model there.
    pub(super) fn model(&self) -> &str {
        &self.settings.model
    }

    /// The pool whose size bounds the requests in flight.
    pub(super) fn threads(&self) -> &rayon::ThreadPool {
        &self.threads
    }

    fn ask_one(&self, request: &LanguageRequest) -> Result<LanguageReply, LanguageError> {
        let EndpointSettings { model, temperature, json_mode, .. } = &self.settings;
        let body = wire::body(request, model, *temperature, *json_mode).to_string();
        let Posted { value, latency_s, num_retries } = self.post(&body, &|text| wire::read(text, request))?;
        let (text, num_input_tokens, num_output_tokens) = value;
        Ok(LanguageReply { text, num_input_tokens, num_output_tokens, latency_s, num_retries })
    }

    /// Posts a body until `read` takes the answer, a bounded number of times.
    pub(super) fn post<T>(
        &self,
        body: &str,
        read: &dyn Fn(&str) -> Result<T, String>,
    ) -> Result<Posted<T>, LanguageError> {
        let start = Instant::now();
        let max_retries = self.settings.max_retries;
        let mut num_retries = 0;
        loop {
            let failed = match self.attempt(body, read) {
                Attempt::Done(value) => {
                    let latency_s = start.elapsed().as_secs_f64();
                    return Ok(Posted { value, latency_s, num_retries });
                }
                Attempt::Failed(message) => message,
                Attempt::Again(message, _) if num_retries == max_retries => {
                    format!("{message}; given up after {} attempts", num_retries + 1)
                }
                Attempt::Again(message, Some(wait_s)) if wait_s > self.settings.retry_after_max_s => {
                    format!("{message}; it asks to wait {wait_s} s, more than `retry_after_max_s`")
                }
                Attempt::Again(_, wait_s) => {
                    let wait_s = self.backoff_s(body, num_retries).max(wait_s.unwrap_or(0.0));
                    std::thread::sleep(Duration::from_secs_f64(wait_s));
                    num_retries += 1;
                    continue;
                }
            };
            let message = format!("{}: {failed}", self.url);
            return Err(LanguageError { message, latency_s: start.elapsed().as_secs_f64(), num_retries });
        }
    }

    /// The random factor depends on seed, request and attempt alone, not on which thread came first.
    fn backoff_s(&self, body: &str, num_retries: u32) -> f64 {
        let mut hasher = Sha256::new();
        hasher.update(self.settings.seed.to_le_bytes());
        hasher.update(num_retries.to_le_bytes());
        hasher.update(body.as_bytes());
        let factor = ChaCha8Rng::from_seed(hasher.finalize().into()).random_range(0.5..1.0);
        let doubled = self.settings.backoff_s * f64::from(num_retries).exp2();
        doubled.min(self.settings.backoff_max_s) * factor
    }

    fn attempt<T>(&self, body: &str, read: &dyn Fn(&str) -> Result<T, String>) -> Attempt<T> {
        let mut call = self.agent.post(&self.url).set("Content-Type", "application/json");
        if let Some(key) = &self.key {
            call = call.set("Authorization", &format!("Bearer {key}"));
        }
        let (response, status) = match call.send_string(body) {
            Ok(response) | Err(ureq::Error::Status(_, response)) => {
                let status = response.status();
                (response, status)
            }
            Err(ureq::Error::Transport(fault)) => {
                let message = format!("{}: {}", fault.kind(), fault.message().unwrap_or("no answer"));
                let message = source(&fault).map_or(message.clone(), |cause| format!("{message}: {cause}"));
                return match fault.kind() {
                    ureq::ErrorKind::InvalidUrl | ureq::ErrorKind::UnknownScheme => Attempt::Failed(message),
                    _ => Attempt::Again(message, None),
                };
            }
        };
        let wait_s = response.header("Retry-After").and_then(retry_after_s);
        let text = match read_body(response) {
            Ok(text) => text,
            Err(why) => return Attempt::Again(format!("status {status}, but the answer broke off: {why}"), wait_s),
        };
        match status {
            200..=299 => match read(&text) {
                Ok(value) => Attempt::Done(value),
                Err(why) => Attempt::Again(format!("status {status}: {why}"), None),
            },
            408 | 429 | 500..=599 => Attempt::Again(format!("status {status}: {}", wire::start(&text)), wait_s),
            _ => Attempt::Failed(format!("status {status}: {}", wire::start(&text))),
        }
    }
}

fn source(fault: &ureq::Transport) -> Option<String> {
    std::error::Error::source(fault).map(ToString::to_string)
}

fn read_body(response: ureq::Response) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = response.into_reader().take(MAX_ANSWER_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_ANSWER_BYTES {
        return Err(format!("more than {MAX_ANSWER_BYTES} bytes"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Seconds of a `Retry-After`: a number, or a date from now.
fn retry_after_s(value: &str) -> Option<f64> {
    let value = value.trim();
    let seconds = value.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    let until = || DateTime::parse_from_rfc2822(value).ok().map(|date| (date.to_utc() - now()).num_seconds() as f64);
    seconds.or_else(until).map(|seconds| seconds.max(0.0))
}

fn now() -> DateTime<Utc> {
    std::time::SystemTime::now().into()
}

impl LanguageModel for ChatEndpoint {
    fn ask(&self, requests: &[LanguageRequest]) -> Vec<Result<LanguageReply, LanguageError>> {
        // One pool for all callers is what bounds the requests in flight.
        self.threads.install(|| requests.par_iter().map(|request| self.ask_one(request)).collect())
    }

    fn is_deterministic(&self) -> bool {
        false
    }

    fn identity(&self) -> String {
        format!("{} at {}", self.settings.model, self.settings.base_url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_a_number_or_a_date() {
        assert_eq!(retry_after_s(" 7 "), Some(7.0));
        assert_eq!(retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT"), Some(0.0));
        assert_eq!(retry_after_s("soon"), None);
    }

    #[test]
    fn backoff_grows_and_is_seeded() {
        let settings = EndpointSettings { model: "m".to_owned(), max_concurrency: 1, ..EndpointSettings::default() };
        let endpoint = ChatEndpoint::new(&settings, "build").expect("sound");
        for (attempt, (least, most)) in [(0.5, 1.0), (1.0, 2.0), (2.0, 4.0)].into_iter().enumerate() {
            let wait = endpoint.backoff_s("body", attempt as u32);
            assert!((least..most).contains(&wait), "{attempt}: {wait}");
            assert_eq!(wait, endpoint.backoff_s("body", attempt as u32));
        }
        assert!((15.0..30.0).contains(&endpoint.backoff_s("body", 12)));
        assert_ne!(endpoint.backoff_s("body", 0), endpoint.backoff_s("other", 0));
    }
}

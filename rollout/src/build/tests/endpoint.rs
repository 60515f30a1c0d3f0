//! A chat-completions endpoint as a small real server, with everything that such a server does wrong.

use super::*;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What the server does with a request.
#[derive(Clone)]
pub(in crate::build) enum Act {
    /// Status, further header lines, body.
    Answer(u16, &'static str, String),
    /// Says nothing for so long.
    Hang(Duration),
    /// Reads the request and closes.
    Close,
    /// Promises more than it sends.
    Broken,
    /// Status 200 and what this makes of the request.
    Judge(fn(&str) -> String),
}

/// Acts in turn, the last one again and again; gives the address and what was asked.
pub(in crate::build) fn serve(acts: Vec<Act>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let act = acts[number.min(acts.len() - 1)].clone();
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || act.on(&stream.expect("a connection"), &seen));
        }
    });
    (url, requests)
}

impl Act {
    fn on(self, mut stream: &TcpStream, seen: &Mutex<Vec<String>>) {
        let mut reader = BufReader::new(stream);
        let (mut request, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            request.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        request.push_str(&String::from_utf8(body).expect("UTF-8"));
        seen.lock().expect("whole").push(request.clone());
        let whole = |status: u16, headers: &str, body: &str| {
            let length = body.len();
            format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}")
        };
        let answer = match self {
            Self::Answer(status, headers, body) => whole(status, headers, &body),
            Self::Judge(reply) => whole(200, "", &reply(&request)),
            Self::Hang(time) => {
                std::thread::sleep(time);
                String::new()
            }
            Self::Close => String::new(),
            Self::Broken => {
                "HTTP/1.1 200 OK\r\nContent-Length: 999\r\nConnection: close\r\n\r\n{\"choices\"".to_owned()
            }
        };
        let _ = stream.write_all(answer.as_bytes());
    }
}

pub(in crate::build) fn completion(content: &str) -> String {
    json!({"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}})
    .to_string()
}

pub(in crate::build) fn ok(content: &str) -> Act {
    Act::Answer(200, "", completion(content))
}

pub(in crate::build) fn endpoint_settings(url: &str) -> EndpointSettings {
    EndpointSettings {
        base_url: url.to_owned(),
        model: "small".to_owned(),
        max_concurrency: 2,
        timeout_s: 0.4,
        max_retries: 2,
        backoff_s: 0.001,
        ..EndpointSettings::default()
    }
}

fn request() -> LanguageRequest {
    LanguageRequest {
        role: LanguageRole::Judge,
        system: "be brief".to_owned(),
        user: "hello".to_owned(),
        max_tokens: 17,
    }
}

fn ask(settings: &EndpointSettings) -> Result<LanguageReply, LanguageError> {
    ChatEndpoint::new(settings, "build").expect("sound settings").ask(&[request()]).remove(0)
}

#[test]
fn what_is_sent_and_read() {
    let (url, requests) = serve(vec![ok("hi")]);
    // A variable that is always there stands for the key.
    let settings = EndpointSettings { key_env: Some("PATH".to_owned()), ..endpoint_settings(&url) };
    let key = std::env::var("PATH").expect("set");
    let reply = ask(&settings).expect("answered");
    assert_eq!(
        (reply.text.as_str(), reply.num_input_tokens, reply.num_output_tokens, reply.num_retries),
        ("hi", 11, 5, 0)
    );
    let sent = requests.lock().expect("whole").remove(0);
    assert!(sent.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{sent}");
    assert!(sent.contains(&format!("Authorization: Bearer {}\r\n", key.trim())));
    let body: serde_json::Value = serde_json::from_str(sent.split("\r\n").last().expect("a body")).expect("JSON");
    let expected = json!({"model": "small", "messages": [{"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"}], "max_tokens": 17, "temperature": 0.0,
        "response_format": {"type": "json_object"}});
    assert_eq!(body, expected);
    let shown = format!("{:?}", ChatEndpoint::new(&settings, "build").expect("sound settings"));
    assert!(!shown.contains(key.trim()), "the key is not printed");
}

#[test]
fn what_passes_is_retried() {
    let cases: [(&str, Vec<Act>, u32); 6] = [
        ("429", vec![Act::Answer(429, "Retry-After: 0.05\r\n", "slow".to_owned()), ok("hi")], 1),
        ("500s", vec![Act::Answer(500, "", "oops".to_owned()), Act::Answer(503, "", String::new()), ok("hi")], 2),
        ("timeout", vec![Act::Hang(Duration::from_secs(2)), ok("hi")], 1),
        ("closed", vec![Act::Close, ok("hi")], 1),
        ("broken", vec![Act::Broken, ok("hi")], 1),
        ("malformed", vec![Act::Answer(200, "", "<html>".to_owned()), ok("hi")], 1),
    ];
    for (name, acts, num_retries) in cases {
        let (url, _) = serve(acts);
        let start = Instant::now();
        let reply = ask(&endpoint_settings(&url)).expect(name);
        assert_eq!((reply.text.as_str(), reply.num_retries), ("hi", num_retries), "{name}");
        let waited = start.elapsed().as_secs_f64();
        assert!(name != "429" || waited >= 0.05, "Retry-After is kept to");
        assert!((waited - reply.latency_s).abs() < 0.5, "{waited} {}", reply.latency_s);
    }
}

#[test]
fn what_stays_is_an_error_with_url_status_and_body() {
    let cases: [(Act, &[&str], usize); 8] = [
        (Act::Answer(401, "", "bad key".to_owned()), &["status 401", "\"bad key\""], 1),
        (Act::Answer(404, "", "x".repeat(9_000)), &["status 404", "[…cut]"], 1),
        (Act::Answer(302, "Location: http://127.0.0.1:1/\r\n", String::new()), &["status 302"], 1),
        (Act::Answer(500, "", "down".to_owned()), &["status 500", "\"down\"", "3 attempts"], 3),
        (Act::Answer(429, "Retry-After: 3600\r\n", String::new()), &["status 429", "3600 s"], 1),
        (Act::Answer(200, "", "{}".to_owned()), &["not a chat completion", "choices"], 3),
        (Act::Answer(200, "", r#"{"choices": [{"message": {"content": null}}]}"#.to_owned()), &["has no text"], 3),
        (Act::Close, &["3 attempts"], 3),
    ];
    for (act, expected, num_requests) in cases {
        let (url, requests) = serve(vec![act]);
        let error = ask(&endpoint_settings(&url)).expect_err(expected[0]);
        let message = error.to_string();
        assert!(message.starts_with(&format!("{url}/chat/completions: ")) && message.len() < 700, "{message}");
        assert!(expected.iter().all(|part| message.contains(part)), "{message} / {expected:?}");
        assert_eq!(requests.lock().expect("whole").len(), num_requests, "{message}");
        assert_eq!(error.num_retries as usize, num_requests - 1);
    }
    // Nobody listens.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let message = ask(&endpoint_settings(&format!("http://{closed}/v1"))).expect_err("refused").to_string();
    assert!(message.contains("3 attempts"), "{message}");
}

#[test]
fn tokens_are_estimated_without_usage() {
    let body = json!({"choices": [{"message": {"content": "12345"}}]}).to_string();
    let (url, _) = serve(vec![Act::Answer(200, "", body)]);
    let reply = ask(&endpoint_settings(&url)).expect("answered");
    // 8 + 5 characters, and 5.
    assert_eq!((reply.num_input_tokens, reply.num_output_tokens), (4, 2));
}

#[test]
fn requests_are_answered_in_order_and_no_more_than_allowed_at_once() {
    let (url, requests) = serve(vec![Act::Hang(Duration::from_millis(150)), ok("hi")]);
    let settings = EndpointSettings { max_retries: 0, timeout_s: 5.0, ..endpoint_settings(&url) };
    let endpoint = ChatEndpoint::new(&settings, "build").expect("sound settings");
    let results = endpoint.ask(&vec![request(); 5]);
    assert_eq!(results.len(), 5);
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1, "only the one that was hung up on");
    assert_eq!(requests.lock().expect("whole").len(), 5);
}

#[test]
fn settings_name_their_key() {
    type Break = fn(&mut EndpointSettings);
    let cases: [(Break, &str); 6] = [
        (|s| s.base_url = "localhost".to_owned(), "`build.endpoint.base_url`"),
        (|s| s.base_url = "http://me:secret@host".to_owned(), "without credentials"),
        (|s| s.model.clear(), "`build.endpoint.model`"),
        (|s| s.max_concurrency = 0, "`build.endpoint.max_concurrency` must be 1 to 1024, got 0"),
        (|s| s.timeout_s = f64::NAN, "`build.endpoint.timeout_s`"),
        (|s| s.key_env = Some("NAPMEM_NO_SUCH_KEY".to_owned()), "`NAPMEM_NO_SUCH_KEY`, which is not set"),
    ];
    for (breaks, expected) in cases {
        let mut settings = endpoint_settings("http://localhost:1/v1");
        breaks(&mut settings);
        let error = ChatEndpoint::new(&settings, "build").expect_err(expected).to_string();
        assert!(error.contains(expected), "{error} / {expected}");
    }
}

#[test]
fn a_build_over_http_adds_up() {
    let (url, requests) = serve(vec![
        Act::Answer(500, "", String::new()),
        ok(r#"{"records": [{"kind": "fact", "text": "Lives in Oslo.", "sources": ["u1"]}]}"#),
        ok("not JSON"),
        ok(
            r#"{"operations": [{"action": "create", "title": "Home", "summary": "Oslo.", "narrative": "", "evidence": ["r1"]}]}"#,
        ),
        ok(
            r#"{"identity": [{"text": "Lives in Oslo.", "tracks": ["home.md"]}], "preferences": [], "communication": []}"#,
        ),
        Act::Answer(403, "", "gone".to_owned()),
    ]);
    let prices = Prices { input_per_million: 1.0, output_per_million: 4.0 };
    let settings = BuildSettings { prices, ..BuildSettings::default() };
    let model = ChatEndpoint::new(&endpoint_settings(&url), "build").expect("sound settings");
    let dir = tempfile::tempdir().expect("a scratch folder");
    let first = session("s1", "2024-03-01", 1, &["I live in Oslo."]);
    let report = build_with(&RealDisk, &model, &settings, first.clone(), dir.path(), &NoProgress).expect("built");
    let total = report.ledger.total;
    assert_eq!((total.num_calls, total.num_failed, total.num_retries), (4, 1, 1));
    // 11 · 1 + 5 · 4 millionths a call.
    assert_eq!((total.num_input_tokens, total.num_output_tokens, total.cost_nano), (44, 20, 4 * 31_000));
    assert_eq!(read(dir.path()).profile.evidence, ["home.md"]);
    let before = snapshot(dir.path());
    let mut grown = first;
    grown.extend(session("s2", "2024-03-02", 2, &["I sold my caravan."]));
    let error = build_with(&RealDisk, &model, &settings, grown, dir.path(), &NoProgress).expect_err("dead").to_string();
    assert!(error.contains("status 403") && error.contains("gone"), "{error}");
    assert_eq!(snapshot(dir.path()), before, "what is committed stays");
    let sum = LedgerReport::read(&dir.path().join("ann")).expect("a ledger").total;
    assert_eq!((sum.num_calls, sum.num_failed, sum.cost_nano), (5, 2, total.cost_nano));
    assert_eq!(requests.lock().expect("whole").len(), 6);
}

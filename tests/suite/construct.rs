//! `napmem build` and `napmem forget` as a user runs them: rules, the policy in this process, and an endpoint that answers over HTTP.

use crate::scene::{napmem, scene, scratch, succeed, text};
use napmem_rollout::build::LedgerReport;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

/// Files of a pyramid below `dir`, but for the ledger, whose latencies differ.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = vec![];
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.ends_with("ledger.jsonl") => {}
                false => found.push((path.strip_prefix(dir).unwrap().to_owned(), fs_err::read(&path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

fn config(dir: &Path, histories: &Path, more: &str) -> PathBuf {
    fs_err::create_dir_all(dir).unwrap();
    let data = format!("[data]\nhistories = {:?}\npyramids = {:?}\n", text(histories), text(&dir.join("out")));
    let file = dir.join("build.toml");
    fs_err::write(&file, format!("{data}{more}")).unwrap();
    file
}

fn world_histories() -> PathBuf {
    scene().world().join("pyramids")
}

#[test]
fn rules_build_once_and_forget_a_session() {
    let dir = scratch("construct-rules");
    let file = config(&dir, &world_histories(), "");
    let printed = succeed(&["build", "--config", text(&file)]);
    assert!(printed.contains("6 users"), "{printed}");
    let user = dir.join("out/u000");
    let built = files(&user);
    succeed(&["build", "--config", text(&file)]);
    assert_eq!(files(&user), built, "nothing was new, nothing may change");
    assert!(succeed(&["show", text(&user)]).contains("records"));

    let session = |user: &Path| -> Vec<Value> {
        let lines = fs_err::read_to_string(user.join("conversations.jsonl")).unwrap();
        let messages = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        messages.filter(|message| message["session_id"] == "s3").collect()
    };
    let removed = session(&user);
    assert!(!removed.is_empty());
    let report: Value = serde_json::from_str(&succeed(&["forget", text(&user), "--session", "s3", "--json"])).unwrap();
    assert_eq!(report["num_messages"], removed.len());
    assert!(session(&user).is_empty());
    let again = napmem(&["forget", text(&user), "--session", "s3"]);
    assert_eq!(again.code, Some(3), "{}", again.stderr);
    assert!(again.stderr.contains("s3"), "{}", again.stderr);
    succeed(&["build", "--config", text(&file)]);
    assert!(session(&user).is_empty(), "what was forgotten stays out of the next build");
}

#[test]
fn the_policy_reads_within_its_caps() {
    let dir = scratch("construct-policy");
    let model = format!(
        "users = [\"u000\", \"u001\"]\n[language]\nkind = \"policy\"\n[model]\npath = {:?}\ndtype = \"float32\"\ndevice = \"cpu\"\nthreads = 1\n\
         [build]\nmax_reply_tokens = 12\nmax_refusals = 1\n",
        text(&scene().policy())
    );
    let file = config(&dir, &world_histories(), &model);
    succeed(&["build", "--config", text(&file)]);
    for user in ["u000", "u001"] {
        let calls = LedgerReport::read(&dir.join("out").join(user)).unwrap().total;
        assert!(calls.num_calls > 0 && calls.num_output_tokens <= 12 * calls.num_calls, "{calls:?}");
        let failures = fs_err::read_to_string(dir.join("out").join(user).join(".build/failures.jsonl")).unwrap();
        assert!(!failures.is_empty(), "twelve tokens are no readable reply");
    }
}

#[test]
fn an_endpoint_is_asked_over_http() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, connection) in listener.incoming().enumerate() {
            serve(connection.unwrap(), number);
        }
    });
    let dir = scratch("construct-endpoint");
    let endpoint = format!(
        "users = [\"u000\"]\n[language]\nkind = \"endpoint\"\n[build.prices]\ninput_per_million = 2.0\noutput_per_million = 4.0\n\
         [build.endpoint]\nbase_url = \"http://{address}/v1\"\nmodel = \"small\"\nbackoff_s = 0.01\n"
    );
    let file = config(&dir, &world_histories(), &endpoint);
    succeed(&["build", "--config", text(&file)]);
    let calls = LedgerReport::read(&dir.join("out/u000")).unwrap().total;
    assert!(calls.num_retries > 0, "the first connection was told to wait");
    assert_eq!((calls.num_input_tokens, calls.num_output_tokens), (100 * calls.num_calls, 10 * calls.num_calls));
    assert_eq!(calls.cost_nano, calls.num_calls * (100 * 2_000 + 10 * 4_000));
}

/// Answers one request: with 429 the first, with no records all others.
fn serve(mut connection: TcpStream, number: usize) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let reply = json!({"choices": [{"message": {"role": "assistant", "content": "{\"records\": []}"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
    .to_string();
    let (status, more, body) = match number {
        0 => ("429 Too Many Requests", "Retry-After: 0\r\n", "wait".to_owned()),
        _ => ("200 OK", "", reply),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n", body.len());
    // The other side may have given up.
    let _ = connection.write_all(format!("{head}{body}").as_bytes());
}

//! A small chat-completions server, on a port and threads of its own, for programs that run in other processes.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What the server does with a request.
pub enum Reply {
    /// Status 200 with this message (`content`, `tool_calls`) and finish reason.
    Message(Value, &'static str),
    /// This status and body.
    Status(u16, String),
    /// Closes the connection without a word.
    Close,
}

impl Reply {
    /// A message with text alone.
    pub fn text(content: &str) -> Self {
        Self::Message(json!({"role": "assistant", "content": content}), "stop")
    }
}

/// A running server and the bodies of the requests that it got.
pub struct Server {
    /// What goes before `/chat/completions`.
    pub url: String,
    pub requests: Arc<Mutex<Vec<Value>>>,
}

/// Starts a server that answers the n-th request (from 0) with `reply(n, body)`.
pub fn serve(reply: impl Fn(usize, &Value) -> Reply + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (seen, reply, count) = (Arc::clone(&requests), Arc::new(reply), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (seen, reply, count) = (Arc::clone(&seen), Arc::clone(&reply), Arc::clone(&count));
            std::thread::spawn(move || {
                let stream = stream.unwrap();
                let body = read(&stream);
                seen.lock().unwrap().push(body.clone());
                answer(&stream, reply(count.fetch_add(1, Ordering::SeqCst), &body));
            });
        }
    });
    Server { url, requests }
}

fn read(stream: &TcpStream) -> Value {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn answer(mut stream: &TcpStream, reply: Reply) {
    let (status, body) = match reply {
        Reply::Message(message, finish) => {
            let choice = json!({"index": 0, "message": message, "finish_reason": finish});
            let usage = json!({"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16});
            (200, json!({"id": "x", "choices": [choice], "usage": usage}).to_string())
        }
        Reply::Status(status, body) => (status, body),
        Reply::Close => return,
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all((head + &body).as_bytes());
}

//! `napmem fetch`: a model's files from the Hugging Face hub into its usual cache, or out of it when offline.

use clap::Args;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use sha2::{Digest, Sha256};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Endings of the files that a model needs.
const ENDINGS: [&str; 5] = ["json", "safetensors", "jinja", "txt", "model"];
/// How a sentence encoder makes one vector of a text's many; without it, one that does not take the mean would pass for one that does.
const POOLING: &str = "1_Pooling/config.json";

/// Download a model into the Hugging Face cache and print its folder
///
/// Goes on with files that were cut off. HF_HOME says where the cache is, HF_TOKEN opens gated models, HF_ENDPOINT
/// names a mirror, HF_HUB_OFFLINE=1 takes what is in the cache.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// Repository such as Qwen/Qwen3.5-0.8B, or a local folder, which is printed as it is
    repo: String,
    /// Branch, tag or commit
    #[arg(long, default_value = "main")]
    revision: String,
}

/// A model that cannot be had.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Neither a folder nor a repository.
    #[error("{0}: no such folder, and not a repository such as Qwen/Qwen3.5-0.8B")]
    NotARepository(String),
    /// Offline, and not in the cache.
    #[error(
        "{repo} at {revision}: HF_HUB_OFFLINE is set, but {missing} is not in {}; unset it, or copy the model's folder here and give its path",
        cache.display()
    )]
    Offline {
        /// The repository.
        repo: String,
        /// Its revision.
        revision: String,
        /// What is not there.
        missing: String,
        /// The cache.
        cache: PathBuf,
    },
    /// The hub said no, or nothing at all.
    #[error(
        "{repo} at {revision}: {source}; without network, copy the model's folder here and give its path (napmem fetch goes on where it stopped)"
    )]
    Hub {
        /// The repository.
        repo: String,
        /// Its revision.
        revision: String,
        /// Why.
        source: ApiError,
    },
    /// The repository has no weights that can be read.
    #[error("{repo} at {revision}: has no *.safetensors files")]
    NoWeights {
        /// The repository.
        repo: String,
        /// Its revision.
        revision: String,
    },
    /// A downloaded file is not what the hub says it is.
    #[error("{}: must have SHA-256 {expected}, has {found}; it was removed, fetch again", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// What the hub says.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The cache cannot be read or written (the message names the file).
    #[error("{0}")]
    Cache(#[from] std::io::Error),
}

/// Where models come from.
struct Hub {
    cache: Cache,
    is_offline: bool,
    endpoint: Option<String>,
}

/// Fetches and prints the folder.
pub fn run(args: &FetchArgs) -> anyhow::Result<()> {
    let hub = Hub {
        cache: Cache::from_env(),
        is_offline: is_true(&std::env::var("HF_HUB_OFFLINE").unwrap_or_default()),
        endpoint: std::env::var("HF_ENDPOINT").ok(),
    };
    let folder = fetch(&hub, &args.repo, &args.revision)?;
    crate::say!("{}", folder.display());
    Ok(())
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

fn fetch(hub: &Hub, name: &str, revision: &str) -> Result<PathBuf, FetchError> {
    if Path::new(name).is_dir() {
        return Ok(PathBuf::from(name));
    }
    let parts: Vec<&str> = name.split('/').collect();
    let is_repository = parts.len() == 2 && parts.iter().all(|part| !part.is_empty() && *part != "." && *part != "..");
    if !is_repository {
        return Err(FetchError::NotARepository(name.to_owned()));
    }
    let repo = Repo::with_revision(name.to_owned(), RepoType::Model, revision.to_owned());
    if hub.is_offline { from_cache(hub, &repo, name) } else { download(hub, &repo, name) }
}

/// The folder of a snapshot that is whole as far as its own index says.
fn from_cache(hub: &Hub, repo: &Repo, name: &str) -> Result<PathBuf, FetchError> {
    let offline = |missing: &str| FetchError::Offline {
        repo: name.to_owned(),
        revision: repo.revision().to_owned(),
        missing: missing.to_owned(),
        cache: hub.cache.path().clone(),
    };
    let cached = hub.cache.repo(repo.clone());
    let config = cached.get("config.json").ok_or_else(|| offline("config.json"))?;
    let folder = config.parent().expect("a file of a snapshot is in a folder").to_owned();
    cached.get("tokenizer.json").ok_or_else(|| offline("tokenizer.json"))?;
    for shard in shards(&folder)? {
        cached.get(&shard).ok_or_else(|| offline(&shard))?;
    }
    Ok(folder)
}

/// Names of the weight files that a model folder must have.
fn shards(folder: &Path) -> Result<Vec<String>, FetchError> {
    let index = folder.join("model.safetensors.index.json");
    if !index.exists() {
        return Ok(vec!["model.safetensors".to_owned()]);
    }
    let index: serde_json::Value =
        serde_json::from_str(&fs_err::read_to_string(index)?).map_err(std::io::Error::from)?;
    let map = index.get("weight_map").and_then(serde_json::Value::as_object);
    let mut shards: Vec<String> =
        map.into_iter().flat_map(|map| map.values()).filter_map(|name| Some(name.as_str()?.to_owned())).collect();
    shards.sort();
    shards.dedup();
    Ok(shards)
}

fn download(hub: &Hub, repo: &Repo, name: &str) -> Result<PathBuf, FetchError> {
    let fail = |source| FetchError::Hub { repo: name.to_owned(), revision: repo.revision().to_owned(), source };
    let remote = api(hub).map_err(fail)?.repo(repo.clone());
    let info = remote.info().map_err(fail)?;
    let names: Vec<String> =
        info.siblings.into_iter().map(|file| file.rfilename).filter(|name| is_needed(name)).collect();
    if !names.iter().any(|name| name.ends_with(".safetensors")) {
        return Err(FetchError::NoWeights { repo: name.to_owned(), revision: repo.revision().to_owned() });
    }
    let mut folder = None;
    for file in &names {
        let path = match hub.cache.repo(repo.clone()).get(file) {
            Some(path) if is_of_commit(&path, &info.sha) => path,
            _ => fetch_file(&remote, file).map_err(|e| e.unwrap_or_else(fail))?,
        };
        if file != POOLING {
            folder = path.parent().map(Path::to_owned);
        }
    }
    Ok(folder.expect("a model has files"))
}

/// An error of the hub that still needs to be told which repository it is about, or a finished one.
enum FileError {
    Hub(ApiError),
    Ours(FetchError),
}

impl FileError {
    fn unwrap_or_else(self, of_hub: impl FnOnce(ApiError) -> FetchError) -> FetchError {
        match self {
            Self::Hub(error) => of_hub(error),
            Self::Ours(error) => error,
        }
    }
}

fn fetch_file(remote: &ApiRepo, file: &str) -> Result<PathBuf, FileError> {
    let path = remote.download(file).map_err(FileError::Hub)?;
    verify(&path).map_err(FileError::Ours)?;
    Ok(path)
}

fn api(hub: &Hub) -> Result<Api, ApiError> {
    let mut builder = ApiBuilder::from_cache(hub.cache.clone())
        .with_progress(std::io::stderr().is_terminal())
        .with_retries(3)
        .with_user_agent("napmem", env!("CARGO_PKG_VERSION"));
    if let Ok(token) = std::env::var("HF_TOKEN") {
        builder = builder.with_token(Some(token));
    }
    if let Some(endpoint) = &hub.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    builder.build()
}

/// Files at the top of the repository, and the pooling; other folders hold other formats.
fn is_needed(name: &str) -> bool {
    if name == POOLING {
        return true;
    }
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    !name.contains('/') && ENDINGS.contains(&ending)
}

fn is_of_commit(path: &Path, commit: &str) -> bool {
    path.ancestors().skip(1).take(2).filter_map(Path::file_name).any(|name| name == commit)
}

/// Large files are stored under their SHA-256: compares it, and removes a file that differs.
fn verify(path: &Path) -> Result<(), FetchError> {
    let blob = fs_err::canonicalize(path)?;
    let expected = blob.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if expected.len() != 64 || !expected.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(());
    }
    let mut hasher = Sha256::new();
    std::io::copy(&mut fs_err::File::open(&blob)?, &mut hasher)?;
    let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found == expected {
        return Ok(());
    }
    fs_err::remove_file(path)?;
    fs_err::remove_file(&blob)?;
    Err(FetchError::Checksum { path: path.to_owned(), expected, found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    const WEIGHTS: &[u8] = b"weights";

    fn sha256(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A hub on this machine with one model; answers until the process ends. Counts nothing, keeps nothing.
    fn hub(cache: &Path, weights_etag: String) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
                let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
                let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let range = headers
                    .iter()
                    .find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
                stream.write_all(&answer(&path, range.as_deref(), &weights_etag)).unwrap();
            }
        });
        Hub { cache: Cache::new(cache.to_owned()), is_offline: false, endpoint: Some(endpoint) }
    }

    fn answer(path: &str, range: Option<&str>, weights_etag: &str) -> Vec<u8> {
        let files: BTreeMap<&str, (&[u8], &str)> = BTreeMap::from([
            ("config.json", (&b"{}"[..], "c1")),
            ("tokenizer.json", (&b"{}"[..], "t1")),
            ("model.safetensors", (WEIGHTS, weights_etag)),
            (POOLING, (&b"[]"[..], "p1")),
        ]);
        if path == "/api/models/org/tiny/revision/main" {
            let siblings: Vec<String> = files
                .keys()
                .chain(&["README.md", "onnx/model.json"])
                .map(|name| format!("{{\"rfilename\":\"{name}\"}}"))
                .collect();
            let body = format!("{{\"siblings\":[{}],\"sha\":\"abc\"}}", siblings.join(","));
            return format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                .into_bytes();
        }
        let Some((body, etag)) = path.strip_prefix("/org/tiny/resolve/main/").and_then(|name| files.get(name)) else {
            return b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec();
        };
        let (start, end) = range.unwrap().split_once('-').unwrap();
        let start: usize = start.parse().unwrap();
        let end = end.parse().map_or(body.len(), |end: usize| end + 1);
        let part = &body[start..end];
        let mut response = format!(
            "HTTP/1.1 206 Partial Content\r\nConnection: close\r\nETag: \"{etag}\"\r\nX-Repo-Commit: abc\r\n\
             Content-Range: bytes {start}-{}/{}\r\nContent-Length: {}\r\n\r\n",
            end - 1,
            body.len(),
            part.len()
        )
        .into_bytes();
        response.extend(part);
        response
    }

    #[test]
    fn model_is_fetched_then_found_offline() {
        let cache = tempfile::tempdir().unwrap();
        let mut hub = hub(cache.path(), sha256(WEIGHTS));
        let folder = fetch(&hub, "org/tiny", "main").unwrap();
        assert_eq!(fs_err::read(folder.join("model.safetensors")).unwrap(), WEIGHTS);
        assert_eq!(fs_err::read(folder.join(POOLING)).unwrap(), b"[]");
        assert!(!folder.join("README.md").exists() && !folder.join("onnx").exists());
        hub.is_offline = true;
        assert_eq!(fetch(&hub, "org/tiny", "main").unwrap(), folder);
    }

    #[test]
    fn cut_download_goes_on_where_it_stopped() {
        let cache = tempfile::tempdir().unwrap();
        let etag = sha256(WEIGHTS);
        let blobs = cache.path().join("models--org--tiny/blobs");
        fs_err::create_dir_all(&blobs).unwrap();
        fs_err::write(blobs.join(format!("{etag}.part")), &WEIGHTS[..3]).unwrap();
        let folder = fetch(&hub(cache.path(), etag), "org/tiny", "main").unwrap();
        assert_eq!(fs_err::read(folder.join("model.safetensors")).unwrap(), WEIGHTS);
    }

    #[test]
    fn damaged_download_is_removed() {
        let cache = tempfile::tempdir().unwrap();
        let error = fetch(&hub(cache.path(), "0".repeat(64)), "org/tiny", "main").unwrap_err();
        assert!(matches!(error, FetchError::Checksum { .. }), "{error}");
        let snapshot = cache.path().join("models--org--tiny/snapshots/abc");
        assert!(!snapshot.join("model.safetensors").exists());
    }

    #[test]
    fn what_cannot_be_had_is_named() {
        let cache = tempfile::tempdir().unwrap();
        let local = Hub { cache: Cache::new(cache.path().to_owned()), is_offline: true, endpoint: None };
        let folder = cache.path().display().to_string();
        assert_eq!(fetch(&local, &folder, "main").unwrap(), cache.path());
        let message = fetch(&local, "no-such-folder", "main").unwrap_err().to_string();
        assert!(message.starts_with("no-such-folder: no such folder, and not a repository"), "{message}");
        let message = fetch(&local, "org/tiny", "v1").unwrap_err().to_string();
        assert!(message.starts_with("org/tiny at v1: HF_HUB_OFFLINE is set, but config.json is not in"), "{message}");
        // Port 9 (discard) of this machine: nothing answers.
        let closed = Hub { is_offline: false, endpoint: Some("http://127.0.0.1:9".to_owned()), ..local };
        let message = fetch(&closed, "org/tiny", "main").unwrap_err().to_string();
        assert!(message.starts_with("org/tiny at main: request error"), "{message}");
        assert!(message.contains("copy the model's folder here"), "{message}");
    }
}

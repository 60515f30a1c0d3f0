//! Times the search over one level: building, loading, adding to and querying an index of messages with given vectors.
//!
//! `bench_search data DIR NUM_MESSAGES` writes synthetic messages, vectors and queries; `bench_search run DIR` measures, with the
//! threads of `RAYON_NUM_THREADS`, and prints one line of JSON. `scripts/bench_search.sh` runs both beside other libraries.

use napmem_rollout::generate::{Embed, ModelError, TextRole};
use napmem_rollout::pyramid::{LexicalIndex, Pyramid, PyramidData};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

const DIMENSION: usize = 1024;
const NUM_QUERIES: usize = 200;
const VOCABULARY: usize = 30_000;
const USER: &str = "ann";
/// Items that a ranking hands on.
const DEPTH: usize = 50;
/// Messages that the growing of a history adds.
const NUM_ADDED: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["data", dir, num] => write_data(Path::new(dir), num.parse()?),
        ["run", dir] => run(Path::new(dir)),
        _ => Err("usage: bench_search data DIR NUM_MESSAGES | bench_search run DIR".into()),
    }
}

/// A made-up word; low ranks are frequent.
fn word(rank: usize) -> String {
    const SYLLABLES: [&str; 16] =
        ["ka", "lo", "mi", "ter", "sun", "ba", "ri", "no", "vel", "pa", "du", "chi", "ro", "ste", "ga", "wi"];
    let mut rest = rank + 16;
    let mut word = String::new();
    while rest > 0 {
        word.push_str(SYLLABLES[rest % 16]);
        rest /= 16;
    }
    word
}

/// A rank by Zipf's law: log-uniform.
fn zipf(rng: &mut ChaCha8Rng) -> usize {
    ((VOCABULARY as f64).powf(rng.random::<f64>()) - 1.0) as usize
}

fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|x| *x /= norm);
    vector
}

fn noise(rng: &mut ChaCha8Rng) -> f32 {
    (0..4).map(|_| rng.random::<f32>() - 0.5).sum()
}

/// Messages of 6 to 30 words around topics of 50 messages, their vectors near their topic's, and queries that are near a message.
fn write_data(dir: &Path, num_messages: usize) -> Result<(), Box<dyn Error>> {
    let mut rng = ChaCha8Rng::seed_from_u64(num_messages as u64);
    fs_err::create_dir_all(dir.join(USER))?;
    let total = num_messages + NUM_ADDED;
    let topics: Vec<Vec<f32>> =
        (0..total.div_ceil(50)).map(|_| (0..DIMENSION).map(|_| noise(&mut rng)).collect()).collect();
    let mut lines = std::io::BufWriter::new(fs_err::File::create(dir.join("messages.jsonl"))?);
    let mut vectors = std::io::BufWriter::new(fs_err::File::create(dir.join("vectors.f32"))?);
    let mut kept: Vec<(String, Vec<f32>)> = Vec::new();
    for at in 0..total {
        let text: Vec<String> = (0..rng.random_range(6..=30)).map(|_| word(zipf(&mut rng))).collect();
        let text = text.join(" ");
        let topic = &topics[rng.random_range(0..topics.len())];
        let vector = unit(topic.iter().map(|x| x + 1.2 * noise(&mut rng)).collect());
        let (day, minute) = (at / 1440, at % 1440);
        let time = format!(
            "20{:02}-{:02}-{:02}T{:02}:{:02}",
            10 + day / 336,
            1 + day / 28 % 12,
            1 + day % 28,
            minute / 60,
            minute % 60
        );
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        writeln!(
            lines,
            "{}",
            json!({"id": format!("m{at}"), "session_id": format!("s{day}"), "time": time, "role": role, "content": text})
        )?;
        vector.iter().try_for_each(|x| vectors.write_all(&x.to_le_bytes()))?;
        if kept.len() < NUM_QUERIES && rng.random_bool(1.0f64.min(2.0 * NUM_QUERIES as f64 / num_messages as f64)) {
            kept.push((text, vector));
        }
    }
    let mut queries = fs_err::File::create(dir.join("queries.jsonl"))?;
    for (text, vector) in kept {
        let words: Vec<&str> = text.split(' ').collect();
        let mut asked: Vec<String> = (0..5).map(|_| words[rng.random_range(0..words.len())].to_owned()).collect();
        asked.push(word(zipf(&mut rng)));
        let vector = unit(vector.iter().map(|x| x + 0.02 * noise(&mut rng)).collect());
        writeln!(queries, "{}", json!({"text": asked.join(" "), "vector": vector}))?;
    }
    Ok(())
}

/// Looks vectors up instead of computing them, so that only the index is measured.
struct Lookup {
    vectors: HashMap<String, Vec<f32>>,
    query: Mutex<Vec<f32>>,
}

impl Embed for Lookup {
    fn dimension(&self) -> usize {
        DIMENSION
    }

    fn identity(&self) -> String {
        "lookup".to_owned()
    }

    fn embed(&self, texts: &[&str], role: TextRole) -> Result<Vec<Vec<f32>>, ModelError> {
        match role {
            TextRole::Query => Ok(vec![self.query.lock().map_err(|_| "poisoned")?.clone()]),
            TextRole::Document => Ok(texts.iter().map(|text| self.vectors[*text].clone()).collect()),
        }
    }
}

fn read_vectors(path: &Path) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
    let bytes = fs_err::read(path)?;
    let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    Ok(bytes.chunks_exact(4 * DIMENSION).map(|row| row.chunks_exact(4).map(number).collect()).collect())
}

/// 50th and 99th percentile, in milliseconds.
fn percentiles(mut seconds: Vec<f64>) -> serde_json::Value {
    seconds.sort_by(f64::total_cmp);
    let at = |share: f64| seconds[((seconds.len() as f64 * share) as usize).min(seconds.len() - 1)] * 1e3;
    json!({"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)})
}

fn timed<T>(action: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let value = action();
    (start.elapsed().as_secs_f64(), value)
}

fn run(dir: &Path) -> Result<(), Box<dyn Error>> {
    let lines = fs_err::read_to_string(dir.join("messages.jsonl"))?;
    let messages: Vec<napmem_rollout::pyramid::Message> =
        lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let vectors = read_vectors(&dir.join("vectors.f32"))?;
    let texts = messages.iter().map(|message| message.content.clone());
    let lookup = Arc::new(Lookup { vectors: texts.zip(vectors).collect(), query: Mutex::default() });
    let embedder: Arc<dyn Embed> = Arc::<Lookup>::clone(&lookup);
    let folder = dir.join(USER);
    if folder.exists() {
        fs_err::remove_dir_all(&folder)?;
    }
    let num = messages.len() - NUM_ADDED;
    let data = |num: usize| PyramidData { messages: messages[..num].to_vec(), ..PyramidData::default() };
    data(num).save(&folder)?;
    let (build_s, built) = timed(|| Pyramid::load(&folder, &embedder).map(drop));
    built?;
    let (load_s, loaded) = timed(|| Pyramid::load(&folder, &embedder));
    let pyramid = loaded?;
    let queries = fs_err::read_to_string(dir.join("queries.jsonl"))?;
    let queries: Vec<(String, Vec<f32>)> = queries
        .lines()
        .map(|line| {
            let query: serde_json::Value = serde_json::from_str(line)?;
            Ok((serde_json::from_value(query["text"].clone())?, serde_json::from_value(query["vector"].clone())?))
        })
        .collect::<Result<_, serde_json::Error>>()?;
    let ask = |text: &str, vector: &[f32]| -> Result<(f64, Vec<String>), Box<dyn Error>> {
        *lookup.query.lock().map_err(|_| "poisoned")? = vector.to_vec();
        let (seconds, hits) = timed(|| pyramid.search_messages(text, DEPTH));
        Ok((seconds, hits?.into_iter().map(|hit| hit.id).collect()))
    };
    let (mut hybrid, mut dense, mut found) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..4 {
        for (text, vector) in &queries {
            let (seconds, _) = ask(text, vector)?;
            let (dense_seconds, ids) = ask("", vector)?;
            if round > 0 {
                hybrid.push(seconds);
                dense.push(dense_seconds);
            }
            if round == 1 {
                found.push(ids);
            }
        }
    }
    fs_err::write(dir.join("found.json"), serde_json::to_vec(&found)?)?;
    let mut lexical_index = LexicalIndex::default();
    messages[..num].iter().for_each(|message| lexical_index.add(&message.id, &message.content));
    let lexical: Vec<f64> =
        (0..3).flat_map(|_| queries.iter().map(|(text, _)| timed(|| lexical_index.search(text, DEPTH)).0)).collect();
    let index_bytes = bytes_of(&folder.join("index"))?;
    let text_bytes = fs_err::metadata(folder.join("conversations.jsonl"))?.len();
    data(messages.len()).save(&folder)?;
    let (add_s, added) = timed(|| Pyramid::load(&folder, &embedder).map(drop));
    added?;
    println!(
        "{}",
        json!({
            "num_messages": num, "threads": rayon::current_num_threads(), "build_s": build_s, "load_s": load_s, "add_100_s": add_s,
            "hybrid": percentiles(hybrid), "dense": percentiles(dense), "lexical": percentiles(lexical),
            "index_bytes": index_bytes, "text_bytes": text_bytes,
        })
    );
    Ok(())
}

fn bytes_of(dir: &Path) -> Result<u64, Box<dyn Error>> {
    let mut total = 0;
    for entry in fs_err::read_dir(dir)? {
        total += entry?.metadata()?.len();
    }
    Ok(total)
}

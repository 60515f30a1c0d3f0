"""Peers of the search bench on the data that `bench_search data` wrote; one line of JSON.

    bench_search.py numpy DIR      exact inner products in fp32, `@` and argpartition; also recall of DIR/found.json
    bench_search.py tantivy DIR    BM25 over an index in memory, English stemmer
"""
import json
import sys
import time

DIMENSION, NUM_ADDED, DEPTH = 1024, 100, 50


def percentiles(seconds):
    seconds = sorted(seconds)
    at = lambda share: 1e3 * seconds[min(int(len(seconds) * share), len(seconds) - 1)]
    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)}


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def numpy_peer(folder):
    import numpy as np

    matrix = np.fromfile(f"{folder}/vectors.f32", dtype="<f4").reshape(-1, DIMENSION)[:-NUM_ADDED].copy()
    queries = [np.array(line["vector"], dtype=np.float32) for line in read_lines(f"{folder}/queries.jsonl")]

    def search(query):
        scores = matrix @ query
        best = np.argpartition(-scores, DEPTH)[:DEPTH]
        return best[np.argsort(-scores[best])]

    times, found = [], []
    for round_ in range(4):
        for query in queries:
            start = time.perf_counter()
            best = search(query)
            if round_ > 0:
                times.append(time.perf_counter() - start)
            if round_ == 1:
                found.append({f"m{i}" for i in best})
    ours = json.load(open(f"{folder}/found.json", encoding="utf-8"))
    recall = sum(len(best & set(ids)) for best, ids in zip(found, ours)) / (DEPTH * len(found))
    return {"dense": percentiles(times), "recall_at_50_of_napmem": recall}


def tantivy_peer(folder):
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_text_field("text", stored=False, tokenizer_name="en_stem")
    schema.add_text_field("id", stored=True, tokenizer_name="raw")
    index = tantivy.Index(schema.build())
    messages = read_lines(f"{folder}/messages.jsonl")[:-NUM_ADDED]
    start = time.perf_counter()
    writer = index.writer(heap_size=200_000_000, num_threads=1)
    for message in messages:
        writer.add_document(tantivy.Document(text=message["content"], id=message["id"]))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    build = time.perf_counter() - start
    searcher = index.searcher()
    times = []
    for round_ in range(4):
        for line in read_lines(f"{folder}/queries.jsonl"):
            start = time.perf_counter()
            searcher.search(index.parse_query(line["text"], ["text"]), DEPTH)
            if round_ > 0:
                times.append(time.perf_counter() - start)
    return {"lexical": percentiles(times), "build_s": build}


if __name__ == "__main__":
    peer = {"numpy": numpy_peer, "tantivy": tantivy_peer}[sys.argv[1]]
    print(json.dumps(peer(sys.argv[2])))

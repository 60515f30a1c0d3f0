"""Medians of the search bench: bench_search_report.py WORK_DIR OUT.json SIZE..."""
import json
import platform
import statistics
import subprocess
import sys

work, out, *sizes = sys.argv[1:]


def rows(peer, threads, size):
    with open(f"{work}/{peer}-{threads}-{size}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def median(found, *keys):
    def value(row):
        for key in keys:
            row = row[key]
        return row

    return statistics.median(value(row) for row in found)


def command(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


report = {
    "commit": command("git", "rev-parse", "HEAD"),
    "cpu": next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine()),
    "raw": {},
    "ratios": {},
}
print("| messages | threads | hybrid p50 / p99 | vectors p50 / p99 | NumPy p50 / p99 | keywords p50 / p99 | tantivy p50 / p99 | recall@50 |")
print("|---|---|---|---|---|---|---|---|")
for size in sizes:
    tantivy = rows("tantivy", 1, size)
    for threads in ("1", "2"):
        ours, numpy = rows("napmem", threads, size), rows("numpy", threads, size)
        report["raw"][f"{size}-{threads}"] = {"napmem": ours, "numpy": numpy, "tantivy": tantivy}
        pair = lambda found, key: [median(found, key, p) for p in ("p50_ms", "p99_ms")]
        cells = [pair(ours, "hybrid"), pair(ours, "dense"), pair(numpy, "dense"), pair(ours, "lexical"), pair(tantivy, "lexical")]
        recall = median(numpy, "recall_at_50_of_napmem")
        texts = " | ".join(f"{a:.2f} / {b:.2f} ms" for a, b in cells)
        print(f"| {int(size):,} | {threads} | {texts} | {recall:.4f} |")
        report["ratios"][f"dense_p99_vs_numpy_{size}_{threads}"] = cells[1][1] / cells[2][1]
        report["ratios"][f"lexical_p99_vs_tantivy_{size}_{threads}"] = cells[3][1] / cells[4][1]
print()
print("| messages | build | load | add 100 | index, bytes a message | text, bytes a message | share of fp32 vectors + text |")
print("|---|---|---|---|---|---|---|")
for size in sizes:
    ours, num = rows("napmem", "2", size), int(size)
    index, text = median(ours, "index_bytes") / num, median(ours, "text_bytes") / num
    share = (index + text) / (4 * 1024 + text)
    report["ratios"][f"storage_vs_fp32_{size}"] = share
    times = " | ".join(f"{median(ours, key):.3f} s" for key in ("build_s", "load_s", "add_100_s"))
    print(f"| {num:,} | {times} | {index:.0f} | {text:.0f} | {share:.3f} |")
json.dump(report, open(out, "w", encoding="utf-8"), indent=1)
print(f"\nraw figures: {out}", file=sys.stderr)

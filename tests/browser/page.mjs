// The page that `napmem show --html` writes, in headless Chromium without network, worked by keyboard alone.
//
//   node page.mjs PAGE.html DATA_DIR [SCREENSHOT.png]     DATA_DIR: the pyramid that the page shows
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [page_file, dir, screenshot] = process.argv.slice(2);
const lines = (name) => readFileSync(`${dir}/${name}`, "utf8").trim().split("\n").map((line) => JSON.parse(line));
const [records, messages] = [lines("records.jsonl"), lines("conversations.jsonl")];

const args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
const context = await browser.newContext({ offline: true, viewport: { width: 1200, height: 900 } });
const page = await context.newPage();
const faults = [];
page.on("pageerror", (error) => faults.push(String(error)));
page.on("request", (request) => request.url().startsWith("file:") || faults.push(`asks for ${request.url()}`));
await page.goto(pathToFileURL(page_file).href);

const press = (...keys) => keys.reduce((done, key) => done.then(() => page.keyboard.press(key)), Promise.resolve());
const selected = () => page.locator("[role=tab][aria-selected=true]").innerText();
const shown = () => page.locator("#panel article").count();
const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.dataset.level);
// A link moves the focus only after the browser's own `hashchange` event, which comes later than the key press returns.
const follow = async (...keys) => {
  const left = page.url();
  await press(...keys);
  await page.waitForFunction((left) => location.href !== left && document.activeElement?.id === decodeURIComponent(location.hash.slice(1)), left);
};

// Tab leads from the search box to the levels, arrows from level to level and round.
await press("Tab");
assert.equal(await focused(), "search");
await press("Tab");
assert.equal(await focused(), "profile");
await press("ArrowRight", "ArrowRight");
assert.match(await selected(), /^2 Records/);
assert.equal(await shown(), Math.min(200, records.length));
await press("ArrowRight", "ArrowRight");
assert.match(await selected(), /^4 Profile/);

// A slash leads to the search from anywhere; what it finds is what the files hold.
await press("/");
assert.equal(await focused(), "search");
const word = records[0].text.toLowerCase().match(/\p{L}{4,}/u)[0];
await page.keyboard.type(word);
const holds = (record) => [record.id, record.kind, record.text, ...(record.history ?? []).map((h) => h.previous_text)].join(" ").toLowerCase().includes(word);
const expected = records.filter(holds).length;
assert.equal(await page.locator("[data-level=records]").innerText(), `2 Records (${expected})`);
await press("Tab");
while (!(await selected()).startsWith("2 Records")) await press("ArrowRight");
assert.equal(await shown(), Math.min(200, expected));
assert.ok((await page.locator("#panel mark").count()) >= expected);

// Enter on a record's source leads to the message, which takes the focus; its link leads back.
await follow("Tab", "Enter");
const source = records.filter(holds)[0].sources[0];
assert.equal(await focused(), source);
assert.match(await selected(), /^1 Conversations/);
assert.equal(await shown(), messages.length);
await follow("Tab", "Enter");
const back = await focused();
assert.ok(records.some((record) => record.id === back && record.sources.includes(source)), `${back} cites ${source}`);

assert.deepEqual(faults, []);
if (screenshot) await page.screenshot({ path: screenshot });
await browser.close();
console.log(`page.mjs: keyboard, search and links work offline on ${records.length} records and ${messages.length} messages`);

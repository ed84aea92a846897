// SPDX-License-Identifier: Apache-2.0
// The exports: partitions by page, the head, and a verification that names what is damaged.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { is, ok, shows, toasted, until, withPage, withServer } from "./harness.mjs";

const SIZE = 10;
const folder = (server) => path.join(server.dir, "exports");
const flags = (server) => ["--export", folder(server), "--set", `export_events.partition_size=${SIZE}`];
const dataset = async (server) => (await server.api("GET", "/exports")).items.find((d) => d.name === "job_events");

// Three thousand lines, as three hundred partitions.
async function exported(server) {
  await server.reached(await server.enqueue("many"), "completed");
  await until(async () => Number((await dataset(server))?.checkpoint) >= 2990, "three thousand events exported");
  return dataset(server);
}

function files(server) {
  const root = path.join(folder(server), "job_events");
  return readdirSync(root, { recursive: true }).filter((f) => f.endsWith(".parquet")).sort().map((f) => path.join(root, f));
}

function flip(file) {
  const data = readFileSync(file);
  data[100] ^= 1;
  writeFileSync(file, data);
}

export const cases = {
  "a server without a folder for exports teaches how to give it one": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await page.goto("/exports");
    await shows(page.locator(".empty h2"), "No export folder is configured");
    ok((await page.locator(".command code").allTextContents()).includes(`sluice up --data ${server.data} --export ./exports`), "no command");
  })),

  "a folder with nothing in it yet shows what it waits for": () => withServer({ flags: (s) => ["--export", folder(s)] }, (server) => withPage(server, {}, async (page) => {
    await server.reached(await server.enqueue("good"), "completed");
    await page.goto("/exports");
    await shows(page.locator(".empty, table"), /Nothing is exported yet|job_events/);
    is(await page.locator(".banner.bad").count(), 0, "failures");
  })),

  "partitions are shown newest first, page by page, also by keyboard": () => withServer({ flags }, (server) => withPage(server, {}, async (page) => {
    await exported(server);
    await page.goto("/exports");
    await shows(page.locator("tbody tr"), "job_events");
    await shows(page.locator("tbody tr"), "running");
    await page.getByRole("link", { name: "job_events" }).click();
    await shows(page.locator("h1"), "job_events");
    const first = page.locator("section", { hasText: "Partitions" }).locator("tbody tr");
    await until(async () => (await first.count()) === 25, "25 partitions");
    const newest = (await dataset(server)).checkpoint;
    await shows(first.first(), Number(newest).toLocaleString("en"));
    is(await page.getByRole("button", { name: "Newer" }).isDisabled(), true, "newer than the newest");
    const older = page.getByRole("button", { name: "Older" });
    const seen = new Set();
    for (let i = 0; i < 40; i++) {
      for (const text of await first.locator("td:first-child").allTextContents()) seen.add(text);
      if (await older.isDisabled()) break;
      const before = await first.first().textContent();
      await older.focus();
      await page.keyboard.press("Enter");
      await until(async () => (await first.first().textContent()) !== before, "an older page");
    }
    is(seen.size, (await dataset(server)).partitions, "partitions on all pages");
    await shows(first.last(), /^1 – 9/);
    await page.getByRole("button", { name: "Newer" }).click();
    await until(async () => !/^1 – 9/.test(await first.last().textContent()), "a newer page");
  })),

  "the head is shown as it is kept, and can be copied": () => withServer({ flags }, (server) => withPage(server, { permissions: ["clipboard-read", "clipboard-write"] }, async (page) => {
    await exported(server);
    const head = await server.api("GET", "/exports/job_events/head");
    await page.goto("/exports/job_events");
    const box = page.locator("section", { hasText: "Head" }).first();
    await shows(box, head.text.trim());
    await shows(box, "not signed");
    await page.locator(".head-box .command").first().getByRole("button", { name: "Copy" }).click();
    await until(async () => (await page.evaluate(() => navigator.clipboard.readText())) === head.text.trim(), "the head on the clipboard");
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Save" }).click()]);
    is(readFileSync(await download.path(), "utf8"), head.text, "the saved head");
  })),

  "a verification passes, and names a file in which one bit was flipped": () => withServer({ flags }, (server) => withPage(server, {}, async (page) => {
    await exported(server);
    await page.goto("/exports/job_events");
    await shows(page.locator(".page"), "Not verified since");
    await page.getByRole("button", { name: "Verify" }).click();
    await shows(page.locator(".all-good"), "Nothing has changed since it was written");
    await toasted(page, "job_events is verified");
    const victim = files(server)[7];
    flip(victim);
    await page.getByRole("button", { name: "Verify" }).focus();
    await page.keyboard.press("Enter");
    await shows(page.locator("section", { hasText: "Verification" }).locator(".banner.bad"), "finding");
    await shows(page.locator('table[aria-label="Findings"]'), path.basename(victim));
    await page.goto("/exports");
    await shows(page.locator("tbody tr"), "damaged");
  })),

  "an export that cannot run is shown as failed, with the reason": () => withServer({ flags: (s) => {
    writeFileSync(folder(s), "");
    return flags(s);
  } }, (server) => withPage(server, {}, async (page) => {
    await page.goto("/exports");
    await shows(page.locator(".banner.bad"), "The export failed and will be restarted");
    await shows(page.locator(".banner.bad"), "exports");
  })),

  "a dataset that is not there is reported": () => withServer({ flags }, (server) => withPage(server, { allow: [/404/] }, async (page) => {
    await page.goto("/exports/nothing");
    await shows(page.locator(".empty.bad"), "Not found");
  })),

  "a server that may change nothing shows exports and no way to verify them": () => withServer({ flags: (s) => [...flags(s), "--read-only"] }, (server) => withPage(server, { allow: [/403/] }, async (page) => {
    await page.goto("/exports");
    await page.locator(".card .empty, table").first().waitFor();
    is(await page.getByRole("button", { name: "Verify" }).count(), 0, "buttons");
  })),
};

// SPDX-License-Identifier: Apache-2.0
// Data is text; who may not change anything has no buttons for it; nothing leaves without a token.
import { EVIL, is, ok, shows, until, withPage, withServer } from "./harness.mjs";
import { PATHS } from "./pages.mjs";

const buttons = (page) => page.locator("main button:not(.tab)").allTextContents();

export const cases = {
  "markup in keys, inputs, errors and output is shown as text": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const type = "later"; // types and names of schedules are of letters that cannot be markup
    const id = await server.enqueue(type, { text: EVIL, [EVIL]: [EVIL] }, { key: EVIL, in_ms: 3600000 });
    await server.api("POST", `/chains/${id}/fail`, { error: EVIL });
    const run = await server.enqueue("evil");
    await server.reached(run, "completed");
    await server.api("PUT", "/cron/nightly", { spec: "@daily", type, input: { text: EVIL } });
    for (const path of [...PATHS, `/jobs/${id}`, `/jobs/${run}`, `/jobs?q=${encodeURIComponent(EVIL)}&type=${encodeURIComponent(type)}`]) {
      await page.goto(path);
      await page.locator(".page h1").waitFor();
      await until(async () => (await page.locator(".skeleton").count()) === 0, `${path} is drawn`);
      const made = await page.evaluate(() => document.querySelectorAll("main img, main script, main b:not([class]) > *, main [onerror], main [onload], main iframe").length);
      is(made, 0, `elements made of data on ${path}`);
      ok(!(await page.title()).includes("owned"), `${path} ran something`);
    }
    await page.goto(`/jobs/${id}`);
    await shows(page.locator(".job-type"), type);
    await shows(page.locator(".json-text").first(), "<img src=x");
    await shows(page.locator(".banner.bad"), EVIL);
    await page.goto(`/jobs/${run}`);
    await shows(page.locator(".term-lines"), EVIL);
    await shows(page.locator(".term-lines .fg-red"), EVIL);
  })),

  "without a token there is only the log-in page, with one what was asked for": () => withServer({ flags: (server) => server.tokens([{ name: "ops", role: "admin", token: "the right token" }]) }, (server) => withPage(server, { allow: [/401/] }, async (page) => {
    await page.goto("/jobs?status=failed");
    await shows(page.locator("h1"), "Sluice");
    is(new URL(page.url()).pathname, "/login", "where one is sent");
    await page.getByLabel("Token").fill("a wrong one");
    await page.getByRole("button", { name: "Log in" }).click();
    await shows(page.locator(".form-error"), "Unknown token");
    await page.getByLabel("Token").fill("the right token");
    await page.keyboard.press("Enter");
    await shows(page.locator("h1"), "Jobs");
    is(new URL(page.url()).search, "?status=failed", "the page that was asked for");
    await shows(page.locator(".person"), "ops");
    is(await page.evaluate(() => document.cookie), "", "cookies that scripts can read");
    is(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }).includes("right token")), false, "the token is kept");
    await page.reload();
    await shows(page.locator("h1"), "Jobs");
    await page.getByRole("button", { name: "Enqueue" }).click();
    await page.getByRole("dialog").getByLabel("Type").fill("good");
    await page.getByRole("dialog").getByRole("button", { name: "Enqueue" }).click();
    await shows(page.locator(".job-head .badge"), "completed");
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByLabel("Token").waitFor();
    await page.goto("/types");
    await page.getByLabel("Token").waitFor();
    await page.goto("/login?next=//example.org/");
    await page.getByLabel("Token").fill("the right token");
    await page.keyboard.press("Enter");
    await shows(page.locator("h1"), "Overview");
    ok(page.url().startsWith(server.url), "only a path of this server is gone to");
  })),

  "who may only read has no actions": () => withServer({ flags: (server) => server.tokens([{ name: "eye", role: "read", token: "looking" }, { name: "hand", role: "write", token: "writing" }]) }, (server) => withPage(server, { allow: [/401/] }, async (page) => {
    const post = (type, more) => server.api("POST", "/chains", { type, ...more }, { Authorization: "Bearer writing" });
    await post("bad");
    await post("later", { in_ms: 3600000 });
    await page.goto("/");
    await page.getByLabel("Token").fill("looking");
    await page.keyboard.press("Enter");
    await shows(page.locator(".person"), "read");
    is(await page.getByRole("link", { name: "Audit log" }).count(), 0, "the audit log is for admins");
    await noActions(page);
  })),

  "in read-only mode there are no actions for anybody": () => withServer({}, async (server) => {
    await server.reached(await server.enqueue("bad"), "failed");
    await server.enqueue("later", null, { in_ms: 3600000 });
    await server.api("PUT", "/cron/nightly", { spec: "@daily", type: "good", input: null });
    await server.stop();
    await server.start({ flags: ["--read-only"] });
    await withPage(server, {}, async (page) => {
      await page.goto("/");
      await shows(page.locator(".person"), "read only");
      await noActions(page);
    });
  }),

  "files are compressed, their names are kept for ever, and the page is asked for again": () => withServer({}, async (server) => {
    const page = await fetch(`${server.url}/`);
    const html = await page.text();
    is([page.status, page.headers.get("content-type"), page.headers.get("cache-control")], [200, "text/html; charset=utf-8", "no-cache"], "the page");
    ok(/script-src 'self'/.test(page.headers.get("content-security-policy")) && !/unsafe/.test(page.headers.get("content-security-policy")), "a strict policy");
    ok(!/<script(?![^>]* src=)|<style|style=|\son\w+=/.test(html), "nothing inline");
    const again = await fetch(`${server.url}/`, { headers: { "If-None-Match": page.headers.get("etag") } });
    is([again.status, await again.text()], [304, ""], "the same page");
    const names = [...html.matchAll(/"(\/assets\/[^"]+)"/g)].map((m) => m[1]);
    ok(names.length > 10, `${names.length} files`);
    for (const name of names) {
      ok(/\.[0-9a-f]{12}\.(js|css|svg)$/.test(name), `${name} has a hash`);
      const packed = await fetch(server.url + name, { headers: { "Accept-Encoding": "gzip" } });
      const plain = await fetch(server.url + name, { headers: { "Accept-Encoding": "identity" } });
      is([packed.headers.get("content-encoding"), plain.headers.get("content-encoding")], ["gzip", null], `encodings of ${name}`);
      is(packed.headers.get("cache-control"), "public, max-age=31536000, immutable", `caching of ${name}`);
      is(await packed.text(), await plain.text(), name);
    }
    is((await fetch(`${server.url}/assets/js/main.js`)).status, 404, "a name without its hash");
    is((await fetch(`${server.url}/assets/../../etc/passwd`)).status, 404, "a way out");
  }),
};

// Looking is allowed: tabs, pages, copying, downloading, folding. Changing is not.
async function noActions(page) {
  for (const path of [...PATHS.filter((p) => p !== "/audit"), "/jobs/1", "/jobs/2"]) {
    await page.goto(path);
    await page.locator(".page h1").waitFor();
    await until(async () => (await page.locator(".skeleton").count()) === 0, `${path} is drawn`);
    const names = (await buttons(page)).filter((t) => /retry|cancel|delete|pause|resume|run now|complete |fail |enqueue|add |change|remove|re-drive/i.test(t));
    is(names, [], `actions on ${path}`);
    is(await page.locator("main input[type=checkbox]").count(), 0, `boxes on ${path}`);
  }
}

// SPDX-License-Identifier: Apache-2.0
// A job's page: chain, attempts, times, data, and what it writes while it runs.
import { readFileSync } from "node:fs";
import { is, ok, shows, until, withPage, withServer } from "./harness.mjs";

const nodes = (page) => page.locator("a.g-node");

export const cases = {
  "output comes while the job runs, with its colours, and stays when it has ended": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const id = await server.enqueue("talk");
    await page.goto(`/jobs/${id}`);
    await shows(page.locator(".term-lines"), "tick 3");
    await shows(page.locator(".job-head .badge"), "running");
    await shows(page.locator(".fg-green"), "green");
    await shows(page.locator(".fg-red.a-bold"), "bold red");
    const seen = await page.locator(".line").count();
    await until(async () => (await page.locator(".line").count()) > seen + 2, "more lines");
    server.openGate();
    await shows(page.locator(".line.stderr"), "last words");
    await shows(page.locator(".job-head .badge"), "completed");
    let lines = [];
    await until(async () => {
      lines = (await server.api("GET", `/jobs/${id}/events?limit=1000`)).items.filter((e) => e.type !== "progress");
      return lines.some((e) => e.type === "exited"); // it is the last, and may come after the job's end
    }, "its exit among the events");
    await until(async () => (await page.locator(".line").count()) === lines.length, "every event once");
    await page.reload();
    await shows(page.locator(".term-lines"), "last words");
    await until(async () => (await page.locator(".line").count()) === lines.length, "the same after a reload");
  })),

  "the output is followed until the user scrolls up, and again on request": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const id = await server.enqueue("many");
    await server.reached(id, "completed");
    await page.goto(`/jobs/${id}`);
    await until(async () => (await page.locator(".line").count()) > 3000, "all lines");
    const pane = page.locator(".term-pane");
    const fromEnd = () => pane.evaluate((p) => p.scrollHeight - p.scrollTop - p.clientHeight);
    await until(async () => (await fromEnd()) < 30, "the end is seen");
    const follows = async () => (await page.getByRole("button", { name: "Follow" }).getAttribute("aria-pressed")) === "true";
    for (const more of ["400px", "100px", ""]) { // as when what comes into sight is higher, or lower, than was thought
      await pane.evaluate((p, m) => ((p.querySelector(".bunch:last-child").style.paddingBottom = m), p.dispatchEvent(new Event("scroll"))), more);
      await until(async () => (await fromEnd()) < 30, "the end is seen where it is now");
      ok(await follows(), "before any scrolling");
    }
    await pane.hover();
    await page.mouse.wheel(0, -200);
    await until(async () => !(await follows()), "it holds still for a wheel");
    await page.getByRole("button", { name: "Follow" }).click();
    await until(async () => (await fromEnd()) < 30, "the end is seen after that");
    await pane.evaluate((p) => (p.scrollTop = 0));
    await until(async () => !(await follows()), "it holds still");
    await page.getByRole("button", { name: "Follow" }).click();
    await until(async () => (await fromEnd()) < 30, "the end is seen again");
  })),

  "text is found in the output, and all of the output is downloaded": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const id = await server.enqueue("many");
    await server.reached(id, "completed");
    await page.goto(`/jobs/${id}`);
    await until(async () => (await page.locator(".line").count()) > 3000, "all lines");
    await page.keyboard.press("/");
    await page.keyboard.type("1234");
    await shows(page.locator(".found"), "1 of 1");
    await shows(page.locator(".line.here"), "1234");
    await page.getByLabel("Find in the output").fill("99");
    await shows(page.locator(".found"), /^1 of \d+$/);
    await page.keyboard.press("Enter");
    await shows(page.locator(".found"), /^2 of \d+$/);
    await page.getByLabel("Find in the output").fill("nowhere");
    await shows(page.locator(".found"), "none");
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
    is(file.suggestedFilename(), `job-${id}.log`, "name of the file");
    const text = readFileSync(await file.path(), "utf8");
    is(text, Array.from({ length: 3000 }, (_, i) => `${i + 1}\n`).join(""), "the file");
  })),

  "a chain is drawn with what it waits for and what waits for it": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const blockers = await server.bulk([{ type: "hold", input: null }, { type: "good", input: null }]);
    const middle = await server.enqueue("first", null, { after: blockers });
    const last = await server.enqueue("good", null, { after: [middle] });
    await server.reached(blockers[1], "completed");
    await page.goto(`/jobs/${middle}`);
    await until(async () => (await nodes(page).count()) === 4, "four nodes");
    await shows(page.locator(".job-head .badge"), "blocked");
    await shows(page.locator(".g-node.current"), `#${middle} · blocked`);
    is(await page.locator(".g-edge.waits").count(), 2, "edges that wait");
    server.openGate();
    // the blockers complete, the job continues with another one, and the last chain runs
    await until(async () => (await nodes(page).count()) === 5, "the chain has a second job");
    await shows(page.locator(".g-node.current"), "completed");
    await server.reached(last, "completed");
    await until(async () => (await page.locator(".g-edge.waits").count()) === 0, "nothing waits any more");
    await page.locator("a.g-node", { hasText: `#${last}` }).click();
    await shows(page.locator(".crumbs"), `#${last}`);
    await page.goBack();
    await shows(page.locator(".crumbs"), `#${middle}`);
    await page.goto(`/chains/${middle}`);
    await shows(page.locator(".crumbs"), /#\d+/);
    ok(!page.url().includes("/chains/"), "a chain is shown on its job's page");
  })),

  "attempts with their errors, times, input, progress and output are shown": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    // Later, so that it waits: an idle worker may start a job in the millisecond in which it was enqueued.
    const bad = await server.enqueue("bad", { order: 7, lines: [{ sku: "A-1" }], big: 1 }, { in_ms: 50 });
    await server.reached(bad, "failed");
    await page.goto(`/jobs/${bad}`);
    await shows(page.locator(".attempt"), "Attempt 1");
    await shows(page.locator(".attempt pre"), "disk <b>full</b>\nand a second line");
    await shows(page.locator(".banner.bad"), "disk <b>full</b>");
    await shows(page.getByRole("region", { name: "Input" }).last(), '"sku": "A-1"');
    ok(/waited .*; attempt 1 ran .*, failed/.test(await page.locator(".tl-bar").getAttribute("aria-label")), "the time line shows waiting and running");
    const good = await server.enqueue("good");
    await server.reached(good, "completed");
    await page.goto(`/jobs/${good}`);
    await shows(page.getByRole("region", { name: "Output", exact: true }).last(), '"rows": 7');
    const talk = await server.enqueue("talk");
    await page.goto(`/jobs/${talk}`);
    await shows(page.getByRole("region", { name: "Progress" }).last(), '"percent": 40');
  })),

  "an integer that does not fit into a double keeps its digits": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const response = await fetch(`${server.url}/api/v1/chains`, { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"type":"later","input":{"n":9007199254740993},"in_ms":3600000}' });
    const { chain_id: id } = await response.json();
    await page.goto(`/jobs/${id}`);
    await shows(page.getByRole("region", { name: "Input" }).last(), "9007199254740993");
  })),
};

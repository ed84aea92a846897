// SPDX-License-Identifier: Apache-2.0
// Lists: filters, pages by cursor, a large store, selection and what is done with it.
import { is, ok, shows, toasted, until, withPage, withServer } from "./harness.mjs";

const rows = (page) => page.locator("table.jobs tbody tr");
const LARGE = Number(process.env.SLUICE_WEB_JOBS || 20000);

async function some(server) {
  await server.bulk([
    ...Array.from({ length: 4 }, (_, i) => ({ type: "later", input: { n: i }, in_ms: 3600000 })),
    { type: "later", input: { word: "needle" }, key: "order-7", in_ms: 3600000 },
    { type: "other", input: null, in_ms: 3600000 },
  ]);
  await server.reached(await server.enqueue("good", { n: 1 }), "completed");
  await server.reached(await server.enqueue("bad", { n: 2 }), "failed");
}

export const cases = {
  "long names are cut, and the duration and the input stay on the screen": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const long = `type.with.a.very.long.name.${"x".repeat(80)}`;
    await server.enqueue(long, { customer: "ada" }, { in_ms: 3600000, key: "k".repeat(120) });
    await server.reached(await server.enqueue("bad", { why: "because ".repeat(20) }), "failed");
    await page.goto("/jobs");
    await until(async () => (await rows(page).count()) === 2, "two rows");
    for (const width of [1280, 1024]) {
      await page.setViewportSize({ width, height: 800 });
      for (const name of ["Ran", "Input"]) {
        const boxes = await rows(page).locator(`td[data-name=${name}]`).evaluateAll((cells) => cells.map((c) => c.getBoundingClientRect().right));
        ok(boxes.length === 2 && boxes.every((right) => right <= width), `${name} ends at ${boxes} of ${width}`);
      }
    }
    is(await rows(page).locator("td[data-name=Type] .strong").last().getAttribute("title"), long, "the whole name");
    await shows(rows(page).last().locator("td[data-name=Input]"), "ada");
    await shows(rows(page).first().locator("td[data-name=Input]"), /because.*disk/);
  })),

  "jobs are filtered by status, type, key, text and time, and the address remembers how": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await some(server);
    await page.goto("/jobs");
    const count = (n) => until(async () => (await rows(page).count()) === n, `${n} rows`);
    await count(8);
    await page.getByRole("button", { name: /^scheduled/ }).click();
    await count(6);
    await page.getByLabel("Type").fill("later");
    await count(5);
    await page.getByLabel("Search").fill("needle");
    await count(1);
    is(new URL(page.url()).search, "?status=scheduled&type=later&q=needle", "address");
    await page.reload();
    await count(1);
    is(await page.getByLabel("Search").inputValue(), "needle", "the text after a reload");
    await page.getByRole("button", { name: "Clear" }).click();
    await count(8);
    await page.getByLabel("Key").fill("order-7");
    await count(1);
    await page.getByLabel("Key").fill("");
    await count(8);
    await page.getByLabel("Search").fill("rder-7");
    await count(1);
    await page.getByLabel("Search").fill("");
    await page.getByLabel("Created").selectOption("15m");
    await count(8);
    await page.getByLabel("Created").selectOption("custom");
    await page.getByLabel("To", { exact: true }).fill("2020-01-01T00:00");
    await shows(page.locator(".empty"), "No job matches");
    await page.getByRole("button", { name: "Clear the filter" }).click();
    await count(8);
    await page.getByLabel("Order").selectOption("asc");
    await until(async () => (await rows(page).first().textContent()).includes("#1"), "the oldest first");
  })),

  "each tab has the jobs of its state and their number": () => withServer({ flags: ["--set", "jobs.max_attempts=0"] }, (server) => withPage(server, {}, async (page) => {
    const expected = {};
    expected.scheduled = await server.enqueue("later", null, { in_ms: 3600000 });
    expected.ready = await server.enqueue("later");
    expected.completed = await server.enqueue("good");
    expected.running = await server.enqueue("hold");
    expected.blocked = await server.enqueue("good", null, { after: [expected.running] });
    expected.cancelled = await server.enqueue("later");
    await server.api("POST", `/chains/${expected.cancelled}/cancel`);
    expected.failed = await server.enqueue("later");
    await server.api("POST", `/chains/${expected.failed}/fail`, { error: "by hand" });
    expected.retrying = await server.enqueue("flaky");
    for (const [state, id] of Object.entries(expected)) await until(async () => (await server.api("GET", `/jobs/${id}`)).state === state, `${id} is ${state}`);
    await page.goto("/jobs");
    for (const [state, id] of Object.entries(expected)) {
      const tab = page.getByRole("button", { name: new RegExp(`^${state}`) });
      await until(async () => /\D1$/.test(await tab.textContent()), `the number of ${state}`);
      await tab.click();
      await until(async () => (await rows(page).count()) === 1 && (await rows(page).first().textContent()).includes(`#${id}`), `the one job that is ${state}`);
      await shows(rows(page).locator(".badge"), state);
    }
  })),

  "the list follows what happens": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await page.goto("/jobs");
    await shows(page.locator(".empty"), "No jobs yet");
    const id = await server.enqueue("hold");
    await shows(rows(page), `#${id}`);
    await shows(rows(page).locator(".badge"), "running");
    server.openGate();
    await shows(rows(page).locator(".badge"), "completed");
  })),

  "a large store is paged by cursor, never listed whole": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.bulk(Array.from({ length: LARGE }, (_, i) => ({ type: "later", input: { n: i }, in_ms: 86400000 })));
    const sizes = [];
    page.on("response", async (r) => r.url().includes("/api/v1/jobs?") && sizes.push((await r.body().catch(() => "")).length));
    await page.goto("/jobs");
    await until(async () => (await rows(page).count()) === 50, "a page of rows");
    await shows(page.getByRole("button", { name: /^scheduled/ }), LARGE >= 10000 ? /\d+(\.\d)?[kM]/ : String(LARGE));
    await shows(rows(page), `#${LARGE}`);
    await page.getByRole("button", { name: "Next" }).click();
    await shows(rows(page), `#${LARGE - 50}`);
    await page.reload();
    await shows(rows(page), `#${LARGE - 50}`);
    await page.goto("/jobs");
    await shows(rows(page), `#${LARGE}`);
    await page.keyboard.press("n");
    await shows(rows(page), `#${LARGE - 50}`);
    await page.keyboard.press("p");
    await shows(rows(page), `#${LARGE}`);
    await page.getByLabel("Search").fill('"n": 3}'.replace(" ", ""));
    await shows(rows(page), "#4");
    ok(sizes.length > 0 && Math.max(...sizes) < 100000, `answers of ${Math.max(...sizes)} bytes`);
    for (const path of ["/", "/types", "/pipeline", "/failures"]) {
      await page.goto(path);
      await page.locator(".page table, .page .pipeline, .page .empty").first().waitFor();
    }
  })),

  "selected jobs are cancelled and retried together": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.bulk(Array.from({ length: 5 }, (_, i) => ({ type: "later", input: { n: i }, in_ms: 3600000 })));
    await page.goto("/jobs?status=pending");
    await until(async () => (await rows(page).count()) === 5, "five rows");
    await page.getByLabel("Select job 2").click();
    await page.getByLabel("Select job 4").click({ modifiers: ["Shift"] });
    await shows(page.locator(".bulk"), "3 jobs selected");
    await page.locator(".bulk").getByRole("button", { name: "Cancel" }).click();
    await shows(page.getByRole("dialog"), "Cancel 3 chains?");
    await page.getByRole("dialog").getByRole("button", { name: "Cancel 3 chains" }).click();
    await toasted(page, "3 chains cancelled");
    await until(async () => (await rows(page).count()) === 2, "two are left");
    is((await server.api("GET", "/jobs?status=cancelled")).items.map((j) => j.id).sort(), ["2", "3", "4"], "cancelled");
    await page.goto("/jobs?status=cancelled");
    await until(async () => (await rows(page).count()) === 3, "three cancelled");
    await page.getByLabel("Select all on this page").click();
    await page.locator(".bulk").getByRole("button", { name: "Retry" }).click();
    await toasted(page, "3 chains will run again");
    await until(async () => (await server.api("GET", "/jobs?status=pending")).items.length === 5, "five pending again");
  })),

  "all jobs that match a filter are changed at once, the others are not": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.bulk([...Array.from({ length: 120 }, () => ({ type: "later", input: null, in_ms: 3600000 })), { type: "other", input: null, in_ms: 3600000 }]);
    await page.goto("/jobs?type=later");
    await until(async () => (await rows(page).count()) === 50, "a page");
    await page.getByLabel("Select all on this page").click();
    await page.getByRole("button", { name: "Select all that match" }).click();
    await shows(page.locator(".bulk"), "All jobs that match the filter");
    await page.locator(".bulk").getByRole("button", { name: "Retry" }).click();
    await toasted(page, "No job that matches", "bad");
    await page.locator(".bulk").getByRole("button", { name: "Delete" }).click();
    await shows(page.getByRole("dialog"), "Delete 120 chains?");
    await page.getByRole("dialog").getByRole("button", { name: "Delete 120 chains" }).click();
    await toasted(page, "120 chains deleted");
    await shows(page.locator(".empty"), "No job matches");
    is((await server.api("GET", "/jobs")).items.map((j) => j.type), ["other"], "what is left");
  })),

  "an error that repeats is among the failures from its first attempt, and its jobs are run now": () => withServer({ flags: ["--set", "jobs.max_attempts=0"] }, (server) => withPage(server, {}, async (page) => {
    const id = await server.enqueue("flaky");
    await page.goto("/failures");
    await shows(page.locator("td[data-name=State]"), "retrying");
    const attempts = async () => (await server.api("GET", `/jobs/${id}`)).attempt;
    await until(async () => (await attempts()) >= 1, "the first attempt");
    const before = await attempts();
    await page.getByRole("button", { name: /^Retry all/ }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Retry 1 job" }).click();
    await toasted(page, "will run again");
    await until(async () => (await attempts()) > before, "the next attempt");
  })),

  "failed jobs are grouped by error, and a group is retried as one": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const ids = await server.bulk(Array.from({ length: 7 }, () => ({ type: "bad", input: null })));
    for (const id of ids) await server.reached(id, "failed");
    const other = await server.enqueue("later", null, { in_ms: 3600000 });
    await server.api("POST", `/chains/${other}/fail`, { error: "by hand" });
    await page.goto("/failures");
    await until(async () => (await page.locator("tbody tr").count()) === 2, "two groups");
    await shows(page.locator("tbody tr").first(), "7");
    await shows(page.locator("tbody tr").first(), "disk <b>full</b>");
    for (const name of ["First seen", "Last seen"]) await shows(page.locator(`td[data-name="${name}"]`), /ago|now/);
    await page.getByRole("link", { name: "disk <b>full</b>" }).click();
    await until(async () => (await rows(page).count()) === 7, "the jobs of the group");
    await page.goto("/failures");
    await page.getByRole("button", { name: "Retry all: by hand" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Retry 1 job" }).click();
    await toasted(page, "1 chain will run again");
    await until(async () => (await page.locator("tbody tr").count()) === 1, "one group is left");
    is((await server.api("GET", `/jobs/${other}`)).status, "pending", "the retried job");
    is((await server.api("GET", "/jobs?status=failed")).items.length, 7, "the others");
  })),
};

// SPDX-License-Identifier: Apache-2.0
// Everything that can be done on one thing.
import { execFileSync } from "node:child_process";
import path from "node:path";
import { dlqPut, is, ok, shows, sluice, toasted, until, withPage, withServer } from "./harness.mjs";

const confirm = (page, name) => page.getByRole("dialog").getByRole("button", { name, exact: true }).last().click();

export const cases = {
  "a job is enqueued from the page": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await page.goto("/jobs");
    await page.getByRole("button", { name: "Enqueue" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Type").fill("good");
    await dialog.getByLabel("Input (JSON)").fill("{not json");
    await dialog.getByRole("button", { name: "Enqueue" }).click();
    await shows(dialog.locator(".form-error"), "not valid JSON");
    await dialog.getByLabel("Input (JSON)").fill('{"a": [1, 2]}');
    await dialog.getByRole("button", { name: "Enqueue" }).click();
    await shows(page.locator(".job-head .badge"), "completed");
    is((await server.api("GET", "/jobs/1")).input, { a: [1, 2] }, "input");
  })),

  "a job is enqueued with a priority, a delay and a key, and what was typed stays when the server refuses": () => withServer({}, (server) => withPage(server, { allow: [/status of 4\d\d/] }, async (page) => {
    await page.goto("/jobs");
    await page.getByRole("button", { name: "Enqueue" }).click();
    const dialog = page.getByRole("dialog");
    const send = () => dialog.getByRole("button", { name: "Enqueue" }).click();
    await dialog.getByLabel("Type").fill("no good");
    await dialog.getByLabel("Input (JSON)").fill('{"kept": true}');
    await dialog.getByLabel("Priority").fill("-5");
    await dialog.getByLabel("Delay").fill("soon");
    await dialog.getByLabel("Key").fill("order-7");
    await send();
    await shows(dialog.locator(".form-error"), "The delay must be");
    await dialog.getByLabel("Delay").fill("2h");
    await send();
    await shows(dialog.locator(".form-error"), /type/i);
    is(await dialog.getByLabel("Input (JSON)").inputValue(), '{"kept": true}', "what was typed");
    await dialog.getByLabel("Type").fill("good");
    await send();
    await shows(page.locator(".job-head .badge"), "scheduled");
    const job = await server.api("GET", "/jobs/1");
    is([job.type, job.input, job.priority, job.key], ["good", { kept: true }, -5, "order-7"], "the job");
    is(Math.round((Date.parse(job.scheduled_for) - Date.parse(job.created_at)) / 3600000), 2, "hours until it is due");
  })),

  "every job that has ended is run again with the same input, in all its digits": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const big = await fetch(`${server.url}/api/v1/chains`, { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"type":"good","input":{"n":9007199254740993},"priority":-2}' });
    const { chain_id: first } = await big.json();
    await server.reached(first, "completed");
    const failed = await server.enqueue("bad");
    await server.reached(failed, "failed");
    for (const id of [first, failed]) {
      await page.goto(`/jobs/${id}`);
      await page.locator(".job-head").getByRole("button", { name: "Run again" }).click();
      await until(() => /\/jobs\/\d+$/.test(page.url()) && !page.url().endsWith(`/${id}`), "the new job");
    }
    const again = await (await fetch(`${server.url}/api/v1/jobs/3`)).text();
    ok(again.includes('"input":{"n":9007199254740993}') && again.includes('"priority":-2'), again);
    is((await server.reached("4", "failed")).type, "bad", "the second one");
  })),

  "a job is run now, cancelled, retried, completed, failed and deleted": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const id = await server.enqueue("hold", null, { in_ms: 3600000 });
    const status = async (s, state = s) => {
      await shows(page.locator(".job-head .badge"), state);
      is((await server.api("GET", `/jobs/${id}`)).status, s, "status");
    };
    const press = (name) => page.locator(".job-head").getByRole("button", { name }).click();
    await page.goto(`/jobs/${id}`);
    await status("pending", "scheduled");
    await press("Run now");
    await status("running");
    await press("Cancel");
    await confirm(page, "Keep running");
    await status("running");
    await press("Cancel");
    await confirm(page, "Cancel job");
    await status("cancelled");
    await press("Retry");
    await status("running");
    await press("Complete …");
    await page.getByRole("dialog").getByLabel("Output (JSON)").fill('{"by":"hand"}');
    await confirm(page, "Complete job");
    await status("completed");
    is((await server.api("GET", `/jobs/${id}`)).output, { by: "hand" }, "output");
    await press("Delete");
    await confirm(page, "Delete job");
    await shows(page.locator("h1"), "Jobs");
    is((await server.api("GET", "/jobs")).items.length, 0, "jobs left");
    const other = await server.enqueue("hold", null, { in_ms: 3600000 });
    await page.goto(`/jobs/${other}`);
    await press("Fail …");
    await page.getByRole("dialog").getByLabel("Error").fill("no longer wanted");
    await confirm(page, "Fail job");
    await shows(page.locator(".banner.bad"), "no longer wanted");
  })),

  "a dialog that is closed with Escape changes nothing and gives the focus back": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const id = await server.enqueue("later", null, { in_ms: 3600000 });
    await page.goto(`/jobs/${id}`);
    const button = page.locator(".job-head").getByRole("button", { name: "Cancel" });
    await button.click();
    await page.keyboard.press("Escape");
    await until(async () => (await page.getByRole("dialog").count()) === 0, "the dialog is gone");
    await until(() => button.evaluate((b) => b === document.activeElement), "focus is back");
    is((await server.api("GET", `/jobs/${id}`)).status, "pending", "status");
  })),

  "a type is paused and resumed": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.reached(await server.enqueue("good"), "completed");
    await page.goto("/types");
    await page.getByRole("button", { name: "Pause good" }).click();
    await shows(page.locator("tbody tr").first().locator(".tag"), "paused");
    const held = await server.enqueue("good");
    await until(async () => /\b1\b/.test(await page.locator("td[data-name=Ready]").textContent()), "one waits");
    is((await server.api("GET", `/jobs/${held}`)).status, "pending", "held back");
    await page.getByRole("button", { name: "Resume good" }).click();
    await shows(page.locator("tbody tr").first().locator(".tag"), "open");
    await server.reached(held, "completed");
  })),

  "schedules are added, changed, run, paused, resumed and removed": () => withServer({}, (server) => withPage(server, { allow: [/status of 4\d\d/] }, async (page) => {
    await page.goto("/cron");
    await shows(page.locator(".empty"), "sluice cron add");
    await page.getByRole("button", { name: "Add a schedule" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("nightly");
    await dialog.getByLabel("Schedule (UTC)").fill("30 2 * * *");
    await dialog.getByLabel("Job type").fill("good");
    await dialog.getByLabel("Input (JSON)").fill('{"kind":"full"}');
    await confirm(page, "Add");
    await shows(page.locator("tbody tr"), "every day at 02:30 UTC");
    is((await server.api("GET", "/cron")).items.map((c) => [c.name, c.spec, c.type, c.input]), [["nightly", "30 2 * * *", "good", { kind: "full" }]], "schedules");
    await page.getByRole("button", { name: "Change nightly" }).click();
    await dialog.getByLabel("Schedule (UTC)").fill("61 * * * *");
    await confirm(page, "Save");
    await shows(dialog.locator(".form-error"), /./);
    await dialog.getByLabel("Schedule (UTC)").fill("*/5 * * * *");
    await confirm(page, "Save");
    await shows(page.locator("tbody tr"), "every 5 minutes");
    await page.getByRole("button", { name: "Run now: nightly" }).click();
    await toasted(page, "Job 1 enqueued");
    is((await server.reached("1", "completed")).input, { kind: "full" }, "input of the job");
    await page.getByRole("button", { name: "Pause nightly" }).click();
    await shows(page.locator("td[data-name=Next]"), "paused");
    is((await server.api("GET", "/cron")).items.map((c) => [c.paused, c.next_at, c.input]), [[true, null, { kind: "full" }]], "paused");
    await page.getByRole("button", { name: "Resume nightly" }).click();
    await shows(page.locator("td[data-name=Next]"), "in ");
    is((await server.api("GET", "/cron")).items[0].paused, false, "resumed");
    await page.getByRole("button", { name: "Remove nightly" }).click();
    await confirm(page, "Remove schedule");
    await shows(page.locator(".empty"), "No schedules yet");
    is((await server.api("GET", "/cron")).items.length, 0, "schedules left");
  })),

  "dead letters are listed, read and sent again": () => withServer({}, (server) => withPage(server, { allow: [/status of/] }, async (page) => {
    await page.goto("/dead-letters");
    await shows(page.locator(".empty"), "No dead letters");
    const job = await server.enqueue("good");
    await server.reached(job, "completed");
    for (let i = 1; i <= 3; i++) putDeadLetter(server, i, event(Number(job), `line ${i} that was <i>refused</i>`));
    await until(async () => (await page.locator("tbody tr").count()) === 3, "three letters");
    await page.locator("tbody tr", { hasText: "@2" }).getByRole("link").click();
    await shows(page.locator(".json-text"), "line 2 that was <i>refused</i>");
    await page.locator(".page-head").getByRole("button", { name: "Redrive" }).click();
    await toasted(page, "1 dead letter redriven");
    await until(async () => (await page.locator("tbody tr").count()) === 2, "two are left");
    await page.goto("/pipeline");
    await until(async () => (await page.locator(".r-dead title").textContent()) === "Dead letters: 2", "the pipeline counts them");
    await page.getByRole("button", { name: "Redrive all" }).click();
    await confirm(page, "Redrive all");
    await toasted(page, "2 dead letters redriven");
    await page.goto("/dead-letters");
    await shows(page.locator(".empty"), "No dead letters");
    const refused = async () => (await server.api("GET", `/jobs/${job}/events?limit=100`)).items.map((e) => e.text).filter((t) => t.includes("refused"));
    await until(async () => (await refused()).length >= 3, "three lines of the job");
    is((await refused()).sort(), [1, 2, 3].map((i) => `line ${i} that was <i>refused</i>`), "lines of the job");
    // what is no event stays, and the page says why
    putDeadLetter(server, 9, "no event");
    await page.locator("tbody tr", { hasText: "@9" }).getByRole("button", { name: /Redrive/ }).click();
    await toasted(page, "is not an event", "bad");
  })),

  "changes are in the audit log, with who made them, on what and how": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.reached(await server.enqueue("good"), "completed");
    await page.goto("/types");
    await page.getByRole("button", { name: "Pause good" }).click();
    await toasted(page, "paused");
    execFileSync(sluice, ["jobs", "resume", "good", "--store", `sqlite:${path.join(server.data, "sluice.db")}`]);
    await server.bulk(Array.from({ length: 7 }, () => ({ type: "good", input: null })));
    await page.goto("/audit");
    const cells = () => page.locator("tbody tr").evaluateAll((rows) => rows.map((r) => ["Action", "On", "Via"].map((name) => r.querySelector(`td[data-name=${name}]`).textContent)));
    await until(async () => (await cells()).length === 4, "four changes");
    is(await cells(), [
      ["chains.start_bulk", "#2, #3, #4, #5, #6 and 2 more", "HTTP"],
      ["jobs.resume", "good", "command line"],
      ["types.pause", "good", "HTTP"],
      ["chains.start", "#1", "HTTP"]], "the log");
    ok((await page.locator("td[data-name=Who]").first().textContent()).includes("local"), "who");
    await page.locator("tbody").getByRole("link", { name: "#1" }).click();
    await shows(page.locator(".crumbs"), "#1");
  })),
};

// A record of a log as it stands in a letter: JobEvent of events.proto, a line of standard output.
function event(jobId, text) {
  const data = Buffer.from(text);
  const token = Buffer.from([0x08, jobId, 0x10, 1]);
  return Buffer.concat([Buffer.from([0x08, 2, 0x12, token.length]), token, Buffer.from([0x18, 0xe8, 0x07, 0x32, data.length]), data]);
}

function putDeadLetter(server, position, item) {
  execFileSync(dlqPut, [path.join(server.data, "dead"), "worker-a1", String(position), "-1", "3", "1", "1700000000000", "1700000000001", "job_events", "the store refused it"], { input: item });
}

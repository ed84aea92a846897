// SPDX-License-Identifier: Apache-2.0
// Every page by itself: empty, with something on it, and as things change.
import { execFileSync } from "node:child_process";
import path from "node:path";
import { is, keptAddress, ok, shows, sluice, toasted, until, withPage, withServer } from "./harness.mjs";

export const PATHS = ["/", "/pipeline", "/jobs", "/failures", "/types", "/workers", "/cron", "/exports", "/backups", "/dead-letters", "/audit"];

const tile = (page, name) => page.locator(".tile", { hasText: name }).locator(".tile-value");

export const cases = {
  "an empty store teaches how to start a first job, and shows it the moment it is there": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await page.goto("/");
    await shows(page.locator(".empty h2"), "No jobs yet");
    ok((await page.locator(".command code").allTextContents()).some((t) => t.includes(`${server.url}/api/v1/chains`)), "no command with this server's address");
    await server.enqueue("good");
    await shows(page.locator(".tiles"), "Waiting");
    await until(async () => (await tile(page, "Completed").locator("..").textContent()).includes("1 in all"), "one job completed");
  })),

  "an empty store that is slow to count teaches when it has counted": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    let answer;
    const held = new Promise((resolve) => (answer = resolve));
    await page.route("**/api/v1/stats*", async (route) => (await held, route.continue()));
    await page.goto("/");
    await page.locator(".tiles").waitFor();
    answer();
    await shows(page.locator(".empty h2"), "No jobs yet");
    await server.enqueue("good");
    await until(async () => (await tile(page, "Completed").locator("..").textContent()).includes("1 in all"), "one job completed");
  })),

  "the commands on the empty page, as they are printed there, start jobs": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await page.goto("/");
    await page.locator(".command").first().waitFor();
    const [first, second, third] = await page.locator(".command code").allTextContents();
    const env = { ...process.env, PATH: `${path.dirname(sluice)}:${process.env.PATH}` };
    delete env.SLUICE_STORE; // the commands name this server's store
    const type = (text) => execFileSync("sh", ["-c", text], { encoding: "utf8", env });
    const detached = type(first).trim();
    await server.reached(detached, "completed");
    await page.goto(`/jobs/${detached}`);
    await shows(page.locator(".term-lines"), "hello, world");
    const { chain_id: hello } = JSON.parse(type(second));
    await page.goto(`/jobs/${hello}`);
    await shows(page.locator(".job-head .badge"), "ready");
    type(`${third} --drain`);
    await shows(page.locator(".job-head .badge"), "completed");
  })),

  "every page of an empty store has one heading and explains what will be there": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    for (const path of PATHS) {
      await page.goto(path);
      await page.locator(".page .empty, .page .all-good, .page table, .page .pipeline").first().waitFor();
      is(await page.locator("h1").count(), 1, `headings of ${path}`);
      await until(async () => (await page.locator(".skeleton").count()) === 0, `no unfinished parts of ${path}`);
      is(await page.locator(".empty.bad").count(), 0, `failures on ${path}`);
    }
  })),

  "a reload of any page shows the same page": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.reached(await server.enqueue("good"), "completed");
    for (const path of [...PATHS, "/jobs/1", "/jobs?status=completed"]) {
      await page.goto(path);
      const heading = page.locator("h1");
      await heading.waitFor();
      await until(async () => (await page.title()) !== "Sluice", "a title");
      // A job's page is headed by its number until the job is there.
      await until(async () => (await page.locator(".skeleton").count()) === 0 && !/^Job #/.test(await heading.textContent()), "all of it");
      const before = await heading.textContent();
      await page.reload();
      await shows(heading, before);
      is(new URL(page.url()).pathname + new URL(page.url()).search, path, "address");
    }
  })),

  "an unknown path and an unknown job are reported": () => withServer({}, (server) => withPage(server, { allow: [/404/] }, async (page) => {
    for (const path of ["/nowhere", "/jobs/1/2", "/jobs/", "/a%zzb"]) {
      is((await page.goto(path)).status(), 404, `status of ${path}`);
      await shows(page.locator("h1"), "Page not found");
      await shows(page.locator("nav.side"), "Overview");
    }
    await page.getByRole("link", { name: "Go to the overview" }).click();
    await shows(page.locator("h1"), "Overview");
    await page.goto("/jobs/999999");
    await shows(page.locator(".empty.bad"), "Not found");
    await page.locator("#nav a", { hasText: "Overview" }).click();
    await shows(page.locator("h1"), "Overview");
  })),

  "the overview counts, draws its charts and follows what happens": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.bulk(Array.from({ length: 20 }, () => ({ type: "good", input: null })));
    const bad = await server.enqueue("bad");
    await server.reached(bad, "failed");
    await page.goto("/");
    await until(async () => (await tile(page, "Failed").textContent()) === "1", "one failed job");
    const drawn = () => page.locator("canvas").first().evaluate((c) => c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((x) => x !== 0));
    await until(drawn, "something on the canvas");
    await shows(page.locator("section", { hasText: "Most frequent failures" }), "disk <b>full</b>");
    await shows(page.locator("section", { hasText: "Busiest types" }), "good");
    await server.bulk(Array.from({ length: 3 }, () => ({ type: "hold", input: null })));
    await until(async () => (await tile(page, "Running").textContent()) === "3", "three running jobs");
    await until(async () => (await tile(page, "Running").locator("..").textContent()).includes("1 worker"), "their worker");
    server.openGate();
    await until(async () => (await tile(page, "Running").textContent()) === "0", "none running any more");
  })),

  "workers are listed while they are idle, and with their leases while they hold jobs": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await page.goto("/workers");
    await shows(page.locator("table").first(), "0 of 8");
    await page.locator("section", { hasText: "Leases" }).waitFor({ state: "hidden" });
    const id = await server.enqueue("hold");
    await shows(page.locator("table").first(), "1 of 8");
    await shows(page.locator("section", { hasText: "Leases" }), `#${id}`);
    await page.locator("table").first().getByRole("link").first().click();
    await shows(page.locator(".facts"), `pid ${server.child.pid}`);
    await shows(page.locator("section", { hasText: "Running jobs" }), `#${id}`);
    server.openGate();
    await shows(page.locator("section", { hasText: "Running jobs" }), "No job is running");
  })),

  "a job whose type no worker serves says so": () => withServer({ types: ["good"] }, (server) => withPage(server, {}, async (page) => {
    await until(async () => (await server.api("GET", "/workers")).items.length, "the worker's heartbeat");
    const id = await server.enqueue("lonely");
    await server.reached(await server.enqueue("good"), "completed");
    await page.goto(`/jobs/${id}`);
    await shows(page.locator(".banner.warn"), "No worker serves lonely");
    await page.goto("/types");
    await shows(page.locator("tr", { hasText: "lonely" }), "no worker");
    await shows(page.locator("tr", { hasText: "good" }), "open");
    await page.goto("/");
    await shows(page.locator("section", { hasText: "Busiest types" }), "no worker serves this type");
  })),

  "the overview draws the history that the server keeps, of the range that is chosen": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.reached(await server.enqueue("good"), "completed");
    const known = (h) => h.due.filter((n) => n !== null).length;
    await until(async () => known(await server.api("GET", "/history?range=7d")), "a row of the history");
    await page.goto("/");
    for (const [name, words] of [["24 h", "last 24 hours"], ["7 d", "last 7 days"], ["1 h", "last hour"]]) {
      const choose = page.getByRole("button", { name: `${name}: ${words}` });
      await choose.click();
      ok((await choose.getAttribute("aria-pressed")) === "true", `${name} is chosen`);
      const points = () => page.evaluate(() => Object.values(globalThis.Chart?.instances || {}).map((c) => c.data.datasets[0].data.filter((p) => p.y >= 0).length));
      await until(async () => {
        const n = await points();
        return n.length === 4 && n[1] > 0; // depth; a rate needs two rows
      }, `points of the ${words}`);
    }
    await until(async () => known(await server.api("GET", "/history")) > 1, "two rows of the hour");
    await page.reload();
    const depth = () => page.evaluate(() => Object.values(globalThis.Chart?.instances || {})[1]?.data.datasets[0].data.map((p) => [p.x, p.y >= 0]) || []);
    await until(async () => (await depth()).some(([x, y], i, all) => y && i && all[i - 1][1] && x - all[i - 1][0] > 5), "a line between two rows of the server");
  })),

  "the pipeline has the numbers of every stage, and they move": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await page.goto("/pipeline");
    const stage = (name) => page.locator(".r-stage", { has: page.locator("title", { hasText: new RegExp(`^${name}`) }) });
    const words = (name) => stage(name).locator("title").textContent();
    for (const name of ["Jobs store", "Workers", "Log", "Coordinator", "Events", "Dead letters"]) await stage(name).waitFor();
    await shows(page.locator(".gauge-words"), "Accepting everything");
    await server.reached(await server.enqueue("many"), "completed");
    await until(async () => /Events: 3,00\d taken/.test(await words("Events")), "three thousand lines written");
    await shows(page.locator("#streams table"), /\d/);
    await server.enqueue("hold");
    await until(async () => (await words("Workers")).startsWith("Workers: 1 running"), "one running");
    await stage("Coordinator").click();
    await until(async () => (await page.evaluate(() => document.activeElement.textContent)) === "Coordinator", "focus after the click");
  })),

  "the first load of the overview transfers at most 200 KB, all of it from this server": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.reached(await server.enqueue("good"), "completed");
    const session = await page.context().newCDPSession(page);
    const addresses = new Set(), first = new Set(); // what is asked for again while we are slow is no part of the first load
    let bytes = 0, requests = 0;
    await session.send("Network.enable");
    session.on("Network.requestWillBeSent", ({ request, requestId }) => addresses.has(request.url) || (addresses.add(request.url), first.add(requestId)));
    session.on("Network.loadingFinished", (e) => first.has(e.requestId) && ((bytes += e.encodedDataLength), requests++));
    await page.goto("/");
    await page.locator("canvas").first().waitFor();
    await until(() => page.evaluate(() => Boolean(globalThis.Chart)), "the charts");
    await page.waitForTimeout(500);
    console.log(`# first load: ${bytes} bytes in ${requests} answers`);
    ok(bytes > 50000 && bytes <= 200 * 1024, `${bytes} bytes were transferred`);
  })),

  "a server that becomes unavailable is reported, and is found again": async () => withServer({ listen: await keptAddress() }, (server) => withPage(server, { allow: [/ERR_|Failed to load|Failed to fetch|net::/] }, async (page) => {
    await server.enqueue("good");
    await page.goto("/types");
    await shows(page.locator(".side .connection"), "Live");
    await shows(page.locator("table"), "good");
    const listen = new URL(server.url).host;
    await server.stop();
    await shows(page.locator(".side .connection"), "Reconnecting");
    await page.locator(".away", { hasText: "The server is not responding" }).waitFor();
    is(await page.locator("tbody").evaluate((rows) => getComputedStyle(rows).opacity), "0.45", "how the numbers look");
    await page.locator("#nav a", { hasText: "Schedules" }).click(); // what is asked for now cannot be shown
    await shows(page.locator(".empty.bad"), "not responding");
    server.closeGate();
    await server.start({ listen });
    await shows(page.locator(".empty h2"), "No schedules yet"); // without a click
    await page.locator(".away").waitFor({ state: "hidden" });
    await server.enqueue("good");
    await shows(page.locator(".side .connection"), "Live");
    await page.locator("#nav a", { hasText: "Types" }).click();
    await shows(page.locator("table"), "good");
    // the tokens of the old server are gone; the page gets new ones by itself
    await page.getByRole("button", { name: "Pause good" }).click();
    await toasted(page, "good paused");
  })),
};

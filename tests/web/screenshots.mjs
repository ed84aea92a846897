// SPDX-License-Identifier: Apache-2.0
/*
 * The pictures of docs/screenshots, of a real server at work: SLUICE_WEB_SHOTS=docs/screenshots tests/web/run MODULES
 * SLUICE DLQ_PUT screenshots. Takes about four minutes, most of them for the charts to have a past.
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { closeAll, dlqPut, openBrowser, sluice, until, withPage, withServer } from "./harness.mjs";
import { smaller } from "./png.mjs";

const wanted = process.argv.slice(5);
const sh = String.raw;
// Some seconds of work with a word now and then; a part of them fails, in the same few ways.
const work = (least, lines, failures) => sh`r=$(od -An -N2 -tu2 /dev/urandom); r=$((r)); i=0
while [ $i -lt ${lines} ]; do i=$((i+1)); printf '\033[36mstep %s\033[0m of ${lines}: %s rows\n' $i $((r % 977 * i)); sleep 0.$((${least} + r % 3)); done
case $((r % 40)) in ${failures.map((f, i) => sh`${i}) printf '%s\n' '{"fail":"${f}"}' >&3; exit;;`).join(" ")} esac
echo '{"output":{"rows":'$((r % 977 * i))'}}' >&3`;

const TYPES = {
  "mail.send": work(1, 2, ["connect to smtp.internal:587: Connection timed out", "550 5.1.1 mailbox unavailable"]),
  "invoice.render": `${work(1, 3, ["template eu-vat.tex is not there"])}; echo '{"continue_with":{"type":"mail.send","input":{"to":"ada@example.com"}}}' >&3`,
  "thumbnail.make": work(2, 3, ["unsupported codec: av1 in a .png"]),
  "webhook.deliver": work(1, 1, ["HTTP 503 from https://hooks.example.com/v2/orders", "certificate has expired"]),
  "report.nightly": work(3, 6, []),
  "video.encode": sh`printf '\033[1mffmpeg\033[0m: input \033[4mlecture-17.mov\033[0m, 1920x1080, 48 min\n'; i=0
while [ $i -lt 400 ]; do i=$((i+1)); printf 'frame %6d  \033[32mfps %3d\033[0m  size %6d KiB  speed \033[36m%d.%dx\033[0m\n' $((i * 173)) $((60 + i % 7)) $((i * 412)) $((2 + i % 2)) $((i % 10))
[ $((i % 9)) -ne 0 ] || printf '\033[33mwarning\033[0m: %d duplicated frames near %02d:%02d\n' $((i % 4 + 1)) $((i / 60)) $((i % 60)) >&2
echo '{"progress":{"percent":'$((i / 4))',"frame":'$((i * 173))'}}' >&3; sleep 0.7; done`,
};

const pick = (list, i) => list[i % list.length];

async function feed(server, state) {
  for (let i = 0; !state.stop; i++) {
    const order = 4000 + i;
    const batch = [{ type: pick(["mail.send", "invoice.render", "webhook.deliver"], i), input: { order, customer: pick(["ada", "grace", "edsger", "barbara"], i), total: 1900 + ((i * 737) % 9000) }, ...(i % 4 ? {} : { key: `order-${order}` }) }];
    if (i % 3 === 0) batch.push({ type: "webhook.deliver", input: { order, event: "order.paid" } });
    await server.bulk(batch);
    if (i % 25 === 0) {
      const parts = await server.bulk(["cover", "page-1", "page-2"].map((image) => ({ type: "thumbnail.make", input: { image: `${image}.png`, width: 480 } })));
      await server.enqueue("report.nightly", { date: "2026-11-16", parts: 3 }, { after: parts });
    }
    await new Promise((r) => setTimeout(r, 130 + 90 * Math.sin(i / 25)));
  }
}

async function furnish(server) {
  const cron = (name, spec, type, input) => server.api("PUT", `/cron/${name}`, { spec, type, input });
  await cron("nightly", "30 2 * * *", "report.nightly", { kind: "full" });
  await cron("reminders", "*/15 * * * *", "mail.send", { template: "reminder" });
  const letter = (position, error) => execFileSync(dlqPut, [path.join(server.data, "dead"), "ship-nginx", String(position), "-1", "3", "1", String(Date.now() - 600000), String(Date.now() - 60000 * (position % 7)), "job_events", error], { input: "\x08\x02\x32\x05hello" });
  [1841, 1842, 2207].forEach((n) => letter(n, "the record is 17.2 MiB long, above the limit of 16 MiB"));
  // Fan-in for the picture of a chain: three parts, the video after them, and what waits for it.
  const parts = await server.bulk(["intro", "lecture", "credits"].map((image) => ({ type: "thumbnail.make", input: { image } })));
  const video = await server.enqueue("video.encode", { source: "lecture-17.mov", preset: "slow", audio: { codec: "opus", kbps: 128 } }, { after: parts, key: "lecture-17", priority: -1 });
  await server.bulk([{ type: "mail.send", input: { to: "students" }, after: [video] }, { type: "webhook.deliver", input: { event: "video.ready" }, after: [video] }]);
  await server.reached(video, "running");
  return video;
}

async function shoot(page, name) {
  const file = path.join(process.env.SLUICE_WEB_SHOTS, `${name}.png`);
  await page.evaluate(() => document.fonts.ready);
  const png = smaller(await page.screenshot());
  writeFileSync(file, png);
  console.log(`# ${name}.png: ${png.length} bytes`);
}

async function see(server, context, pages) {
  await withPage(server, { viewport: { width: 1280, height: 800 }, reducedMotion: "no-preference", ...context }, async (page) => {
    for (const [name, where, wait = 2000] of pages.filter(([n]) => !wanted.length || wanted.includes(n))) {
      await page.goto(where);
      await page.locator(".page h1").waitFor();
      await until(async () => (await page.locator(".skeleton").count()) === 0, "drawn");
      await page.waitForTimeout(wait);
      await shoot(page, name);
    }
  });
}

// A few snapshots of the server's own data as it grows, and a check of them.
async function backUp(server) {
  const repo = path.join(server.dir, "backups");
  const create = (...more) => execFileSync(sluice, ["backup", "create", path.join(server.dir, "lake"), "--data", server.data, "--repo", repo, "--host", "web1", ...more], { stdio: "ignore" });
  execFileSync(sluice, ["backup", "init", repo, "--plain"], { stdio: "ignore" });
  for (const tag of ["hourly", "hourly", "daily"]) {
    create("--tag", tag);
    await new Promise((r) => setTimeout(r, 3000));
  }
  await until(async () => (await server.api("GET", "/backups")).items.length === 3, "three snapshots");
  await server.api("POST", "/backups/check", { read_data: true });
  await until(async () => (await server.api("GET", "/backups/check")).state === "passed", "a check");
}

await openBrowser();
try {
  const types = Object.entries(TYPES).flatMap(([name, command]) => ["--type", `${name}=${command}`]);
  const exporting = (server) => ["--export", path.join(server.dir, "lake"), "--set", "export_events.partition_size=100"];
  const backups = (server) => ["--set", `backup.repo=${path.join(server.dir, "backups")}`, "--set", "backup.refresh_interval_ms=500"];
  await withServer({ types: [], flags: (server) => [...types, "--slots", "9", ...exporting(server), ...backups(server)] }, async (server) => {
    const state = { stop: false };
    const video = await furnish(server);
    const fed = feed(server, state).catch(() => {});
    const dark = { colorScheme: "dark" };
    await see(server, {}, [["overview", "/", 118000], ["pipeline", "/pipeline", 4000], ["job", `/jobs/${video}`, 3000], ["jobs", "/jobs"], ["failures", "/failures"]]);
    await see(server, dark, [["pipeline-dark", "/pipeline", 4000], ["job-dark", `/jobs/${video}`, 3000]]);
    await see(server, { viewport: { width: 390, height: 800 } }, [["phone", "/", 60000]]);
    await until(async () => (await server.api("GET", "/exports")).items.length, "a partition");
    await server.api("POST", "/exports/job_events/verify");
    await see(server, {}, [["export", "/exports/job_events"]]);
    await backUp(server);
    await see(server, {}, [["backups", "/backups"]]);
    state.stop = true;
    await fed;
  });
} finally {
  await closeAll();
}
process.exit(0);

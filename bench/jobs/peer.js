// SPDX-License-Identifier: Apache-2.0
// One peer of the job queue, driven line by line: bench/jobs/run writes "COMMAND ARGUMENT…" to stdin and reads one JSON
// line per command. Commands: bulk N | single N CONNECTIONS | work SLOTS | stop | pickup N
"use strict";
const readline = require("readline");

const url = process.env.BENCH_URL;
const now = () => Number(process.hrtime.bigint()) / 1e6;
const say = (o) => process.stdout.write(JSON.stringify(o) + "\n");
const median = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
let done = 0;
let onJob = () => {};

async function parallel(n, connections, one) {
  let next = 0;
  const lane = async () => {
    while (next < n) await one(next++);
  };
  await Promise.all(Array.from({ length: connections }, lane));
}

// graphile-worker with what its own benchmark uses: a local queue and batched completions.
async function graphile() {
  const { run, makeWorkerUtils, Logger } = require("graphile-worker");
  const { Pool } = require("pg");
  const quiet = new Logger(() => () => {});
  const pgPool = new Pool({ connectionString: url, max: 25 });
  pgPool.on("error", () => {});
  const utils = await makeWorkerUtils({ pgPool, logger: quiet });
  await utils.migrate();
  let runner;
  return {
    async bulk(n) {
      for (let i = 0; i < n; i += 5000) {
        const specs = [];
        for (let k = i; k < Math.min(n, i + 5000); k++) specs.push({ identifier: "noop", payload: { i: k } });
        await utils.addJobs(specs);
      }
    },
    single: (i) => utils.addJob("noop", { i }),
    async work(slots) {
      const worker = { concurrentJobs: slots };
      if (slots > 1) Object.assign(worker, { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 });
      runner = await run({
        pgPool, logger: quiet, noHandleSignals: true, preset: { worker },
        concurrency: slots, taskList: { noop: async (payload) => { done++; onJob(payload); } },
      });
    },
    async stop() {
      if (runner) await runner.stop();
      await utils.release();
      await pgPool.end();
    },
  };
}

async function pgboss() {
  const PgBoss = require("pg-boss");
  const boss = new PgBoss({ connectionString: url, max: 10, supervise: false, schedule: false });
  boss.on("error", () => {});
  await boss.start();
  await boss.createQueue("noop");
  return {
    async bulk(n) {
      for (let i = 0; i < n; i += 5000) {
        const jobs = [];
        for (let k = i; k < Math.min(n, i + 5000); k++) jobs.push({ name: "noop", data: { i: k } });
        await boss.insert(jobs);
      }
    },
    single: (i) => boss.send("noop", { i }),
    async work(slots) {
      const handler = async (jobs) => {
        done += jobs.length;
        for (const job of jobs) onJob(job.data);
      };
      // It polls at most twice a second with work(); fetching by hand in a loop is the fastest it offers.
      if (slots === 1) return boss.work("noop", { pollingIntervalSeconds: 0.5 }, handler);
      const lane = async () => {
        for (;;) {
          const jobs = await boss.fetch("noop", { batchSize: 1000 });
          if (!jobs.length) return;
          await handler(jobs);
          await boss.complete("noop", jobs.map((job) => job.id));
        }
      };
      Promise.all([lane(), lane()]).catch((e) => say({ error: String(e) }));
    },
    stop: () => boss.stop({ graceful: false }),
  };
}

async function main() {
  const peer = await { graphile, pgboss }[process.argv[2]]();
  say({ ready: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...args] = line.trim().split(" ");
    const [a, b] = args.map(Number);
    const started = now();
    if (command === "bulk") await peer.bulk(a);
    else if (command === "single") await parallel(a, b, peer.single);
    else if (command === "work") await peer.work(a);
    else if (command === "pickup") {
      const times = [];
      for (let i = 0; i < a; i++) {
        const at = now();
        const seen = new Promise((resolve) => (onJob = () => resolve(now())));
        await peer.single(i);
        times.push((await seen) - at);
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      say({ p50_ms: median(times) });
      continue;
    } else if (command === "count") {
      say({ done });
      continue;
    } else if (command === "stop") {
      say({ done });
      await peer.stop();
      process.exit(0);
    }
    say({ ms: now() - started });
  }
}
main().catch((e) => {
  say({ error: String(e && e.stack ? e.stack : e) });
  process.exit(1);
});

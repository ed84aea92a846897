// SPDX-License-Identifier: Apache-2.0
// Runs the cases (TAP). Arguments after the two programs are parts of the names of those to run.
import { closeAll, openBrowser } from "./harness.mjs";
import { cases as pages } from "./pages.mjs";
import { cases as lists } from "./lists.mjs";
import { cases as job } from "./job.mjs";
import { cases as actions } from "./actions.mjs";
import { cases as access } from "./access.mjs";
import { cases as safety } from "./safety.mjs";
import { cases as exports_ } from "./exports.mjs";
import { cases as backups } from "./backups.mjs";

const wanted = process.argv.slice(4);
const all = Object.entries({ ...pages, ...lists, ...job, ...actions, ...access, ...safety, ...exports_, ...backups });
const chosen = all.filter(([name]) => !wanted.length || wanted.some((w) => name.includes(w)));
const unknown = wanted.filter((w) => !all.some(([name]) => name.includes(w)));
let failed = 0;

if (unknown.length || !chosen.length) {
  console.log(`Bail out! no case ${unknown.join(", ") || "at all"}`);
  process.exit(64);
}
console.log(`1..${chosen.length}`);
await openBrowser();
for (const [i, [name, fn]] of chosen.entries()) {
  const start = Date.now();
  try {
    await fn();
    console.log(`ok ${i + 1} - ${name}`);
  } catch (e) {
    failed++;
    console.log(`not ok ${i + 1} - ${name}`);
    console.log(String(e.stack).split("\n").slice(0, 40).map((l) => `#   ${l}`).join("\n"));
  }
  if (process.env.SLUICE_WEB_TIMES) console.log(`# ${name}: ${Date.now() - start} ms`);
}
await closeAll();
process.exit(failed ? 1 : 0);

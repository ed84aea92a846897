// SPDX-License-Identifier: Apache-2.0
// Who works: every worker that reports to the store, what it runs, and until when its leases last.
import { h, fill, reconcile } from "../dom.js";
import { enc, get } from "../api.js";
import { ago, firstLine, num, plural, serverNow } from "../format.js";
import { card, cell, command, empty, fact, jobLink, link, numCell, pageHead, poll, skeleton, table, tag, workerName } from "../ui.js";

const SHOWN = 8; // jobs of one lease, and types of one worker, that are named
const LEASES = 200;

const runsOut = (iso) => h("span", { class: Date.parse(iso) < serverNow() ? "bad-text" : "" }, ago(iso));
const tags = (types, n = Infinity) => h("span", { class: "tag-list" }, (types || []).slice(0, n).map((t) => tag(t)), types.length > n && h("span", { class: "faint", title: types.slice(n).join(", ") }, `and ${num(types.length - n)} more`));
const busy = (w) => (w.slots === null ? num(w.jobs) : `${num(w.jobs)} of ${num(w.slots)}`);
const lastError = (w) => (w.error ? [h("span", { class: "bad-text wrap-any" }, firstLine(w.error)), " ", h("span", { class: "faint" }, ago(w.error_at))] : h("span", { class: "faint" }, "–"));

function jobsOf(lease) {
  const list = lease.jobs || [];
  return h("span", { class: "job-links" }, list.slice(0, SHOWN).map((j) => [jobLink(j), " "]), list.length > SHOWN && h("span", { class: "faint" }, `and ${num(list.length - SHOWN)} more`));
}

function workerRow(w) {
  return h("tr", {}, cell("Worker", link(`/workers/${enc(w.worker)}`, workerName(w.worker), { class: "strong" })),
    cell("Host", w.host ? h("span", { class: "wrap-any" }, w.host, " ", h("span", { class: "faint" }, `pid ${w.pid}`)) : h("span", { class: "faint" }, "does not report")),
    cell("Types", tags(w.types, SHOWN)), numCell("Running", busy(w)), cell("Up since", ago(w.started_at)), cell("Last seen", ago(w.seen_at)), cell("Last error", lastError(w)));
}

function leaseRow(l) {
  return h("tr", {}, cell("Jobs", jobsOf(l)), cell("Types", tags(l.types)), cell("Worker", link(`/workers/${enc(l.worker)}`, workerName(l.worker))), cell("Held for", ago(l.claimed_at, "age")), cell("Expires", runsOut(l.until)));
}

const COLUMNS = ["Worker", "Host", "Types", "Running", "Up since", "Last seen", "Last error"];

export async function workers({ root, signal }) {
  const list = table("Workers", COLUMNS.map((name) => ({ name, class: name === "Running" ? "num" : "" })), { class: "stack" });
  const leases = table("Leases", ["Jobs", "Types", "Worker", "Held for", "Expires"].map((name) => ({ name })), { class: "stack" });
  const more = h("p", { class: "hint pad", hidden: true }, `The first ${LEASES} leases are shown.`);
  const box = h("div", { class: "card" }, skeleton());
  const below = card("Leases", {}, leases.node, more);
  below.hidden = true;
  fill(root, pageHead("Workers", { text: "Workers report to the store every 30 s. If one stops without notice, it leaves the list after 90 s, and other workers take over its jobs when their leases expire." }), box, below);
  async function load() {
    const [{ items }, held] = await Promise.all([get("/workers", { signal }), get("/leases", { signal, query: { limit: LEASES } })]);
    below.hidden = !held.items.length;
    if (!items.length) return fill(box, empty("workers", "No worker is running", "Jobs wait until a worker serves their type. Start one:", command("sluice worker --type hello='echo hello' --slots 4")));
    reconcile(list.body, items, (w) => w.worker, workerRow);
    reconcile(leases.body, held.items.slice(0, LEASES), (l) => l.claim, leaseRow);
    more.hidden = held.items.length <= LEASES && !held.next_cursor;
    if (list.node.parentNode !== box) fill(box, list.node);
  }
  await load();
  poll(signal, 1500, load);
}

// ---- one worker ----

function about(w) {
  return h("dl", { class: "facts" },
    w.host && fact("Host", h("span", { class: "wrap-any" }, w.host)),
    w.pid !== null && fact("Process", `pid ${w.pid}`),
    w.version && fact("Version", w.version),
    fact("Running", w.slots === null ? plural(w.jobs, "job") : `${num(w.jobs)} of ${plural(w.slots, "slot")}`),
    w.started_at && fact("Up since", ago(w.started_at)),
    fact("Last seen", w.seen_at ? ago(w.seen_at) : "does not report"),
    w.until && fact("First lease expires", runsOut(w.until)));
}

export async function worker({ root, signal, params }) {
  const name = params.worker;
  const running = table("Running jobs", [{ name: "Job" }, { name: "Type" }, { name: "Attempt", class: "num" }, { name: "Running for" }, { name: "Lease expires" }], { class: "stack" });
  const facts = h("div"), types = h("div"), jobs = h("div"), gone = h("p", { class: "banner warn", hidden: true }, "This worker has stopped, or it has not reported for 90 s."), error = h("div");
  fill(root, pageHead(h("span", { class: "mono wrap-any" }, name), { crumbs: h("nav", { class: "crumbs", "aria-label": "Path" }, link("/workers", "Workers")) }),
    gone, facts, error, card("Types", {}, types), card("Running jobs", {}, jobs));
  async function load() {
    const w = await get(`/workers/${enc(name)}`, { signal });
    gone.hidden = true;
    fill(facts, about(w));
    fill(error, w.error ? card("Last error", {}, h("div", { class: "pad" }, h("pre", { class: "error-text" }, w.error), h("p", { class: "faint" }, ago(w.error_at)))) : null);
    fill(types, h("div", { class: "pad" }, tags(w.types)));
    reconcile(running.body, w.running, (j) => `${j.id} ${j.attempt}`, (j) => h("tr", {}, cell("Job", jobLink(j.id)), cell("Type", tag(j.type)), numCell("Attempt", num(j.attempt)), cell("Running for", ago(j.started_at, "age")), cell("Lease expires", runsOut(j.leased_until))));
    if (!w.running.length) fill(jobs, h("p", { class: "hint pad" }, "No job is running."));
    else if (running.node.parentNode !== jobs) fill(jobs, running.node);
  }
  await load();
  // One that has stopped stays on the page as it was last seen.
  poll(signal, 1500, () => load().catch((e) => (gone.hidden = e.status !== 404)));
}

// SPDX-License-Identifier: Apache-2.0
// Who works, on what, and until when their leases run.
import { h, fill, reconcile } from "../dom.js";
import { get } from "../api.js";
import { ago, num, serverNow } from "../format.js";
import { card, cell, command, empty, jobLink, numCell, pageHead, poll, skeleton, table, tag, workerName } from "../ui.js";

const SHOWN = 8; // jobs of one lease that are named
const LEASES = 200;

const runsOut = (iso) => h("span", { class: Date.parse(iso) < serverNow() ? "bad-text" : "" }, ago(iso));
const tags = (types) => h("span", { class: "tag-list" }, (types || []).map((t) => tag(t)));

function jobsOf(lease) {
  const list = lease.jobs || [];
  return h("span", { class: "job-links" }, list.slice(0, SHOWN).map((j) => [jobLink(typeof j === "object" ? j.id : j), " "]), list.length > SHOWN && h("span", { class: "faint" }, `and ${num(list.length - SHOWN)} more`));
}

function workerRow(w) {
  return h("tr", {}, cell("Worker", h("span", { class: "strong mono wrap-any" }, w.worker)), cell("Types", tags(w.types)), numCell("Leases", num(w.leases)), numCell("Jobs", num(w.jobs)), cell("Oldest claim", ago(w.oldest_claim_at)), cell("First expires", runsOut(w.until)));
}

function leaseRow(l) {
  return h("tr", {}, cell("Jobs", jobsOf(l)), cell("Types", tags(l.types)), cell("Worker", workerName(l.worker)), cell("Held for", ago(l.claimed_at, "age")), cell("Expires", runsOut(l.until)));
}

export async function workers({ root, signal }) {
  const list = table("Workers", ["Worker", "Types", "Leases", "Jobs", "Oldest claim", "First expires"].map((name) => ({ name, class: ["Jobs", "Leases"].includes(name) ? "num" : "" })), { class: "stack" });
  const leases = table("Leases", ["Jobs", "Types", "Worker", "Held for", "Expires"].map((name) => ({ name })), { class: "stack" });
  const more = h("p", { class: "hint pad", hidden: true }, `The first ${LEASES} leases are shown.`);
  const box = h("div", { class: "card" }, skeleton());
  const below = card("Leases", {}, leases.node, more);
  below.hidden = true;
  fill(root, pageHead("Workers", { text: "A worker is listed while it holds jobs. If it does not renew its lease, the lease expires and another worker takes over the jobs." }), box, below);
  async function load() {
    const [{ items }, held] = await Promise.all([get("/workers", { signal }), get("/leases", { signal, query: { limit: LEASES } })]);
    below.hidden = !items.length;
    if (!items.length) return fill(box, empty("workers", "No worker holds a job", "No job is due, or no worker is running. Start one:", command("sluice worker --type hello='echo hello' --slots 4")));
    reconcile(list.body, items, (w) => w.worker, workerRow);
    reconcile(leases.body, held.items.slice(0, LEASES), (l) => l.claim || `${l.worker} ${l.claimed_at} ${(l.jobs || []).join()}`, leaseRow);
    more.hidden = held.items.length <= LEASES && !held.next_cursor;
    if (list.node.parentNode !== box) fill(box, list.node);
  }
  await load();
  poll(signal, 1500, load);
}

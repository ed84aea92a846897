// SPDX-License-Identifier: Apache-2.0
// Who works, on what, and until when their leases run.
import { h, fill, reconcile } from "../dom.js";
import { get } from "../api.js";
import { ago, num, plural, serverNow } from "../format.js";
import { cell, command, empty, jobLink, numCell, pageHead, poll, skeleton, table, tag } from "../ui.js";

const SHOWN = 12;

function until(iso) {
  const left = Date.parse(iso) - serverNow();
  return h("span", { class: left < 0 ? "bad-text" : "" }, ago(iso));
}

function jobsOf(list) {
  const links = list.slice(0, SHOWN).map((j) => [jobLink(typeof j === "object" ? j.id : j), " "]);
  return h("span", { class: "job-links" }, links, list.length > SHOWN && h("span", { class: "faint" }, `and ${num(list.length - SHOWN)} more`));
}

function leasesOf(leases) {
  const rows = leases.map((l) => h("li", {}, h("div", { class: "grow" }, jobsOf(l.jobs || [l.job_id].filter(Boolean)), h("p", { class: "faint" }, (l.types || []).join(", "))),
    h("p", { class: "faint end" }, "held ", ago(l.claimed_at || l.started_at, "age"), " · runs out ", until(l.until))));
  return h("ul", { class: "rows inset" }, rows);
}

function row({ worker: w, leases }, opened) {
  const details = h("details", { open: opened.has(w.worker) }, h("summary", {}, plural(w.leases, "lease")), leasesOf(leases));
  details.addEventListener("toggle", () => opened[details.open ? "add" : "delete"](w.worker));
  return h("tr", {},
    cell("Worker", h("span", { class: "strong mono" }, w.worker)),
    cell("Types", w.types.map((t) => [tag(t), " "])),
    numCell("Jobs", num(w.jobs)),
    cell("Oldest claim", ago(w.oldest_claim_at)),
    cell("First lease runs out", until(w.until)),
    h("td", { class: "leases", data: { name: "Leases" } }, details));
}

export async function workers({ root, signal }) {
  const { node, body } = table("Workers", ["Worker", "Types", "Jobs", "Oldest claim", "First lease runs out", "Leases"].map((name) => ({ name, class: name === "Jobs" ? "num" : "" })), { class: "stack" });
  const box = h("div", { class: "card" }, skeleton());
  const opened = new Set();
  fill(root, pageHead("Workers", { text: "A worker shows up while it holds jobs. A lease that is not renewed runs out, and another worker takes the jobs over." }), box);
  async function load() {
    const [{ items }, leases] = await Promise.all([get("/workers", { signal }), get("/leases", { signal, query: { limit: 500 } })]);
    if (!items.length) return fill(box, empty("workers", "No worker holds a job", "Either nothing is due, or nobody is there to run it. Start a worker:", command("sluice worker --type hello='echo hello' --slots 4")));
    const all = items.map((worker) => ({ worker, leases: leases.items.filter((l) => l.worker === worker.worker) }));
    reconcile(body, all, (x) => x.worker.worker, (x) => row(x, opened));
    if (node.parentNode !== box) fill(box, node);
  }
  await load();
  poll(signal, 1500, load);
}

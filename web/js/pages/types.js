// SPDX-License-Identifier: Apache-2.0
// What kinds of jobs there are, how much of each waits, and the switch that holds a kind back.
import { h, fill, reconcile } from "../dom.js";
import { enc, get, post } from "../api.js";
import { ago, num, plural } from "../format.js";
import { mayWrite } from "../session.js";
import { button, cell, empty, link, numCell, pageHead, poll, problem, skeleton, table, tag, toast } from "../ui.js";
import { firstJob } from "../teach.js";

const count = (type, status, n, cls = "") => (n ? link(`/jobs?type=${enc(type)}&status=${status}`, num(n), { class: `quiet ${cls}` }) : h("span", { class: "faint" }, "0"));

const waits = (t) => t.pending + t.blocked > 0;
const unserved = (t) => !t.served && !t.paused && waits(t) && h("span", { class: "sr-only" }, " No worker serves this type.");

function row(t, change) {
  const action = mayWrite() && button(t.paused ? "Resume" : "Pause", { icon: t.paused ? "play" : "pause", small: true, kind: t.paused ? "primary" : "", "aria-label": `${t.paused ? "Resume" : "Pause"} ${t.type}`, onclick: () => change(t) });
  return h("tr", {},
    cell("Type", link(`/jobs?type=${enc(t.type)}`, t.type, { class: "strong", title: t.type })),
    cell("State", t.paused ? tag("paused", "warn") : t.served ? tag("open", "good") : tag("no worker", waits(t) ? "warn" : ""), unserved(t)),
    numCell("Ready", count(t.type, "ready", t.ready)),
    numCell("Oldest due", t.ready ? ago(t.oldest_at, "age") : "–"),
    numCell("Scheduled", count(t.type, "scheduled", t.scheduled)),
    numCell("Retrying", count(t.type, "retrying", t.retrying, "warn-text")),
    numCell("Blocked", count(t.type, "blocked", t.blocked)),
    numCell("Running", count(t.type, "running", t.running)),
    numCell("Completed", count(t.type, "completed", t.completed)),
    numCell("Failed", count(t.type, "failed", t.failed, "bad-text")),
    h("td", { class: "end" }, action));
}

const COLUMNS = ["Type", "State", "Ready", "Oldest due", "Scheduled", "Retrying", "Blocked", "Running", "Completed", "Failed"];

export async function types({ root, signal }) {
  const { node, body } = table("Types", [...COLUMNS.map((name, i) => ({ name, class: i > 1 ? "num" : "" })), { name: "Action", hidden: true }], { class: "stack" });
  const box = h("div", { class: "card" }, skeleton());
  fill(root, pageHead("Types", { text: "A paused type starts no jobs; running jobs finish." }), box);

  async function change(t) {
    const what = t.paused ? "resume" : "pause";
    try {
      await post(`/types/${enc(t.type)}/${what}`);
      toast(t.paused ? `${t.type} resumed` : `${t.type} paused; ${plural(t.running, "running job")} will finish`);
      await load();
    } catch (e) {
      problem(e);
    }
  }
  async function load() {
    const { items } = await get("/types", { signal });
    if (!items.length) return fill(box, empty("types", "No types yet", "A type appears with its first job.", firstJob()));
    reconcile(body, items, (t) => t.type, (t) => row(t, change));
    if (node.parentNode !== box) fill(box, node);
  }
  await load();
  poll(signal, 2000, load);
}

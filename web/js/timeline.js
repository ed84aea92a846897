// SPDX-License-Identifier: Apache-2.0
// How long a job waited and how long it ran, attempt by attempt, on one line.
import { h, setText } from "./dom.js";
import { clock, duration, serverNow } from "./format.js";

const time = (iso) => (iso ? Date.parse(iso) : null);

// [{kind: "wait"|"run", from, to, attempt, outcome, open}]
export function spans(job, now) {
  const out = [];
  let at = time(job.created_at);
  for (const a of job.attempts || []) {
    const from = time(a.started_at);
    if (from === null) continue;
    if (from > at) out.push({ kind: "wait", from: at, to: from });
    const open = !a.ended_at && job.status === "running";
    const to = time(a.ended_at) ?? (open ? now : from);
    out.push({ kind: "run", from, to: Math.max(to, from), attempt: a.attempt, outcome: a.outcome, open });
    at = Math.max(to, from);
  }
  const known = out.some((x) => x.kind === "run");
  if (!known && job.started_at) {
    const from = time(job.started_at);
    if (from > at) out.push({ kind: "wait", from: at, to: from });
    at = time(job.ended_at) ?? (job.status === "running" ? now : from);
    out.push({ kind: "run", from, to: at, attempt: job.attempt, outcome: job.status, open: job.status === "running" });
  }
  if (["pending", "blocked"].includes(job.status) && now > at) out.push({ kind: "wait", from: at, to: now, open: true });
  return out;
}

const sum = (list, kind) => list.filter((x) => x.kind === kind).reduce((n, x) => n + x.to - x.from, 0);

function describe(x) {
  const length = duration(x.to - x.from);
  return x.kind === "wait" ? `waited ${length}` : `attempt ${x.attempt ?? ""} ran ${length}${x.open ? " so far" : `, ${x.outcome}`}`;
}

// A node that keeps up with a running job until update is called with another state of it.
export function timeline() {
  const bar = h("div", { class: "tl-bar", role: "img" });
  const waited = h("b", {}), ran = h("b", {});
  const start = h("span", {}), end = h("span", {});
  const node = h("div", { class: "timeline" },
    h("p", { class: "tl-sums" }, h("span", {}, h("i", { class: "swatch s-wait", "aria-hidden": "true" }), "waited ", waited), h("span", {}, h("i", { class: "swatch s-run", "aria-hidden": "true" }), "ran ", ran)),
    bar, h("p", { class: "tl-ends faint" }, start, end));
  let job = null;

  function draw() {
    if (!job) return;
    const list = spans(job, serverNow());
    const from = time(job.created_at);
    const to = list.length ? list.at(-1).to : from;
    const total = Math.max(1, to - from);
    setText(waited, duration(sum(list, "wait")));
    setText(ran, list.some((x) => x.kind === "run") ? duration(sum(list, "run")) : "not yet");
    setText(start, clock(job.created_at));
    setText(end, list.length && !list.at(-1).open ? clock(new Date(to).toISOString()) : list.length ? "now" : "");
    bar.setAttribute("aria-label", list.map(describe).join("; ") || "has not waited yet");
    while (bar.children.length > list.length) bar.lastElementChild.remove();
    while (bar.children.length < list.length) bar.append(h("span"));
    list.forEach((x, i) => {
      const part = bar.children[i];
      part.className = `tl-part ${x.kind} ${x.kind === "run" ? x.outcome : ""}${x.open ? " open" : ""}`;
      part.title = describe(x);
      part.style.setProperty("flex-grow", String(Math.max(0.006, (x.to - x.from) / total)));
    });
  }

  return { node, show(next) {
    job = next;
    draw();
  }, tick: () => job && ["running", "pending", "blocked"].includes(job.status) && draw() };
}

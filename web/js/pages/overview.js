// SPDX-License-Identifier: Apache-2.0
// Is it well? Rates, depth, age, failures, pickup and workers, as they change.
import { h, fill, reconcile, setText } from "../dom.js";
import { get } from "../api.js";
import { ago, compact, duration, firstLine, num, plural, rate, serverNow } from "../format.js";
import { chart, rangeSwitch } from "../charts.js";
import { icon } from "../icons.js";
import { latest, onStats } from "../live.js";
import { card, cell, empty, link, numCell, pageHead, poll, skeleton, table, tag } from "../ui.js";
import { firstJob } from "../teach.js";

function tile(label, { href, icon: name }) {
  const value = h("span", { class: "tile-value" }, "–");
  const note = h("span", { class: "tile-note" }, "\u00a0");
  const node = h(href ? "a" : "div", { class: "tile", href }, h("span", { class: "tile-label" }, icon(name), label), value, note);
  return { node, set(v, n, kind = "") {
    setText(value, v);
    setText(note, n || "\u00a0");
    node.dataset.kind = kind;
  } };
}

const oldestMs = (stats) => (stats.oldest_due_at ? Math.max(0, serverNow() - Date.parse(stats.oldest_due_at)) : 0);

function tiles(signal) {
  const t = {
    depth: tile("Waiting", { href: "/jobs?status=pending", icon: "jobs" }),
    running: tile("Running", { href: "/jobs?status=running", icon: "play" }),
    oldest: tile("Oldest due", { href: "/jobs?status=pending&order=asc", icon: "cron" }),
    done: tile("Completed", { href: "/jobs?status=completed", icon: "check" }),
    failed: tile("Failed", { href: "/failures", icon: "failures" }),
    pickup: tile("Pickup", { icon: "bolt" }),
  };
  onStats((stats) => {
    const { totals, rates, pickup_ms: pickup } = stats;
    const oldest = oldestMs(stats);
    t.depth.set(compact(totals.pending), totals.blocked ? `${compact(totals.blocked)} more blocked` : "none blocked");
    t.running.set(compact(totals.running), plural(stats.workers ?? 0, "worker"));
    t.oldest.set(oldest ? duration(oldest) : "–", stats.oldest_due_at ? "waits for a worker" : "nothing is due", oldest > 60000 ? "warn" : "");
    t.done.set(`${rate(rates.completed)}/s`, `${compact(totals.completed)} in all`);
    t.failed.set(compact(totals.failed), `${rate(rates.failed)}/s now`, totals.failed ? "bad" : "");
    t.pickup.set(pickup && pickup.p50 !== null ? duration(pickup.p50) : "–", pickup && pickup.p99 !== null ? `p99 ${duration(pickup.p99)}` : "no recent starts");
  }, signal);
  return h("div", { class: "tiles" }, Object.values(t).map((x) => x.node));
}

function backlog(signal) {
  const { node, body } = table("Types with work", [{ name: "Type" }, { name: "Ready", class: "num" }, { name: "Running", class: "num" }, { name: "Failed", class: "num" }, { name: "Oldest", class: "num" }]);
  const box = h("div", {}, skeleton(4));
  const load = async () => {
    const { items } = await get("/types", { signal });
    const busiest = items.sort((a, b) => b.ready - a.ready || b.running - a.running || b.failed - a.failed).slice(0, 6);
    reconcile(body, busiest, (x) => x.type, (x) => h("tr", {},
      cell("Type", link(`/jobs?type=${encodeURIComponent(x.type)}`, x.type, { class: "strong" }), x.paused ? [" ", tag("paused", "warn")] : !x.served && x.pending > 0 && [" ", tag("no worker serves this type", "warn")]),
      numCell("Ready", num(x.ready)), numCell("Running", num(x.running)), numCell("Failed", x.failed ? h("span", { class: "bad-text" }, num(x.failed)) : "0"),
      numCell("Oldest", x.ready ? ago(x.oldest_at, "age") : "–")));
    if (node.parentNode !== box) fill(box, node);
  };
  load().catch(() => {});
  poll(signal, 2000, load);
  return card("Busiest types", { actions: link("/types", "All types") }, box);
}

function topFailures(signal) {
  const list = h("ul", { class: "rows" });
  const box = h("div", {}, skeleton(4));
  const load = async () => {
    const { items } = await get("/errors", { signal, query: { limit: 5 } });
    const top = items.slice(0, 5);
    reconcile(list, top, (x) => `${x.type}\n${x.error}`, (x) => h("li", {},
      h("span", { class: "count bad" }, compact(x.count)),
      h("div", { class: "grow" }, link(`/jobs/${x.sample_id}`, firstLine(x.error) || "(no message)", { class: "clip strong" }), h("p", { class: "faint" }, x.type, " · ", ago(x.last_at)))));
    if (!top.length) fill(box, h("p", { class: "all-good" }, icon("check"), "Nothing has failed."));
    else if (list.parentNode !== box) fill(box, list);
  };
  load().catch(() => {});
  poll(signal, 3000, load);
  return card("Most frequent failures", { actions: link("/failures", "All failures") }, box);
}

// How long the store keeps what, and what it has deleted.
function retention(signal) {
  const line = h("p", { class: "faint" });
  onStats(({ retention: r }) => {
    if (!r) return;
    const keeps = [["completed", r.completed_ms], ["failed", r.failed_ms], ["events", r.events_ms], ["shipped lines", r.lines_ms]]
      .map(([what, ms]) => `${what} ${ms === null ? "forever" : duration(ms)}`).join(", ");
    const deleted = r.deleted_at ? `deleted ${plural(r.deleted_chains, "chain")} and ${plural(r.deleted_events, "event")} so far` : "nothing deleted yet";
    setText(line, `Retention: ${keeps}; ${deleted}.`);
  }, signal);
  return line;
}

const anything = (stats) => Object.values(stats.totals).some((n) => n > 0);

function full(view) {
  const { root, signal } = view;
  const perSecond = (n) => `${rate(n)}/s`;
  const jobs = (n) => compact(n);
  const line = (key, label, colour, filled) => ({ key, label, colour, fill: filled });
  fill(root, pageHead("Overview", { actions: rangeSwitch(signal) }), tiles(signal),
    h("div", { class: "grid two" },
      card("Throughput", {}, chart({ label: "Jobs per second", show: perSecond, signal, series: [line("completed", "completed", "completed", true), line("enqueued", "enqueued", "running")] })),
      card("Depth", {}, chart({ label: "Jobs waiting and running", show: jobs, signal, series: [line("due", "waiting", "pending", true), line("running", "running", "running")] }))),
    h("div", { class: "grid two" },
      card("Failures", {}, chart({ label: "Failed jobs per second", show: perSecond, least: 1, signal, series: [line("failed", "failed", "failed", true)] })),
      card("Pickup", {}, chart({ label: "Time from due to started", show: duration, least: 100, signal, series: [line("pickup_p50_ms", "median", "running", true), line("pickup_p99_ms", "p99", "pending")] }))),
    h("div", { class: "grid two" }, backlog(signal), topFailures(signal)), retention(signal));
}

function teach({ root }) {
  fill(root, pageHead("Overview"), empty("drop", "No jobs yet", "Jobs appear here as soon as they are enqueued. Start one:", firstJob()));
}

// One drawing at a time: the one before stops following the numbers.
function drawer(view) {
  let drawn = null;
  let control = new AbortController();
  view.signal.addEventListener("abort", () => control.abort());
  return (fn) => {
    if (drawn === fn || view.signal.aborted) return;
    control.abort();
    control = new AbortController();
    drawn = fn;
    fn({ ...view, signal: control.signal });
  };
}

export async function overview(view) {
  const { root, signal } = view;
  const draw = drawer(view);
  fill(root, pageHead("Overview"), skeleton(8));
  // Only an empty store looks different. One that is slow to count most likely has something in it, until it has counted.
  const slow = setTimeout(draw, 700, full);
  try {
    const stats = latest() || (await get("/stats", { signal }));
    draw(anything(stats) ? full : teach);
  } finally {
    clearTimeout(slow);
  }
  onStats((now) => anything(now) && draw(full), signal);
}

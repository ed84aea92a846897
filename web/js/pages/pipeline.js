// SPDX-License-Identifier: Apache-2.0
// The whole flow with its numbers: where it stands, and why.
import { h, fill, morph, reconcile } from "../dom.js";
import { get } from "../api.js";
import { ago, bytes, compact, duration, firstLine, num, rate, serverNow } from "../format.js";
import { icon } from "../icons.js";
import { onStats, latest } from "../live.js";
import { drawPipeline } from "../pipelinedraw.js";
import { mayWrite } from "../session.js";
import { button, card, cell, empty, link, numCell, pageHead, poll, skeleton, table, tag } from "../ui.js";
import { redriveAll } from "./deadletters.js";

const first = (...values) => values.find((v) => v !== undefined && v !== null);

// What the stages say, under one set of names.
function gather(answers) {
  const stages = Object.fromEntries((answers.pipeline?.stages || []).map((x) => [x.name, x]));
  const c = { ...(stages.coordinator || {}), ...(answers.coordinator || {}) };
  const bp = answers.backpressure || {};
  return {
    jobs: stages.jobs || {}, workers: stages.workers || {}, log: stages.log || {}, events: stages.events || {},
    c: { ...c, depth: first(bp.depth, c.depth, c.queue_size, 0), capacity: first(bp.capacity, c.capacity, 0), high: first(bp.high, c.high), low: first(bp.low, c.low), breaker: first(bp.breaker, c.breaker, "closed"), state: first(bp.state, "ok") },
    streams: answers.streams?.items || [], deadN: first(stages.coordinator?.dead_letters_waiting, answers.deadLetters?.items.length, 0), deadMore: Boolean(answers.deadLetters?.next_cursor), deadLetters: answers.deadLetters?.items || [],
  };
}

// A second's worth, from two readings of a counter.
function meter() {
  let last = null;
  return (n) => {
    const t = performance.now();
    const was = last;
    if (!was || t - was.t > 900) last = { t, n, rate: was && n >= was.n ? ((n - was.n) * 1000) / (t - was.t) : was ? was.rate : null };
    return last.rate;
  };
}

function model(g, stats, meters) {
  const totals = stats ? stats.totals : {}, rates = stats ? stats.rates : {};
  const lag = g.streams.reduce((n, x) => n + (x.lag || 0), first(g.streams.length ? 0 : g.log.lag, 0));
  const taken = first(g.log.taken, 0); // records, of all streams; the coordinator counts batches of them
  const batches = first(meters.accepted(first(g.c.accepted, 0)), 0);
  const events = first(meters.taken(taken), 0);
  const open = g.c.breaker !== "closed";
  return {
    stages: [
      { name: "Jobs store", href: "/jobs?status=pending", big: compact(first(totals.pending, 0)), unit: "waiting", lines: [["enqueued", `${rate(first(rates.enqueued, g.jobs.enqueued_per_s, 0))}/s`], ["due for", stats && stats.oldest_due_at ? duration(Math.max(0, serverNow() - Date.parse(stats.oldest_due_at))) : "–"], ["blocked", compact(first(totals.blocked, 0))]] },
      { name: "Workers", href: "/workers", big: compact(first(totals.running, 0)), unit: "running", lines: [["workers", compact(first(stats && stats.workers, 0))], ["pickup p50", stats && stats.pickup_ms && stats.pickup_ms.p50 !== null ? duration(stats.pickup_ms.p50) : "–"], ["failed", `${rate(first(rates.failed, 0))}/s`, rates.failed ? "bad" : ""]] },
      { name: "Log", href: "/pipeline#streams", big: compact(lag), unit: "to send", lines: [["streams", compact(g.streams.length)], ["largest lag", g.streams.length ? compact(Math.max(0, ...g.streams.map((x) => x.lag || 0))) : "–"], ["last line", newest(g.streams)]] },
      { name: "Coordinator", href: "/pipeline#coordinator", big: compact(g.c.depth), unit: `of ${compact(g.c.capacity)}`, kind: open ? "bad" : g.c.state !== "ok" ? "warn" : "", basin: { ...g.c }, lines: [["breaker", g.c.breaker, open ? "bad" : "good"], ["concurrency", compact(first(g.c.concurrency, 0))], ["retrying", compact(first(g.c.retrying, 0))]] },
      { name: "Events", href: "/jobs", big: compact(taken), unit: "taken", lines: [["a second", rate(events)], ["batches", compact(first(g.c.written, 0))], ["refused", compact(first(g.c.refused, g.c.dead_letters, 0)), first(g.c.refused, g.c.dead_letters) ? "bad" : ""]] },
    ],
    flows: [
      { n: rates.started, text: `${rate(first(rates.started, 0))}/s`, name: "started" },
      { n: events, text: "", name: "lines" }, // what is written to logs elsewhere is not known before it arrives
      { n: batches, text: `${rate(batches)}/s`, name: "batches" },
      { n: events, text: `${rate(events)}/s`, name: "events" },
    ],
    dead: { n: g.deadN, text: compact(g.deadN) + (g.deadMore ? "+" : "") },
    completed: `${rate(first(rates.completed, 0))}/s completed`,
  };
}

function newest(streams) {
  const last = streams.map((x) => x.last_at).filter(Boolean).sort().at(-1);
  return last ? `${duration(Math.max(0, serverNow() - Date.parse(last)))} ago` : "–";
}

// ---- the parts below the drawing ----

function streamRow(x) {
  return h("tr", {}, cell("Stream", h("span", { class: "mono strong" }, x.stream)), numCell("Incarnation", h("span", { class: "mono" }, String(x.incarnation))), numCell("Delivered up to", num(x.mark)),
    numCell("Lag", x.lag === undefined || x.lag === null ? h("span", { class: "faint" }, "unknown") : x.lag > 0 ? h("span", { class: "strong" }, num(x.lag)) : "0"), cell("Last line", ago(x.last_at)));
}

function gauge(g) {
  const part = (n) => `${Math.min(100, (100 * n) / (g.c.capacity || 1))}%`;
  const mark = (n, name) => (n ? [h("span", { class: `gauge-mark ${name}`, style: { left: part(n) } }), h("span", { class: "gauge-name", style: { left: part(n) } }, `${name} ${compact(n)}`)] : null);
  return h("div", { class: "gauge" }, h("div", { class: "gauge-track", role: "meter", "aria-label": "Depth of the queue", "aria-valuemin": "0", "aria-valuemax": String(g.c.capacity), "aria-valuenow": String(g.c.depth) },
    h("span", { class: `gauge-fill ${g.c.state}`, style: { width: part(g.c.depth) } }), mark(g.c.low, "low"), mark(g.c.high, "high")));
}

const WORDS = { ok: "Accepting everything", high: "Above the high watermark: senders slow down", refusing: "Refusing: senders wait" };

function coordinatorCard(g) {
  const fact = (name, value) => h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, value));
  const e = g.c.last_error;
  return [h("p", { class: "gauge-words" }, tag(g.c.state, { ok: "good", high: "warn", refusing: "bad" }[g.c.state] || ""), " ", WORDS[g.c.state] || ""), gauge(g),
    h("dl", { class: "facts tight" }, fact("Breaker", tag(g.c.breaker, g.c.breaker === "closed" ? "good" : "bad")), fact("Concurrency", num(g.c.concurrency)), fact("In flight", num(g.c.in_flight)), fact("Waiting to retry", num(g.c.retrying)),
      fact("Oldest", g.c.oldest_age_ms ? duration(g.c.oldest_age_ms) : "–"), fact("Memory", bytes(g.c.queue_bytes)), fact("Accepted", num(g.c.accepted)), fact("Written", num(g.c.written)), fact("Failed writes", num(g.c.failures))),
    e && (e.message || e.msg || typeof e === "string") && h("p", { class: "banner warn" }, "Last error: ", typeof e === "string" ? e : e.message || e.msg)];
}

function deadCard(g, load) {
  if (!g.deadN) return h("p", { class: "all-good" }, icon("check"), "Nothing was refused.");
  return [h("ul", { class: "rows" }, g.deadLetters.slice(0, 4).map((l) => h("li", {}, h("div", { class: "grow" }, link(`/dead-letters/${l.id}`, firstLine(l.error), { class: "clip strong" }), h("p", { class: "faint clip" }, l.source, l.position ? `@${l.position}` : ""))))),
    h("div", { class: "actions card-foot" }, mayWrite() && button("Redrive all", { icon: "retry", small: true, kind: "primary", onclick: () => redriveAll(load) }), link("/dead-letters", `All ${num(g.deadN)}${g.deadMore ? "+" : ""}`, { class: "btn small" }))];
}

export async function pipeline({ root, signal }) {
  const drawing = h("div", { class: "pipeline-box" }, skeleton(6));
  const streams = table("Streams", [{ name: "Stream" }, { name: "Incarnation", class: "num" }, { name: "Delivered up to", class: "num" }, { name: "Lag", class: "num" }, { name: "Last line" }], { class: "stack" });
  const streamBox = h("div", {}, skeleton(3));
  const coordinator = h("div", { class: "pad" }, skeleton(4));
  const dead = h("div", {}, skeleton(2));
  const coordinatorPart = card("Coordinator", {}, coordinator), streamsPart = card("Streams of the log", {}, streamBox);
  for (const part of [coordinatorPart, streamsPart]) part.querySelector("h2").tabIndex = -1;
  coordinatorPart.id = "coordinator";
  streamsPart.id = "streams";
  fill(root, pageHead("Pipeline", { text: "From a job to its lines in the database. Every number is live." }), h("section", { class: "card pipeline-card", "aria-label": "The flow" }, drawing),
    h("div", { class: "grid two" }, coordinatorPart, card("Dead letters", {}, dead)), streamsPart);
  // Stages that are described further down link there.
  drawing.addEventListener("click", (e) => {
    const href = e.target.closest("a")?.getAttribute("href") || "";
    if (!href.startsWith("/pipeline#")) return;
    e.preventDefault();
    const part = document.getElementById(href.slice(href.indexOf("#") + 1));
    part.scrollIntoView({ block: "start" });
    part.querySelector("h2").focus();
  });
  const meters = { accepted: meter(), taken: meter() };
  const answers = {};
  let known = null;

  function draw() {
    if (!known || signal.aborted) return;
    const width = Math.floor(drawing.clientWidth);
    if (width < 100) return;
    const made = drawPipeline(model(known, latest(), meters), width);
    const old = drawing.querySelector("svg.pipeline");
    if (old) morph(old, made);
    else fill(drawing, made);
  }
  // What counts jobs is slow on a large store and is asked for apart, so that it does not hold up the rest.
  const QUICK = { coordinator: "/coordinator", backpressure: "/backpressure", streams: "/streams", deadLetters: "/dead-letters?limit=100" };
  const SLOW = { pipeline: "/pipeline" };
  async function load(paths) {
    const optional = (path) => get(path, { signal }).catch((e) => (e.status === 404 ? null : Promise.reject(e)));
    await Promise.all(Object.entries(paths).map(async ([name, path]) => (answers[name] = await optional(path))));
    known = gather(answers);
    draw();
    if ("streams" in answers) parts();
  }
  function parts() {
    if (!known.streams.length) fill(streamBox, empty("pipeline", "No streams yet", "Each worker, and each sluice ship, writes its own stream. This page shows how much of it was received."));
    else {
      reconcile(streams.body, known.streams, (x) => `${x.stream}/${x.incarnation}`, streamRow);
      if (streams.node.parentNode !== streamBox) fill(streamBox, streams.node);
    }
    fill(coordinator, coordinatorCard(known));
    if (!dead.contains(document.activeElement)) fill(dead, deadCard(known, () => load(QUICK)));
  }
  load(SLOW).catch(() => {}); // the drawing shows the rest meanwhile, and the next attempt reports it
  await load(QUICK);
  poll(signal, 1000, () => load(QUICK));
  poll(signal, 1000, () => load(SLOW));
  onStats(draw, signal);
  const watch = new ResizeObserver(draw);
  watch.observe(drawing);
  signal.addEventListener("abort", () => watch.disconnect());
}

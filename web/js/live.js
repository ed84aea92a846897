// SPDX-License-Identifier: Apache-2.0
// One stream of the store's numbers for all pages, and those since the page was opened for the charts.
import { get, stream } from "./api.js";
import { serverNow, setServerTime } from "./format.js";

const KEPT_S = 300;
const listeners = new Set();
const watchers = new Set();
const live = { stats: null, state: "connecting", history: [], control: null, timer: 0 };

export const latest = () => live.stats;
export const history = () => live.history;

// fn(stats), now when there are some, and at every change.
export function onStats(fn, signal) {
  listeners.add(fn);
  if (signal) signal.addEventListener("abort", () => listeners.delete(fn));
  if (live.stats) fn(live.stats);
}

// fn("connecting" | "live" | "lost")
export function onConnection(fn) {
  watchers.add(fn);
  fn(live.state);
}

function setState(state) {
  live.state = state;
  for (const fn of watchers) fn(state);
}

function take(stats) {
  live.stats = stats;
  setServerTime(stats.now);
  for (const fn of listeners) fn(stats);
}

// The server is silent while nothing changes: each second has a point, as long as the connection stands.
function sample() {
  if (!live.stats || live.state !== "live") return;
  const { totals, rates, pickup_ms: pickup } = live.stats;
  const t = Math.round(serverNow() / 1000);
  if (live.history.length && live.history.at(-1).t === t) return;
  live.history.push({ live: true, t, enqueued: rates.enqueued, completed: rates.completed, failed: rates.failed, due: live.stats.ready, running: totals.running, pickup_p50_ms: pickup.p50, pickup_p99_ms: pickup.p99 });
  while (live.history[0].t < t - KEPT_S) live.history.shift();
}

export function startLive() {
  stopLive();
  live.control = new AbortController();
  const { signal } = live.control;
  get("/stats", { signal }).then(take).catch(() => {});
  stream("/stats/stream", { signal, onMessage: take, onState: (state) => setState(state === "live" ? "live" : "lost") });
  live.timer = setInterval(sample, 1000);
}

export function stopLive() {
  if (live.control) live.control.abort();
  clearInterval(live.timer);
  live.stats = null;
  setState("connecting");
}

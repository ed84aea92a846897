// SPDX-License-Identifier: Apache-2.0
// The last hour, day or week as curves: the history that the server keeps, and after it what has come since the page was
// opened. Chart.js is fetched when the first chart is drawn; colours are those of the page.
import { h, setText } from "./dom.js";
import { get } from "./api.js";
import { duration, serverNow } from "./format.js";
import { history } from "./live.js";
import { onTheme } from "./theme.js";
import { button, poll } from "./ui.js";

// grain: what the width of a young history is a multiple of.
const RANGES = [
  { name: "1h", label: "1 h", words: "last hour", s: 3600, grain: 60 },
  { name: "24h", label: "24 h", words: "last 24 hours", s: 86400, grain: 3600 },
  { name: "7d", label: "7 d", words: "last 7 days", s: 604800, grain: 86400 },
];
const KEYS = ["enqueued", "completed", "failed", "due", "running", "pickup_p50_ms", "pickup_p99_ms"];
const past = { range: RANGES[0], rows: [], changed: new Set() }; // rows: {t, and by KEYS}; due null: no server counted then

async function loadPast(signal) {
  const range = past.range;
  const data = await get("/history", { signal, query: { range: range.name } });
  if (range !== past.range) return;
  const from = Date.parse(data.from) / 1000;
  past.rows = data.due.map((_, i) => ({ t: from + (i + 0.5) * data.step_s, ...Object.fromEntries(KEYS.map((k) => [k, data[k][i]])) }));
  while (past.rows.length && past.rows.at(-1).due === null) past.rows.pop();
  for (const fn of past.changed) fn();
}

// Buttons that choose what all charts of a page show. The history is asked for as long as the page is there.
export function rangeSwitch(signal) {
  const buttons = RANGES.map((range) => button(range.label, { small: true, "aria-label": `${range.label}: ${range.words}`, onclick: () => choose(range) }));
  const show = () => buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(RANGES[i] === past.range)));
  function choose(range) {
    past.range = range;
    show();
    loadPast(signal).catch(() => {});
  }
  show();
  loadPast(signal).catch(() => {});
  poll(signal, 10000, () => loadPast(signal));
  return h("div", { class: "switch", role: "group", "aria-label": "Range of the charts" }, buttons);
}

let loading = null;

function library() {
  loading ||= new Promise((resolve, reject) => {
    const script = h("script", { src: document.querySelector("meta[name=chart-js]").content });
    script.addEventListener("load", () => resolve(globalThis.Chart));
    script.addEventListener("error", () => reject(new Error("the charts could not be loaded")));
    document.head.append(script);
  });
  return loading;
}

// What a colour name of the style sheet is just now.
function colour(name, alpha) {
  const probe = h("i", { style: { color: `var(--${name})` } });
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return alpha === undefined ? value : value.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}

function dataset(series) {
  return {
    label: series.label, borderColor: colour(series.colour), backgroundColor: colour(series.colour, series.fill ? 0.14 : 0),
    fill: Boolean(series.fill), borderWidth: 2, pointRadius: 0, pointHitRadius: 8, tension: 0.25, spanGaps: false, data: [],
  };
}

function ago(s) {
  if (s === 0) return "now";
  if (s % 86400 === 0) return `${s / 86400} d`;
  if (s % 3600 === 0) return `${s / 3600} h`;
  return s % 60 ? `${s} s` : `${s / 60} min`;
}

function options(show, least) {
  const text = colour("muted"), grid = colour("line");
  const font = { family: getComputedStyle(document.body).fontFamily, size: 11 };
  return {
    animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
    interaction: { mode: "index", intersect: false },
    plugins: {
      legend: { display: false },
      tooltip: {
        backgroundColor: colour("tooltip"), titleColor: "#fff", bodyColor: "#fff", padding: 10, cornerRadius: 6, boxPadding: 4, titleFont: font, bodyFont: font,
        callbacks: { title: (items) => (items[0].parsed.x > -1 ? "now" : `${duration(-items[0].parsed.x * 1000)} ago`), label: (i) => ` ${i.dataset.label}: ${show(i.parsed.y)}` },
      },
    },
    scales: {
      x: { type: "linear", min: -60, max: 0, grid: { display: false, borderColor: grid }, ticks: { color: text, font, stepSize: 60, maxRotation: 0, callback: ago } },
      y: { beginAtZero: true, suggestedMax: least, grid: { color: grid, drawBorder: false }, ticks: { color: text, font, maxTicksLimit: 5, callback: show } },
    },
  };
}

// What is drawn, oldest first: the range's rows, and in the shortest range the seconds since the last one.
function drawn() {
  if (past.range !== RANGES[0]) return past.rows;
  const last = past.rows.length ? past.rows.at(-1).t : 0;
  return [...past.rows, ...history().filter((p) => p.t > last)];
}

// A young store has a short past: the curves begin a minute, an hour or a day wide and grow to the whole range.
function span(rows) {
  const { s, grain } = past.range;
  const first = rows.find((p) => p.due !== null);
  const age = first ? serverNow() / 1000 - first.t : 0;
  return Math.min(s, Math.max(grain, Math.ceil(age / grain) * grain));
}

function points(rows, key) {
  const now = serverNow() / 1000;
  const out = [];
  let before = null;
  for (const p of rows) {
    // Within the seconds since the page was opened, a hole is a connection that was lost.
    if (before && before.live && p.t - before.t > 5) out.push({ x: before.t - now + 1, y: NaN });
    out.push({ x: Math.min(p.t - now, 0), y: p[key] ?? NaN });
    before = p;
  }
  return out;
}

function words(series, show) {
  const now = history().at(-1);
  return now ? series.map((x) => `${x.label} ${show(now[x.key])}`).join(", ") : "no figures yet";
}

const STEPS = [15, 60, 120, 600, 3600, 14400, 86400];

// series: [{key of KEYS, label, colour, fill}]; show: a value as text; least: the height of an empty chart. The node, with
// a legend that has the current values.
export function chart({ label, series, show, least = 4, signal }) {
  const values = series.map(() => h("b", { class: "mono" }, "–"));
  const canvas = h("canvas", { role: "img", "aria-label": label });
  const legend = h("ul", { class: "legend" }, series.map((x, i) => h("li", {}, h("i", { class: `swatch s-${x.colour}`, "aria-hidden": "true" }), `${x.label} `, values[i])));
  let made = null;

  function update() {
    const now = history().at(-1);
    series.forEach((x, i) => setText(values[i], now ? show(now[x.key]) : "–"));
    if (!made) return;
    const rows = drawn(), width = span(rows);
    series.forEach((x, i) => (made.data.datasets[i].data = points(rows, x.key)));
    made.options.scales.x.min = -width;
    made.options.scales.x.ticks.stepSize = STEPS.find((s) => width / s <= 7) || 86400;
    made.update("none");
  }

  async function draw() {
    const Chart = await library();
    if (signal.aborted) return;
    if (made) made.destroy();
    made = new Chart(canvas, { type: "line", data: { datasets: series.map(dataset) }, options: options(show, least) });
    update();
  }

  draw().catch((e) => canvas.replaceWith(h("p", { class: "hint" }, e.message)));
  onTheme(() => made && draw(), signal);
  const timer = setInterval(() => !document.hidden && update(), 1000);
  past.changed.add(update);
  const describe = setInterval(() => canvas.setAttribute("aria-label", `${label}, ${past.range.words}: ${words(series, show)}`), 10000);
  signal.addEventListener("abort", () => {
    clearInterval(timer);
    clearInterval(describe);
    past.changed.delete(update);
    if (made) made.destroy();
  });
  return h("div", { class: "chart" }, legend, h("div", { class: "chart-box" }, canvas));
}

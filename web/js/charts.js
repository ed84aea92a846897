// SPDX-License-Identifier: Apache-2.0
// The last minutes as curves. Chart.js is fetched when the first chart is drawn; colours are those of the page.
import { h, setText } from "./dom.js";
import { compact } from "./format.js";
import { HISTORY_S, history } from "./live.js";
import { onTheme } from "./theme.js";

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

function options(unit) {
  const text = colour("muted"), grid = colour("line");
  const font = { family: getComputedStyle(document.body).fontFamily, size: 11 };
  return {
    animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
    interaction: { mode: "index", intersect: false },
    plugins: {
      legend: { display: false },
      tooltip: {
        backgroundColor: colour("tooltip"), titleColor: "#fff", bodyColor: "#fff", padding: 10, cornerRadius: 6, boxPadding: 4, titleFont: font, bodyFont: font,
        callbacks: { title: (items) => (items[0].parsed.x > -1 ? "now" : `${Math.round(-items[0].parsed.x)} s ago`), label: (i) => ` ${i.dataset.label}: ${compact(i.parsed.y)}${unit}` },
      },
    },
    scales: {
      x: { type: "linear", min: -60, max: 0, grid: { display: false, borderColor: grid }, ticks: { color: text, font, stepSize: 60, maxRotation: 0, callback: (v) => (v === 0 ? "now" : v % 60 ? `${v} s` : `${v / 60} min`) } },
      y: { beginAtZero: true, suggestedMax: 4, grid: { color: grid, drawBorder: false }, ticks: { color: text, font, maxTicksLimit: 5, callback: (v) => compact(v) } },
    },
  };
}

// A page that was opened just now has a short past: the curves begin a minute wide and grow to five.
function span() {
  const first = history()[0];
  const age = first ? Date.now() / 1000 - first.t : 0;
  return Math.min(HISTORY_S, Math.max(60, Math.ceil(age / 60) * 60));
}

function points(series) {
  const now = Date.now() / 1000;
  const out = [];
  let before = null;
  for (const p of history()) {
    if (before !== null && p.t - before > 5) out.push({ x: before - now + 1, y: NaN }); // the connection was lost
    out.push({ x: p.t - now, y: p[series.key] });
    before = p.t;
  }
  return out;
}

function words(series, unit) {
  const now = history().at(-1);
  return now ? series.map((x) => `${x.label} ${compact(now[x.key])}${unit}`).join(", ") : "no figures yet";
}

// series: [{key of history, label, colour, fill}]; the node, with a legend that has the current values.
export function liveChart({ label, series, unit = "", signal }) {
  const values = series.map(() => h("b", { class: "mono" }, "–"));
  const canvas = h("canvas", { role: "img", "aria-label": label });
  const legend = h("ul", { class: "legend" }, series.map((x, i) => h("li", {}, h("i", { class: `swatch s-${x.colour}`, "aria-hidden": "true" }), `${x.label} `, values[i])));
  let chart = null;

  function update() {
    const now = history().at(-1);
    series.forEach((x, i) => setText(values[i], now ? compact(now[x.key]) + unit : "–"));
    if (!chart) return;
    series.forEach((x, i) => (chart.data.datasets[i].data = points(x)));
    chart.options.scales.x.min = -span();
    chart.options.scales.x.ticks.stepSize = span() > 60 ? 60 : 15;
    chart.update("none");
  }

  async function draw() {
    const Chart = await library();
    if (signal.aborted) return;
    if (chart) chart.destroy();
    chart = new Chart(canvas, { type: "line", data: { datasets: series.map(dataset) }, options: options(unit) });
    update();
  }

  draw().catch((e) => canvas.replaceWith(h("p", { class: "hint" }, e.message)));
  onTheme(() => chart && draw(), signal);
  const timer = setInterval(() => !document.hidden && update(), 1000);
  const describe = setInterval(() => canvas.setAttribute("aria-label", `${label}: ${words(series, unit)}`), 10000);
  signal.addEventListener("abort", () => {
    clearInterval(timer);
    clearInterval(describe);
    if (chart) chart.destroy();
  });
  return h("div", { class: "chart" }, legend, h("div", { class: "chart-box" }, canvas));
}

// SPDX-License-Identifier: Apache-2.0
// Numbers, durations and times as people read them.
import { h, setText } from "./dom.js";

const whole = new Intl.NumberFormat("en");
let skewMs = 0; // the server's clock minus this one

export function setServerTime(iso) {
  const t = Date.parse(iso);
  if (Number.isFinite(t)) skewMs = t - Date.now();
}

export const serverNow = () => Date.now() + skewMs;
export const num = (n) => (n === null || n === undefined ? "–" : whole.format(n));
export const plural = (n, one, many) => `${num(n)} ${n === 1 ? one : many || one + "s"}`;

// 1,234 · 56.7k · 1.23M
export function compact(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  const a = Math.abs(n);
  if (a < 10000) return a < 10 && !Number.isInteger(n) ? n.toFixed(1) : whole.format(Math.round(n));
  const [scale, unit] = a < 1e6 ? [1e3, "k"] : a < 1e9 ? [1e6, "M"] : [1e9, "G"];
  const v = n / scale;
  return (Math.abs(v) < 100 ? v.toFixed(1).replace(/\.0$/, "") : v.toFixed(0)) + unit;
}

export function rate(n) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0";
  return n < 10 ? n.toFixed(n < 0.1 ? 2 : 1) : compact(n);
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  if (n < 1024) return `${n} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let i = -1;
  do {
    n /= 1024;
    i++;
  } while (n >= 1024 && i < 3);
  return `${n.toFixed(n < 10 ? 1 : 0)} ${units[i]}`;
}

// 340 ms · 1.2 s · 3 m 12 s · 2 h 5 m · 3 d 4 h
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  const parts = [[86400000, "d"], [3600000, "h"], [60000, "m"], [1000, "s"]];
  const i = parts.findIndex(([size]) => ms >= size);
  const [size, unit] = parts[i];
  const first = Math.floor(ms / size);
  const second = i < 3 ? Math.floor((ms % size) / parts[i + 1][0]) : 0;
  return second ? `${first} ${unit} ${second} ${parts[i + 1][1]}` : `${first} ${unit}`;
}

const two = (n) => String(n).padStart(2, "0");

// Local time, to the second, or to the millisecond.
export function clock(iso, withMs) {
  const d = new Date(iso);
  if (Number.isNaN(d.getTime())) return String(iso);
  const day = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  const time = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return `${day} ${time}${withMs ? "." + String(d.getMilliseconds()).padStart(3, "0") : ""}`;
}

function relative(iso) {
  const ms = serverNow() - Date.parse(iso);
  const calm = (v) => (v < 60000 ? `${Math.floor(v / 1000)} s` : duration(v));
  if (Math.abs(ms) < 1000) return "now";
  return ms > 0 ? `${calm(ms)} ago` : `in ${calm(-ms)}`;
}

function age(iso) {
  const ms = serverNow() - Date.parse(iso);
  return ms < 60000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : duration(ms);
}

const shapes = { relative, age };

// A <time> that keeps itself up to date: "3 s ago", or with shape "age" only "3 s".
export function ago(iso, shape = "relative") {
  if (!iso) return h("span", { class: "faint" }, "–");
  return h("time", { datetime: iso, title: clock(iso, true), data: { shape } }, shapes[shape](iso));
}

export function startTicking() {
  setInterval(() => {
    if (document.hidden) return;
    for (const node of document.querySelectorAll("time[data-shape]"))
      setText(node, shapes[node.dataset.shape](node.dateTime));
  }, 1000);
}

export const firstLine = (text) => String(text ?? "").split("\n", 1)[0];

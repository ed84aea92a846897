// SPDX-License-Identifier: Apache-2.0
// The small parts that every page is made of.
import { h, setText } from "./dom.js";
import { icon } from "./icons.js";

// As people see a job: what is pending is ready, scheduled or retrying.
export const STATES = ["ready", "scheduled", "retrying", "running", "failed", "completed", "blocked", "cancelled"];

// A status is a word and a colour, so that neither is needed alone.
export function badge(status) {
  return h("span", { class: `badge ${STATES.includes(status) ? status : "other"}` }, h("i", { "aria-hidden": "true" }), status);
}

export const tag = (text, kind = "") => h("span", { class: `tag ${kind}` }, text);

export function button(label, { icon: name, kind = "", onclick, title, small, hideLabel, ...rest } = {}) {
  const props = { type: "button", class: `btn ${kind}${small ? " small" : ""}${hideLabel ? " only-icon" : ""}`, title: title || (hideLabel ? label : null), on: onclick ? { click: onclick } : {}, ...rest };
  return h("button", props, name && icon(name), h("span", { class: hideLabel ? "sr-only" : "" }, label));
}

export function link(href, text, props = {}) {
  return h("a", { href, ...props }, text);
}

export const jobLink = (id) => link(`/jobs/${id}`, `#${id}`, { class: "mono idlink" });

// Workers without a name of their own have a UUID, of which the beginning is shown.
export function workerName(name) {
  const short = /^[0-9a-f]{8}-[0-9a-f]{4}-/.test(name) ? `${name.slice(0, 8)}…` : name;
  return h("span", { class: "mono wrap-any", title: name }, short);
}

export function card(title, { actions, level = 2, class: cls = "", label } = {}, ...children) {
  const head = title && h("header", { class: "card-head" }, h(`h${level}`, {}, title), actions && h("div", { class: "actions" }, actions));
  return h("section", { class: `card ${cls}`, "aria-label": label }, head, ...children);
}

// One pair in a <dl class="facts">.
export const fact = (name, ...value) => h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, ...value));

export function pageHead(title, { text, actions, crumbs } = {}) {
  return h("header", { class: "page-head" },
    h("div", { class: "page-title" }, crumbs, h("h1", { tabindex: "-1" }, title), text && h("p", { class: "lead" }, text)),
    actions && h("div", { class: "actions" }, actions));
}

// ---- saying what happened ----

let announcer = null;
let tray = null;

export function makeAnnouncer() {
  announcer = h("div", { class: "sr-only", role: "status", "aria-live": "polite" });
  tray = h("div", { class: "toasts" });
  return [announcer, tray];
}

export function announce(text) {
  if (announcer) setText(announcer, text);
}

export function toast(text, kind = "good", more = null) {
  announce(text);
  const note = h("div", { class: `toast ${kind}` }, icon(kind === "good" ? "check" : "failures"), h("span", {}, text, more && [" ", more]),
    button("Dismiss", { icon: "close", kind: "ghost", small: true, hideLabel: true, onclick: () => note.remove() }));
  tray.append(note);
  while (tray.children.length > 4) tray.firstElementChild.remove();
  setTimeout(() => note.remove(), kind === "good" ? 5000 : 12000);
}

export function problem(e) {
  if (e.name === "AbortError") return;
  const wait = e.retryAfterMs ? ` Try again in ${Math.ceil(e.retryAfterMs / 1000)} s.` : "";
  toast(`${sentence(e.message)}${wait}`, "bad");
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

// ---- asking ----

/*
 * Resolves with the form's values, or null. The focus goes back to where it was. With send(values), the dialog stays open
 * until it succeeds: a refusal is shown in it, and what was typed is kept. Resolves with what send gave.
 */
export function ask({ title, text, action = "OK", dismiss = "Cancel", danger, fields = [], send }) {
  return new Promise((resolve) => {
    const controls = fields.map((f) => {
      const input = h(f.multiline ? "textarea" : "input", { id: `ask-${f.name}`, name: f.name, value: f.value ?? "", placeholder: f.placeholder, required: f.required, list: f.list, "aria-describedby": f.hint && `ask-${f.name}-hint`, spellcheck: "false", autocomplete: "off", ...(f.multiline ? { rows: 5 } : { type: f.type || "text" }) });
      if (f.type === "checkbox") input.checked = Boolean(f.value);
      return h("div", { class: `field${f.type === "checkbox" ? " check" : ""}${f.half ? " half" : ""}` }, h("label", { for: input.id }, f.label), input, f.hint && h("p", { class: "hint", id: `ask-${f.name}-hint` }, f.hint));
    });
    const note = h("p", { class: "form-error", role: "alert" });
    const submit = h("button", { class: `btn ${danger ? "danger" : "primary"}`, type: "submit" }, action);
    const form = h("form", { method: "dialog" },
      h("h2", { id: "ask-title" }, title), text && h("p", { class: "ask-text" }, text), controls, note,
      h("div", { class: "dialog-actions" },
        button(dismiss, { onclick: () => end(null) }), submit));
    const dialog = h("dialog", { "aria-labelledby": "ask-title" }, form);
    const before = document.activeElement;
    function end(value) {
      dialog.close();
      dialog.remove();
      if (before && before.isConnected) before.focus();
      resolve(value);
    }
    async function deliver(values) {
      submit.disabled = true;
      setText(note, "");
      try {
        end(await send(values));
      } catch (e) {
        submit.disabled = false;
        setText(note, sentence(e.message));
      }
    }
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      if (submit.disabled) return;
      const values = Object.fromEntries(fields.map((f) => [f.name, f.type === "checkbox" ? form.elements[f.name].checked : form.elements[f.name].value]));
      const wrong = fields.map((f) => f.check && f.check(values[f.name])).find(Boolean);
      if (wrong) setText(note, wrong);
      else if (send) deliver(values);
      else end(values);
    });
    dialog.addEventListener("cancel", (e) => {
      e.preventDefault();
      end(null);
    });
    dialog.addEventListener("click", (e) => e.target === dialog && end(null));
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("input, textarea") || form.querySelector("[type=submit]")).focus();
  });
}

// "90s", "10m", "2 h", "1d" in milliseconds, nothing as 0; null: it is none of these.
export function delayMs(text) {
  const m = /^(\d{1,9}(?:\.\d+)?) ?(ms|s|m|h|d|)$/.exec(text.trim());
  if (m) return Math.round(Number(m[1]) * { ms: 1, s: 1000, "": 1000, m: 60000, h: 3600000, d: 86400000 }[m[2]]);
  return text.trim() ? null : 0;
}

export const isJson = (text) => {
  if (!text.trim()) return null;
  try {
    JSON.parse(text);
    return null;
  } catch (e) {
    return `This is not valid JSON: ${e.message}`;
  }
};

// ---- states of a page ----

export function copyButton(text) {
  const b = button("Copy", { icon: "copy", kind: "ghost", small: true, hideLabel: true, onclick: async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      b.firstElementChild.replaceWith(icon("check"));
      announce("Copied");
      setTimeout(() => b.firstElementChild.replaceWith(icon("copy")), 1500);
    } catch {
      toast("The browser does not allow this page to copy", "bad");
    }
  } });
  return b;
}

export function command(text, note) {
  return h("div", { class: "command" }, note && h("p", {}, note), h("div", { class: "command-line" }, h("code", {}, text), copyButton(text)));
}

export function empty(name, title, text, ...more) {
  return h("div", { class: "empty" }, h("div", { class: "empty-icon" }, icon(name)), h("h2", {}, title), text && h("p", {}, text), ...more);
}

export function failure(e, again) {
  return h("div", { class: "empty bad", role: "alert", data: isAway(e) ? { away: "1" } : {} }, h("div", { class: "empty-icon" }, icon("failures")),
    h("h2", {}, e.status === 404 ? "Not found" : "This could not be loaded"), h("p", {}, sentence(e.message)),
    again && button("Try again", { icon: "retry", onclick: again }));
}

// The server is not there, or not ready: asking again later may help.
export const isAway = (e) => [0, 502, 503, 504].includes(e.status);

export const skeleton = (lines = 6) => h("div", { class: "skeleton", "aria-hidden": "true" }, Array.from({ length: lines }, () => h("div")));

// A table in a box that scrolls on its own, so that the page never does sideways.
export function table(label, columns, { class: cls = "" } = {}) {
  const body = h("tbody");
  const head = h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.class }, c.node || (c.hidden ? h("span", { class: "sr-only" }, c.name) : c.name))));
  const t = h("table", { class: cls, "aria-label": label }, h("thead", {}, head), body);
  return { node: h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": label }, t), body };
}

// Cells carry their column's name for narrow screens, where a row is shown as a list.
export const cell = (name, ...children) => h("td", { data: { name } }, ...children);
export const numCell = (name, ...children) => h("td", { class: "num", data: { name } }, ...children);

// A refresh that does not pile up: after one ends, the next waits its pause, or five times what it took where that is
// longer (counting a million jobs is work); a hidden page asks nothing.
export function poll(signal, ms, fn) {
  let timer = 0;
  const run = async () => {
    clearTimeout(timer);
    if (signal.aborted) return;
    const start = performance.now();
    if (!document.hidden) await fn().catch(() => {});
    clearTimeout(timer);
    timer = setTimeout(run, Math.max(ms, 5 * (performance.now() - start)));
  };
  const visible = () => !document.hidden && run();
  document.addEventListener("visibilitychange", visible);
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", visible);
  });
  timer = setTimeout(run, ms);
  return run;
}


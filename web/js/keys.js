// SPDX-License-Identifier: Apache-2.0
// Keys: "g j" goes to the jobs, "/" to the search, "?" shows them all. None acts while the user types.
import { h } from "./dom.js";
import { button } from "./ui.js";

const keys = new Map(); // "g j" → {text, fn, group}
let pending = "";
let timer = 0;

export function key(combo, text, fn, { group = "Everywhere", signal } = {}) {
  const entry = { text, fn, group };
  keys.set(combo, entry);
  if (signal) signal.addEventListener("abort", () => keys.get(combo) === entry && keys.delete(combo));
}

const typing = (t) => t.closest && (t.closest("textarea, select, dialog, [contenteditable]") || (t.matches("input") && !["checkbox", "radio", "button"].includes(t.type)));

function pressed(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
  if (typing(e.target)) {
    if (e.key === "Escape" && !e.target.closest("dialog")) e.target.blur();
    return;
  }
  const combo = pending ? `${pending} ${e.key}` : e.key;
  pending = "";
  clearTimeout(timer);
  const entry = keys.get(combo);
  if (entry) {
    e.preventDefault();
    entry.fn(e);
  } else if ([...keys.keys()].some((k) => k.startsWith(`${combo} `))) {
    pending = combo;
    timer = setTimeout(() => (pending = ""), 1200);
  }
}

export function showKeys() {
  if (document.querySelector("dialog[open]")) return;
  const groups = Map.groupBy ? Map.groupBy(keys, ([, e]) => e.group) : [...keys].reduce((m, x) => m.set(x[1].group, [...(m.get(x[1].group) || []), x]), new Map());
  const before = document.activeElement;
  const dialog = h("dialog", { class: "keys", "aria-labelledby": "keys-title" },
    h("header", { class: "card-head" }, h("h2", { id: "keys-title" }, "Keyboard shortcuts"), button("Close", { icon: "close", kind: "ghost", small: true, hideLabel: true, onclick: () => dialog.close() })),
    h("div", { class: "keys-groups" }, [...groups].map(([name, list]) => h("section", {}, h("h3", {}, name),
      h("dl", {}, list.map(([combo, e]) => [h("dt", {}, combo.split(" ").map((k) => h("kbd", {}, k === "Enter" ? "↵" : k))), h("dd", {}, e.text)]))))));
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before && before.isConnected) before.focus();
  });
  dialog.addEventListener("click", (e) => e.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
}

export function startKeys() {
  document.addEventListener("keydown", pressed);
  key("?", "Show keyboard shortcuts", showKeys);
}

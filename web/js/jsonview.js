// SPDX-License-Identifier: Apache-2.0
// JSON for reading: indented, coloured, big parts folded. Strings are text, whatever they look like.
import { h } from "./dom.js";
import { Exact } from "./api.js";
import { bytes } from "./format.js";
import { copyButton } from "./ui.js";

const MANY = 100; // items of an array or object that are drawn at once

const token = (kind, text) => h("span", { class: `j-${kind}` }, text);

function scalar(v) {
  if (v instanceof Exact) return token("number", v.source);
  if (v === null) return token("null", "null");
  if (typeof v === "string") return token("string", JSON.stringify(v));
  return token(typeof v, String(v));
}

function rows(entries, isArray, depth, box) {
  const more = entries.length > MANY ? entries.splice(MANY) : [];
  for (const [k, v] of entries) {
    box.append(h("div", { class: "j-row" }, !isArray && [token("key", JSON.stringify(k)), ": "], value(v, depth + 1)));
  }
  if (!more.length) return;
  const b = h("button", { type: "button", class: "btn ghost small", on: { click: () => {
    b.remove();
    rows(more, isArray, depth, box);
  } } }, `${more.length} more`);
  box.append(b);
}

function value(v, depth) {
  if (v === null || typeof v !== "object" || v instanceof Exact) return scalar(v);
  const isArray = Array.isArray(v);
  const entries = Object.entries(v);
  const [open, close] = isArray ? "[]" : "{}";
  if (!entries.length) return h("span", {}, open + close);
  const box = h("div", { class: "j-box" });
  const fold = h("details", { class: "j-fold", open: depth < 3 || entries.length < 4 },
    h("summary", {}, open, h("span", { class: "j-hint" }, ` ${entries.length} ${isArray ? (entries.length === 1 ? "item" : "items") : entries.length === 1 ? "field" : "fields"} `, close)), box, h("span", { class: "j-close" }, close));
  let drawn = false;
  const draw = () => {
    if (!drawn && fold.open) {
      drawn = true;
      rows(entries, isArray, depth, box);
    }
  };
  fold.addEventListener("toggle", draw);
  draw();
  return fold;
}

export function jsonView(v, name) {
  const text = JSON.stringify(v, null, 2) ?? "null";
  return h("div", { class: "json" }, h("div", { class: "json-tools" }, h("span", { class: "faint" }, bytes(new Blob([text]).size)), copyButton(text)),
    h("div", { class: "json-text mono", tabindex: "0", role: "region", "aria-label": name }, value(v, 0)));
}

// SPDX-License-Identifier: Apache-2.0
// Who changed what, newest first.
import { h, fill } from "../dom.js";
import { get } from "../api.js";
import { ago, clock } from "../format.js";
import { cell, empty, pageHead, skeleton, table } from "../ui.js";

export async function audit({ root, signal }) {
  const { node, body } = table("Audit log", ["Time", "Who", "Action", "On", "Answer"].map((name) => ({ name })), { class: "stack" });
  const box = h("div", { class: "card" }, skeleton());
  fill(root, pageHead("Audit log", { text: "Every change that somebody asked for, and what became of it." }), box);
  const { items } = await get("/audit", { signal, query: { limit: 200 } });
  if (!items.length) return fill(box, empty("audit", "Nothing was changed yet", "Every mutation is written down here: who, what, when, and the answer."));
  fill(body, items.map((x) => {
    const at = x.at || x.ts || x.time;
    return h("tr", {}, cell("Time", h("span", { class: "mono" }, clock(at)), h("p", { class: "faint" }, ago(at))), cell("Who", x.actor || "–"), cell("Action", h("code", {}, x.action || "–")), cell("On", h("span", { class: "mono wrap-any" }, x.target || x.path || "")), cell("Answer", String(x.status ?? "")));
  }));
  return fill(box, node);
}

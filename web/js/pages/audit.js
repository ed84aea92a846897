// SPDX-License-Identifier: Apache-2.0
// Who changed what, newest first.
import { h, fill } from "../dom.js";
import { get } from "../api.js";
import { ago, clock } from "../format.js";
import { cell, empty, pageHead, skeleton, table } from "../ui.js";

export async function audit({ root, signal }) {
  const { node, body } = table("Audit log", ["Time", "Who", "Action", "On", "Via"].map((name) => ({ name })), { class: "stack" });
  const box = h("div", { class: "card" }, skeleton());
  fill(root, pageHead("Audit log", { text: "Every change, who made it, and how." }), box);
  const { items } = await get("/audit", { signal, query: { limit: 200 } });
  if (!items.length) return fill(box, empty("audit", "No changes yet", "Every change is recorded here: who made it, what, when and how."));
  fill(body, items.map((x) => {
    const params = Object.values(x.detail?.params || {}).concat(x.detail?.operands || []);
    const on = x.chains.length ? x.chains.slice(0, 5).join(", ") + (x.chains.length > 5 ? ` and ${x.chains.length - 5} more` : "") : params.join(" ");
    return h("tr", {}, cell("Time", h("span", { class: "mono" }, clock(x.time)), h("p", { class: "faint" }, ago(x.time))), cell("Who", x.actor), cell("Action", h("code", {}, x.action)), cell("On", h("span", { class: "mono wrap-any" }, on)), cell("Via", x.via));
  }));
  return fill(box, node);
}

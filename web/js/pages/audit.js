// SPDX-License-Identifier: Apache-2.0
// Who changed what, newest first.
import { h, fill } from "../dom.js";
import { get } from "../api.js";
import { ago, clock, num } from "../format.js";
import { button, cell, empty, link, pageHead, problem, skeleton, table, tag } from "../ui.js";

const LIMIT = 100;
const SHOWN = 5; // of the chains of one change
const VIA = { http: "HTTP", command: "command line", library: "library" };

// Where one goes from what is named: a type, a schedule, an export.
const PLACES = { type: (v) => `/jobs?type=${encodeURIComponent(v)}`, name: () => "/cron", dataset: (v) => `/exports/${encodeURIComponent(v)}` };

// What was changed: chains, what the path and the query of a request name, or the operands of a command.
function on(x) {
  const { params = {}, operands = [] } = x.detail || {};
  if (x.chains.length) {
    const more = x.chains.length - SHOWN;
    return [x.chains.slice(0, SHOWN).map((id, i) => [i ? ", " : "", link(`/chains/${id}`, `#${id}`, { class: "mono idlink" })]), more > 0 && ` and ${num(more)} more`];
  }
  const named = Object.entries(params).map(([name, value], i) => [i ? " " : "", PLACES[name] ? link(PLACES[name](value), value, { class: "strong" }) : h("span", {}, name === "id" ? value : `${name} ${value}`)]);
  if (named.length) return named;
  if (operands.length) return h("span", { class: "mono" }, operands.join(" "));
  return x.action === "session.begin" ? "the dashboard" : h("span", { class: "faint" }, x.action.split(".")[0].replace(/_/g, " "));
}

function row(x) {
  return h("tr", {},
    cell("Time", h("div", {}, h("span", { class: "mono" }, clock(x.time)), h("p", { class: "faint" }, ago(x.time)))),
    cell("Who", h("div", {}, h("span", { class: "strong" }, x.actor), x.address && h("p", { class: "faint" }, x.address))),
    cell("Action", h("code", {}, x.action)),
    cell("On", h("span", { class: "wrap-any" }, on(x))),
    cell("Via", tag(VIA[x.via] || x.via)));
}

export async function audit({ root, signal }) {
  const { node, body } = table("Audit log", ["Time", "Who", "Action", "On", "Via"].map((name) => ({ name })), { class: "stack" });
  const box = h("div", { class: "card" }, skeleton());
  const older = button("Show older changes", { onclick: () => load().catch(problem) });
  const foot = h("div", { class: "card-foot" }, older);
  let cursor;
  async function load() {
    const { items, next_cursor: next } = await get("/audit", { signal, query: { limit: LIMIT, cursor } });
    cursor = next;
    foot.hidden = !next;
    body.append(...items.map(row));
    return items.length;
  }
  fill(root, pageHead("Audit log", { text: "Every change, who made it, and how: over HTTP, on this page or on the command line." }), box);
  if (await load()) fill(box, node, foot);
  else fill(box, empty("audit", "No changes yet", "Every change is recorded here: who made it, what, when and how."));
}

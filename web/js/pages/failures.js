// SPDX-License-Identifier: Apache-2.0
// Jobs by what went wrong: one decision for a thousand of them.
import { h, fill, reconcile } from "../dom.js";
import { changeMany, get } from "../api.js";
import { ago, firstLine, num, plural } from "../format.js";
import { icon } from "../icons.js";
import { mayWrite } from "../session.js";
import { ask, badge, button, cell, empty, jobLink, link, numCell, pageHead, poll, skeleton, table, tag, toast } from "../ui.js";

const failed = (g) => g.count - g.retrying;
const query = (g) => new URLSearchParams({ status: "failed,retrying", type: g.type, ...(g.error ? { error: g.error } : {}) });

// Failed jobs run again; those that wait for their next attempt anyway get it now.
async function change(g, what, load) {
  const jobs = plural(g.count, "job");
  const words = what === "retry" ? { title: `Retry ${jobs}?`, action: `Retry ${jobs}`, dismiss: "Leave them" } : { title: `Delete ${jobs}?`, action: `Delete ${jobs}`, dismiss: "Keep them", danger: true };
  const of = (status) => ({ filter: { status, type: g.type, error: g.error } });
  const changed = await ask({ ...words, text: `${g.type}: ${firstLine(g.error)}`, send: async () => {
    let n = failed(g) ? await changeMany(what, of("failed")) : 0;
    if (g.retrying) n += await changeMany(what === "retry" ? "trigger" : what, of("retrying"));
    await load();
    return plural(n, "chain");
  } });
  if (changed) toast(`${changed} ${what === "retry" ? "will run again" : "deleted"}`);
}

function row(g, load) {
  return h("tr", {},
    numCell("Jobs", h("span", { class: "count bad" }, num(g.count))),
    cell("State", h("div", {}, failed(g) > 0 && badge("failed"), failed(g) > 0 && g.retrying > 0 && " ", g.retrying > 0 && badge("retrying"))),
    cell("Error", link(`/jobs?${query(g)}`, firstLine(g.error) || "(no message)", { class: "strong wrap-any" })),
    cell("Type", tag(g.type)),
    cell("First seen", ago(g.first_at)),
    cell("Last seen", ago(g.last_at)),
    cell("Newest", jobLink(g.sample_id)),
    h("td", { class: "end" }, mayWrite() && h("div", { class: "actions" },
      button("Retry all", { icon: "retry", small: true, "aria-label": `Retry all: ${firstLine(g.error)}`, onclick: () => change(g, "retry", load) }),
      button("Delete all", { icon: "trash", small: true, kind: "ghost", hideLabel: true, "aria-label": `Delete all: ${firstLine(g.error)}`, onclick: () => change(g, "delete", load) }))));
}

export async function failures({ root, signal }) {
  const { node, body } = table("Failed jobs by error", [{ name: "Jobs", class: "num" }, { name: "State" }, { name: "Error" }, { name: "Type" }, { name: "First seen" }, { name: "Last seen" }, { name: "Newest" }, { name: "Actions", hidden: true }], { class: "stack" });
  const box = h("div", { class: "card" }, skeleton());
  const more = h("p", { class: "hint pad" }, "Only the newest of these jobs are grouped here; there are older ones.");
  fill(root, pageHead("Failures", { text: "Jobs that failed, and those that are tried again after an error, grouped by its first line.", actions: link("/jobs?status=failed,retrying", [icon("jobs"), "As a list"], { class: "btn" }) }), box);
  async function load() {
    const answer = await get("/errors", { signal, query: { limit: 200 } });
    if (!answer.items.length) return fill(box, empty("check", "Nothing has failed", "A job whose attempt fails is listed here while it is tried again; when it runs out of attempts, until you retry or delete it."));
    reconcile(body, answer.items, (g) => `${g.type}\n${g.error}`, (g) => row(g, load));
    more.hidden = !answer.next_cursor;
    if (node.parentNode !== box) fill(box, node, more);
  }
  await load();
  poll(signal, 3000, load);
}

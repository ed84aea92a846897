// SPDX-License-Identifier: Apache-2.0
// Dead letters: what could not be delivered, why, and the way back.
import { h, fill, reconcile } from "../dom.js";
import { enc, get, post } from "../api.js";
import { ago, bytes, firstLine, num, plural } from "../format.js";
import { jsonView } from "../jsonview.js";
import { go } from "../router.js";
import { mayWrite } from "../session.js";
import { ask, button, card, cell, copyButton, empty, jobLink, link, numCell, pageHead, poll, problem, skeleton, table, tag, toast } from "../ui.js";

function outcome({ redriven, failed, last_error: why }) {
  if (!failed) return [`${plural(redriven, "dead letter")} redriven`, "good"];
  return [`${redriven ? `${plural(redriven, "dead letter")} redriven; ` : ""}${plural(failed, "dead letter")} not redriven: ${why}`, "bad"];
}

async function redrive(id, load) {
  try {
    toast(...outcome(await post(`/dead-letters/${enc(id)}/redrive`)));
    await load();
  } catch (e) {
    problem(e);
  }
}

export async function redriveAll(load) {
  const sure = await ask({ dismiss: "Leave them", title: "Redrive all dead letters?", text: "Each one is delivered again. Those that are refused again stay here with the new reason.", action: "Redrive all" });
  if (!sure) return;
  try {
    toast(...outcome(await post("/dead-letters/redrive", { all: true })));
    await load();
  } catch (e) {
    problem(e);
  }
}

function row(l, load) {
  return h("tr", {},
    cell("Dead letter", link(`/dead-letters/${l.id}`, `#${l.id}`, { class: "mono idlink" })),
    cell("Error", h("span", { class: "strong wrap-any" }, firstLine(l.error))),
    cell("Class", tag(l.class, "warn")),
    cell("From", h("span", { class: "mono wrap-any" }, l.source, l.position ? `@${l.position}` : "")),
    numCell("Attempts", num(l.attempts)),
    cell("Last tried", ago(l.last_failed_at)),
    h("td", { class: "end" }, mayWrite() && button("Redrive", { icon: "retry", small: true, "aria-label": `Redrive dead letter ${l.id}`, onclick: () => redrive(l.id, load) })));
}

export async function deadLetters({ root, signal }) {
  const { node, body } = table("Dead letters", [{ name: "Dead letter" }, { name: "Error" }, { name: "Class" }, { name: "From" }, { name: "Attempts", class: "num" }, { name: "Last tried" }, { name: "Action", hidden: true }], { class: "stack" });
  const box = h("div", { class: "card" }, skeleton());
  const pager = h("nav", { class: "pager", "aria-label": "Pages", hidden: true });
  const all = mayWrite() && button("Redrive all", { icon: "retry", kind: "primary", onclick: () => redriveAll(load) });
  const cursors = [];
  fill(root, pageHead("Dead letters", { text: "Records that the receiver refused permanently. Nothing is lost: fix the cause, then redrive them.", actions: all }), box, pager);

  function turn(next) {
    if (next) cursors.push(next);
    else cursors.pop();
    load().catch(problem);
  }
  async function load() {
    const answer = await get("/dead-letters", { signal, query: { limit: 50, cursor: cursors.at(-1) } });
    if (all) all.disabled = !answer.items.length;
    pager.hidden = !cursors.length && !answer.next_cursor;
    const next = button("Next", { small: true, onclick: () => turn(answer.next_cursor) });
    const previous = button("Previous", { small: true, onclick: () => turn() });
    next.disabled = !answer.next_cursor;
    previous.disabled = !cursors.length;
    if (!pager.contains(document.activeElement)) fill(pager, h("span"), h("div", { class: "actions" }, previous, next));
    if (!answer.items.length) return fill(box, empty("dead", "No dead letters", "A record that is refused permanently, or runs out of attempts, is kept here with the reason until you redrive it."));
    reconcile(body, answer.items, (l) => l.id, (l) => row(l, load));
    if (node.parentNode !== box) fill(box, node);
  }
  await load();
  poll(signal, 4000, async () => {
    if (!cursors.length) await load();
  });
}

function payload(l) {
  if (l.sealed) return h("p", { class: "hint pad" }, "This dead letter is sealed: its item is encrypted.");
  const text = l.text ?? new TextDecoder().decode(Uint8Array.from(atob(l.data_b64 || ""), (c) => c.charCodeAt(0)));
  if (!text) return h("p", { class: "hint pad" }, "The item is empty.");
  try {
    return jsonView(JSON.parse(text), "Payload");
  } catch {
    return h("div", { class: "json" }, h("div", { class: "json-tools" }, h("span", { class: "faint" }, bytes(new Blob([text]).size)), copyButton(text)), h("pre", { class: "json-text mono", tabindex: "0" }, text));
  }
}

export async function deadLetter({ root, params, signal }) {
  const fact = (name, ...value) => h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, ...value));
  const crumbs = h("nav", { class: "crumbs", "aria-label": "Path" }, link("/dead-letters", "Dead letters"), " / ", h("span", { class: "mono" }, `#${params.id}`));
  fill(root, pageHead(`Dead letter ${params.id}`, { crumbs }), skeleton(4));
  const l = await get(`/dead-letters/${enc(params.id)}`, { signal });
  const act = mayWrite() && button("Redrive", { icon: "retry", kind: "primary", onclick: () => redrive(l.id, () => go("/dead-letters")) });
  fill(root, pageHead(`Dead letter ${l.id}`, { crumbs, actions: act }), h("pre", { class: "banner bad error-text" }, l.error),
    h("dl", { class: "facts" }, fact("From", h("span", { class: "mono wrap-any" }, l.source, l.position ? `@${l.position}` : "")), fact("For", l.target || "–"), l.event && l.event.job_id && fact("Event", `${l.event.type} of `, jobLink(l.event.job_id)), fact("Class", l.class), fact("Code", h("code", {}, l.code)),
      fact("Attempts", num(l.attempts)), fact("First failed", ago(l.first_failed_at)), fact("Last tried", ago(l.last_failed_at))),
    card("Payload", {}, payload(l)));
}

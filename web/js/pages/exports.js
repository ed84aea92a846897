// SPDX-License-Identifier: Apache-2.0
// What was exported, how far it has come, and whether it is still what was written.
import { h, fill, reconcile, setText } from "../dom.js";
import { enc, get, post } from "../api.js";
import { ago, bytes, duration, num, plural } from "../format.js";
import { mayWrite, serverOption } from "../session.js";
import { button, card, cell, command, copyButton, empty, link, numCell, pageHead, poll, problem, skeleton, table, tag, toast } from "../ui.js";

const PAGE = 25n; // partitions shown at once
const ANSWER = 200; // asked for at once: a partition that was closed before it was full makes two of one

const seq = (text) => (text === null ? "–" : num(BigInt(text)));
const range = (d) => (d.start === null ? "nothing yet" : `${seq(d.start)} – ${seq(d.checkpoint)}`);
const STATES = { idle: "", running: "live", waiting: "warn", failed: "bad" };
const VERDICTS = { running: ["verifying", "live"], passed: ["verified", "good"], failed: ["damaged", "bad"], error: ["not verified", "warn"] };
const verdict = (v) => (v ? tag(...VERDICTS[v.state]) : h("span", { class: "faint" }, "–"));
const fact = (name, ...value) => h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, ...value));
const columns = (names, nums) => names.map((name) => ({ name, class: nums.includes(name) ? "num" : "" }));

function teach() {
  return empty("exports", "No export folder is configured", "Set a folder to export the events of all jobs as Parquet files, with a catalog and a chain of hashes that proves that no event was skipped, duplicated or changed.",
    h("div", { class: "commands" }, command(`sluice up${serverOption()} --export ./exports`, "All events in the store, and all new ones:"),
      command("sluice export --from rows.csv --to ./exports --dataset rows", "Any other rows that have a sequence number, once:")));
}

// What is to be said of the export itself.
function banner(exporter) {
  if (exporter.state === "failed") return h("p", { class: "banner bad", role: "alert" }, `The export failed and will be restarted. ${exporter.error || ""}`);
  if (exporter.state === "waiting") return h("p", { class: "banner warn" }, `Another process exports ${exporter.dataset}; this server takes over when that one ends. ${exporter.error || ""}`);
  return null;
}

// ---- all datasets ----

function row(d, exporter) {
  const ours = exporter && exporter.dataset === d.name;
  return h("tr", {},
    cell("Dataset", link(`/exports/${enc(d.name)}`, d.name, { class: "strong wrap-any" })),
    cell("Export", ours ? tag(exporter.state, STATES[exporter.state]) : h("span", { class: "faint" }, "by command")),
    cell(`Range`, h("span", { class: "mono" }, range(d))),
    numCell("Partitions", num(d.partitions)), numCell("Rows", num(d.rows)), numCell("Size", bytes(d.bytes)), numCell("Waiting", d.lag === null ? "–" : num(d.lag)),
    cell("Verified", verdict(d.verification), " ", d.verification && d.verification.ended_at && ago(d.verification.ended_at)));
}

export async function exportsPage({ root, signal }) {
  const { node, body } = table("Exports", columns(["Dataset", "Export", "Range", "Partitions", "Rows", "Size", "Waiting", "Verified"], ["Partitions", "Rows", "Size", "Waiting"]), { class: "stack" });
  const box = h("div", { class: "card" }, skeleton());
  const note = h("div", { hidden: true });
  fill(root, pageHead("Exports", { text: "Events and rows as Parquet files, in order and without gaps, with a chain of hashes to prove it." }), note, box);
  async function load() {
    const answer = await get("/exports", { signal });
    if (!answer.configured) return fill(box, teach());
    const { exporter } = answer;
    const shown = JSON.stringify([exporter.state, exporter.error, answer.catalog_error]);
    note.hidden = !answer.catalog_error && !["failed", "waiting"].includes(exporter.state);
    if (note.dataset.shown !== shown) fill(note, banner(exporter), answer.catalog_error && answer.catalog_error !== exporter.error && h("p", { class: "banner bad", role: "alert" }, `The catalog cannot be read: ${answer.catalog_error}`));
    note.dataset.shown = shown;
    if (!answer.items.length) return fill(box, empty("exports", "Nothing is exported yet", `The first partition of ${exporter.dataset} is written when it is full${exporter.newest ? `; ${plural(Number(exporter.newest), "event")} wait for it` : ""}.`));
    reconcile(body, answer.items, (d) => d.name, (d) => row(d, exporter));
    if (node.parentNode !== box) fill(box, node);
  }
  await load();
  poll(signal, 2000, load);
}

// ---- one dataset ----

function partitionRow(p) {
  return h("tr", {},
    cell("Sequences", h("span", { class: "mono" }, `${seq(p.start)} – ${seq(p.end)}`), p.type !== "partition" && [" ", tag(p.type)]),
    numCell("Rows", num(p.rows), p.bad_rows > 0 && [" ", tag(`${num(p.bad_rows)} bad`, "warn")]),
    numCell("Size", bytes(p.bytes)),
    cell("File", h("span", { class: "mono wrap-any" }, p.path)),
    cell("SHA-256", h("span", { class: "hash" }, h("code", { title: p.sha256 }, `${p.sha256.slice(0, 12)}…`), copyButton(p.sha256))));
}

// The newest first, in windows of PAGE boundaries: a window stays where it is while new partitions come.
class Partitions {
  constructor(name, signal) {
    Object.assign(this, { name, signal, back: 0n, anchor: null });
    const { node, body } = table("Partitions", columns(["Sequences", "Rows", "Size", "File", "SHA-256"], ["Rows", "Size"]), { class: "stack" });
    this.body = body;
    this.older = button("Older", { small: true, onclick: () => this.turn(1n) });
    this.newer = button("Newer", { small: true, onclick: () => this.turn(-1n) });
    this.words = h("span", { class: "faint" });
    this.pager = h("nav", { class: "pager", "aria-label": "Pages" }, this.words, h("div", { class: "actions" }, this.newer, this.older));
    this.node = card("Partitions", {}, node, this.pager);
  }

  turn(by) {
    this.back += by;
    this.load(this.dataset).catch(problem);
  }

  async load(d) {
    this.dataset = d;
    this.node.hidden = d.start === null;
    if (d.start === null) return;
    const size = BigInt(d.partition_size);
    const [first, last] = [BigInt(d.start) / size, BigInt(d.checkpoint) / size];
    if (this.back === 0n || this.anchor === null) this.anchor = last;
    const high = this.anchor - this.back * PAGE;
    const low = high - PAGE + 1n > first ? high - PAGE + 1n : first;
    const { items } = await get(`/exports/${enc(this.name)}/partitions`, { signal: this.signal, query: { cursor: low * size, limit: ANSWER } });
    const shown = items.filter((p) => BigInt(p.start) < (high + 1n) * size).reverse();
    reconcile(this.body, shown, (p) => p.start, partitionRow);
    this.older.disabled = low <= first;
    this.newer.disabled = this.back === 0n;
    this.pager.hidden = this.older.disabled && this.newer.disabled;
    setText(this.words, shown.length ? `${seq(shown.at(-1).start)} – ${seq(shown[0].end)} of ${range(d)}` : "");
  }
}

function findingRow(f) {
  return h("tr", {}, cell("What", tag(f.fault, f.note ? "" : "bad")), cell("Where", h("span", { class: "mono wrap-any strong" }, f.path)), cell("Found", f.text), cell("Event", f.event ? `#${f.event}` : "–"));
}

function verificationCard(v) {
  if (!v) return card("Verification", {}, h("p", { class: "hint pad" }, "Not verified since this server started. A verification reads every file and checks hashes, rows, order, gaps and the chain."));
  const parts = [];
  if (v.state === "running") {
    const part = v.total_bytes ? v.done_bytes / v.total_bytes : 0;
    parts.push(h("div", { class: "progress" }, h("progress", { max: 1, value: part, "aria-label": "Progress of the verification" }), h("b", {}, `${Math.round(part * 100)} %`)), h("p", { class: "hint pad" }, `${bytes(v.done_bytes)} of ${bytes(v.total_bytes)}, begun `, ago(v.started_at)));
  } else if (v.state === "passed") {
    parts.push(h("p", { class: "all-good" }, tag("verified", "good"), `Nothing has changed since it was written: ${plural(v.partitions, "partition")}, ${plural(v.rows, "row")}, ${plural(v.events, "event")}. `, h("span", { class: "faint" }, `${duration(Date.parse(v.ended_at) - Date.parse(v.started_at))}, `, ago(v.ended_at))));
  } else if (v.state === "failed") {
    parts.push(h("p", { class: "banner bad", role: "alert" }, `${plural(v.findings_total, "finding")}. `, ago(v.ended_at)));
  } else {
    parts.push(h("p", { class: "banner warn", role: "alert" }, `The verification could not finish: ${v.error}`));
  }
  if (v.findings.length) {
    const { node, body } = table("Findings", columns(["What", "Where", "Found", "Event"], []), { class: "stack" });
    fill(body, v.findings.map(findingRow));
    parts.push(node, v.findings_total + v.notes_total > v.findings.length && h("p", { class: "hint pad" }, `The first ${v.findings.length} are shown; 'sluice audit verify --all' lists all.`));
  }
  return card("Verification", {}, parts);
}

function headCard(head, dir) {
  const save = link(`data:application/json,${enc(head.text)}`, "Save", { class: "btn small", download: `${head.dataset}-${head.events}.head` });
  return card("Head", { actions: save }, h("div", { class: "pad head-box" },
    command(head.text.trim(), `Event ${num(head.events)}, up to sequence ${seq(head.checkpoint)}; ${head.signed ? "signed" : "not signed: set export_events.sign_key_file"}. Keep it elsewhere to prove later that nothing was cut off:`),
    command(`sluice audit verify ${dir} --dataset ${head.dataset} --checkpoint ${head.dataset}-${head.events}.head`)));
}

export async function exportPage({ root, params, signal }) {
  const name = params.dataset;
  const crumbs = h("nav", { class: "crumbs", "aria-label": "Path" }, link("/exports", "Exports"), " / ", h("span", { class: "mono" }, name));
  const verify = mayWrite() && button("Verify", { icon: "audit", kind: "primary", onclick: begin });
  const [note, facts, headBox, verification] = [h("div"), h("div"), h("div"), h("div")];
  const partitions = new Partitions(name, signal);
  let state = null; // of the verification, as last seen
  const shown = new Map(); // part → what it shows, so that focus and selection are left alone
  fill(root, pageHead(name, { crumbs, actions: verify }), skeleton(4));

  function part(node, what, make) {
    const print = JSON.stringify(what);
    if (shown.get(node) === print) return;
    shown.set(node, print);
    fill(node, make());
  }
  async function begin() {
    try {
      showVerification(await post(`/exports/${enc(name)}/verify`));
    } catch (e) {
      problem(e);
    }
    again();
  }
  function showVerification(v) {
    if (verify) verify.disabled = Boolean(v) && v.state === "running";
    if (state === "running" && v && v.state === "passed") toast(`${name} is verified`);
    if (state === "running" && v && v.state === "failed") toast(`${name} is damaged: ${v.findings[0] ? v.findings[0].path : "see the findings"}`, "bad");
    state = v ? v.state : null;
    part(verification, v, () => verificationCard(v));
  }
  async function load() {
    const { dir, exporter, items } = await get("/exports", { signal });
    const d = items.find((x) => x.name === name);
    if (!d) return get(`/exports/${enc(name)}/head`, { signal }); // says that it is not there
    const said = exporter.dataset === name ? banner(exporter) : null;
    note.hidden = !said;
    part(note, said && said.textContent, () => said);
    part(facts, d, () => h("dl", { class: "facts" }, fact("Sequences", h("span", { class: "mono" }, range(d))), fact("Partitions", num(d.partitions)), fact("Rows", num(d.rows), d.bad_rows > 0 && ` (${num(d.bad_rows)} bad)`), fact("Size", bytes(d.bytes)),
      fact("Events", num(d.events), d.outbox_backlog > 0 && ` (${num(d.outbox_backlog)} not in the files yet)`), d.lag !== null && fact("Waiting", num(d.lag)), d.endpoint_backlog !== null && fact("For the endpoint", num(d.endpoint_backlog)), fact("Numbered by", h("code", {}, d.sequence_column)), fact("Partition size", seq(d.partition_size)), fact("Writer", d.holder || "–")));
    const [head, v] = await Promise.all([d.events ? get(`/exports/${enc(name)}/head`, { signal }) : null, d.verification ? get(`/exports/${enc(name)}/verify`, { signal }) : null, partitions.load(d)]);
    part(headBox, head, () => head && headCard(head, dir));
    showVerification(v);
    if (facts.parentNode !== root) fill(root, pageHead(name, { crumbs, actions: verify }), note, facts, verification, headBox, partitions.node);
    return null;
  }
  await load();
  const again = poll(signal, 1000, load);
}

// SPDX-License-Identifier: Apache-2.0
// The repository of backups: is there a recent snapshot, how big is it, and can everything be restored.
import { h, fill, reconcile } from "../dom.js";
import { get, post } from "../api.js";
import { ago, bytes, duration, num, plural } from "../format.js";
import { dataOption, mayWrite, serverOption } from "../session.js";
import { button, card, cell, command, copyButton, empty, numCell, pageHead, poll, problem, skeleton, table, tag, toast } from "../ui.js";

const STATES = { reading: "live", ready: "good", failed: "bad" };
const fact = (name, ...value) => h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, ...value));
const columns = (names, nums) => names.map((name) => ({ name, class: nums.includes(name) ? "num" : "" }));
// A shell needs quotes around most of what is not one of these.
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function teach() {
  return empty("backups", "No backup repository is configured", "Set a repository, and this page shows its snapshots, the age of the newest, and whether all of them can be restored.",
    h("div", { class: "commands" }, command("sluice backup init ./backups", "Create a repository, encrypted with a passphrase:"),
      command(`sluice backup create${dataOption()} --repo ./backups`, "Back up everything that Sluice keeps, the databases first:"),
      command(`sluice up${serverOption()} --set backup.repo=./backups --set backup.passphrase_file=./passphrase`, "Show it here:")));
}

function row(s) {
  return h("tr", {},
    cell("Snapshot", h("span", { class: "hash" }, h("code", { title: s.id }, s.id.slice(0, 8)), copyButton(s.id)), s.tags.map((t) => [" ", tag(t)])),
    cell("Made", ago(s.time)), cell("Host", s.host),
    cell("Paths", h("span", { class: "mono wrap-any" }, s.paths.join(", "))),
    numCell("Files", num(s.files), s.problems > 0 && [" ", tag(plural(s.problems, "problem"), "warn")]),
    numCell("Size", bytes(s.bytes)), numCell("Written", bytes(s.physical_bytes)), numCell("Took", duration(s.took_ms)));
}

// ---- the check ----

function findingRow(f) {
  return h("tr", {}, cell("What", tag(f.fault, f.harmless ? "" : "bad")), cell("Object", h("span", { class: "mono wrap-any" }, f.object)),
    cell("File", h("span", { class: "mono wrap-any strong" }, f.path || "–")), cell("Snapshot", f.snapshot ? h("code", { title: f.snapshot }, f.snapshot.slice(0, 8)) : "–"), cell("Found", f.text));
}

function checkCard(c) {
  const depth = c && (c.read_data ? "every byte was read" : "without reading the data");
  if (!c) return card("Check", {}, h("p", { class: "hint pad" }, "Not checked since this server started. A check proves that every block of every snapshot exists; with the data, it proves that every byte is correct."));
  const parts = [];
  if (c.state === "running") {
    const part = c.total_packs ? c.done_packs / c.total_packs : 0;
    parts.push(h("div", { class: "progress" }, h("progress", { max: 1, value: part, "aria-label": "Progress of the check" }), h("b", {}, `${Math.round(part * 100)} %`)), h("p", { class: "hint pad" }, `${num(c.done_packs)} of ${plural(c.total_packs, "pack")}, begun `, ago(c.started_at)));
  } else if (c.state === "passed") {
    parts.push(h("p", { class: "all-good" }, tag("checked", "good"), `Every snapshot can be restored: ${plural(c.snapshots, "snapshot")}, ${plural(c.blocks, "block")} in ${plural(c.packs, "pack")}; ${depth}. `, h("span", { class: "faint" }, `${duration(Date.parse(c.ended_at) - Date.parse(c.started_at))}, `, ago(c.ended_at))));
  } else if (c.state === "failed") {
    parts.push(h("p", { class: "banner bad", role: "alert" }, `${plural(c.findings_total, "thing is", "things are")} damaged or missing; run 'sluice backup repair' to save the rest. `, ago(c.ended_at)));
  } else {
    parts.push(h("p", { class: "banner warn", role: "alert" }, `The check could not finish: ${c.error}`));
  }
  if (c.findings.length) {
    const { node, body } = table("Findings", columns(["What", "Object", "File", "Snapshot", "Found"], []), { class: "stack" });
    fill(body, c.findings.map(findingRow));
    parts.push(node, c.findings_total + c.harmless_total > c.findings.length && h("p", { class: "hint pad" }, `The first ${c.findings.length} are shown; 'sluice backup check' lists all.`));
  }
  return card("Check", {}, parts);
}

// ---- the page ----

function facts(b) {
  const r = b.repository;
  return h("dl", { class: "facts" }, fact("Repository", h("span", { class: "mono wrap-any" }, b.repo)), fact("State", tag(b.state, STATES[b.state])),
    fact("Newest snapshot", b.newest_at ? ago(b.newest_at) : "–"), r && fact("Snapshots", num(r.snapshots)), r && fact("Stored", `${bytes(r.pack_bytes)} in ${plural(r.packs, "pack")}`),
    r && fact("Blocks", num(r.blocks)), r && fact("Encrypted", r.encrypted ? "yes" : "no"), r && r.marked_packs > 0 && fact("To be deleted", plural(r.marked_packs, "pack")),
    r && r.sessions > 0 && fact("Running", plural(r.sessions, "backup")), fact("Last read", b.read_at ? ago(b.read_at) : "–"));
}

function warnings(b) {
  return [b.error && h("p", { class: "banner bad", role: "alert" }, `The repository cannot be read: ${b.error}`),
    b.damaged.length > 0 && h("div", { class: "banner bad", role: "alert" }, `${plural(b.damaged_total, "snapshot")} cannot be read: `, b.damaged.map((d) => h("p", {}, h("code", {}, d.id.slice(0, 8)), ` ${d.error}`)))].filter(Boolean);
}

export async function backupsPage({ root, signal }) {
  const quick = mayWrite() && button("Check", { icon: "audit", onclick: () => begin(false) });
  const whole = mayWrite() && button("Check every byte", { icon: "audit", kind: "primary", onclick: () => begin(true) });
  const head = pageHead("Backups", { text: "Snapshots of the configured repository, and whether they can be restored.", actions: mayWrite() && [quick, whole] });
  const { node, body } = table("Snapshots", columns(["Snapshot", "Made", "Host", "Paths", "Files", "Size", "Written", "Took"], ["Files", "Size", "Written", "Took"]), { class: "stack" });
  const [note, factBox, checkBox, more] = [h("div"), h("div"), h("div"), h("p", { class: "hint pad", hidden: true })];
  const list = card("Snapshots", {}, node, more);
  const shown = new Map(); // part → what it shows, so that focus and selection are left alone
  let state = null; // of the check, as last seen
  fill(root, head, skeleton(4));

  function part(box, what, make) {
    const print = JSON.stringify(what);
    if (shown.get(box) === print) return;
    shown.set(box, print);
    fill(box, make());
  }
  async function begin(readData) {
    try {
      showCheck(await post("/backups/check", { read_data: readData }));
    } catch (e) {
      problem(e);
    }
    again();
  }
  function showCheck(c) {
    for (const b of [quick, whole]) if (b) b.disabled = Boolean(c) && c.state === "running";
    if (state === "running" && c && c.state === "passed") toast("Every snapshot can be restored");
    if (state === "running" && c && c.state === "failed") toast("The repository is damaged: see the findings", "bad");
    state = c ? c.state : null;
    part(checkBox, c, () => checkCard(c));
  }
  async function load() {
    const b = await get("/backups", { signal });
    if (!b.configured) return fill(root, pageHead("Backups", {}), h("div", { class: "card" }, teach()));
    part(note, [b.error, b.damaged], () => warnings(b));
    note.hidden = !b.error && !b.damaged.length;
    part(factBox, [b.state, b.newest_at, b.repository, b.read_at], () => facts(b));
    showCheck(b.check ? await get("/backups/check", { signal }) : null);
    const empties = b.repository && !b.items.length;
    more.hidden = !empties && !(b.repository && b.repository.snapshots > b.items.length);
    if (!more.hidden) part(more, [empties, b.items.length], () => (empties ? command(`sluice backup create${dataOption()} --repo ${quoted(b.repo)}`, "No snapshots yet. Create one:") : `The newest ${num(b.items.length)} are shown; 'sluice backup list' has all.`));
    node.hidden = !b.items.length;
    reconcile(body, b.items, (s) => s.id, row);
    if (factBox.parentNode !== root) fill(root, head, note, factBox, checkBox, list);
    return null;
  }
  await load();
  const again = poll(signal, 2000, load);
}

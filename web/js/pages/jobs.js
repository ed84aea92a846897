// SPDX-License-Identifier: Apache-2.0
// Jobs by status, type, key, time and text. A page at a time, by cursor: never the whole list, whatever its length.
import { h, fill, reconcile, setText } from "../dom.js";
import { changeMany, countMany, get, post } from "../api.js";
import { ago, compact, duration, firstLine, plural, serverNow } from "../format.js";
import { key } from "../keys.js";
import { onStats } from "../live.js";
import { go, note } from "../router.js";
import { mayWrite } from "../session.js";
import { STATES, announce, ask, badge, button, cell, delayMs, empty, failure, isJson, link, numCell, pageHead, poll, problem, skeleton, table, tag, toast } from "../ui.js";
import { firstJob } from "../teach.js";

const LIMIT = 50;
const SEARCH_MS = 10000; // for something rare, before the user is asked whether to continue
const FIELDS = ["status", "type", "key", "q", "error", "from", "to", "order"];
const SPANS = { "": "Any time", "15m": "Last 15 minutes", "1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", custom: "From … to …" };
const SPAN_MS = { "15m": 900000, "1h": 3600000, "24h": 86400000, "7d": 604800000 };
const VERBS = {
  retry: { name: "Retry", icon: "retry", done: "will run again", keep: "Leave them", text: "Chains that have failed or were cancelled run again; others are left alone." },
  cancel: { name: "Cancel", icon: "close", done: "cancelled", keep: "Keep running", danger: true, text: "Running attempts are stopped, and no further job of these chains is started. Chains that have ended are left alone." },
  trigger: { name: "Run now", icon: "bolt", done: "made due", keep: "Leave them", text: "Chains that are scheduled for later become due now; others are left alone." },
  delete: { name: "Delete", icon: "trash", done: "deleted", keep: "Keep them", danger: true, text: "Deletes the chains with their jobs, attempts and output. This can't be undone." },
};

function filterOf(query) {
  const f = {};
  for (const name of [...FIELDS, "span"]) if (query.get(name)) f[name] = query.get(name);
  return f;
}

// The filter as the server knows it: a span is counted back from now.
function asked(f) {
  const { span, ...rest } = f;
  if (SPAN_MS[span]) rest.from = new Date(serverNow() - SPAN_MS[span]).toISOString();
  return rest;
}

const address = (f, cursors) => {
  const q = new URLSearchParams(f);
  if (cursors.length) q.set("cursor", cursors.at(-1));
  return `/jobs${q.size ? `?${q}` : ""}`;
};

function took(j) {
  const end = j.ended_at || j.completed_at;
  if (!j.started_at) return "–";
  if (j.status === "running") return ago(j.started_at, "age");
  return end ? duration(Date.parse(end) - Date.parse(j.started_at)) : "–";
}

const toLocal = (iso) => {
  if (!iso) return "";
  const d = new Date(iso);
  return new Date(d.getTime() - d.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
};
const fromLocal = (text) => (text ? new Date(text).toISOString() : "");

// ---- the filters ----

function statusTabs(f, change, signal) {
  const counts = {};
  const tabs = ["", ...STATES].map((status) => {
    counts[status] = h("span", { class: "tab-count" });
    const b = h("button", { type: "button", class: "tab", "aria-pressed": String((f.status || "") === status), on: { click: () => change({ status }) } }, status ? h("i", { class: `mark ${status}`, "aria-hidden": "true" }) : null, status || "all", counts[status]);
    b.status = status;
    return b;
  });
  onStats((stats) => {
    for (const state of STATES) setText(counts[state], compact(stats[state] ?? stats.totals[state]));
  }, signal);
  return { node: h("div", { class: "tabs", role: "group", "aria-label": "Status" }, tabs), show: (now) => tabs.forEach((b) => b.setAttribute("aria-pressed", String((now.status || "") === b.status))) };
}

function typed(props, change, name) {
  let timer = 0;
  const input = h("input", { type: "search", spellcheck: "false", autocomplete: "off", ...props });
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({ [name]: input.value.trim() }), 300);
  });
  return input;
}

function labelled(text, control, cls = "") {
  control.id = `filter-${text.toLowerCase()}`;
  return h("div", { class: `inline-field ${cls}` }, h("label", { class: "field-name", for: control.id }, text), control);
}

function filterBar(f, change, signal) {
  const text = typed({ value: f.q || "", placeholder: "Text in input, output, error or key", class: "grow" }, change, "q");
  const type = typed({ value: f.type || "", placeholder: "any", list: "type-names" }, change, "type");
  const keyed = typed({ value: f.key || "", placeholder: "any" }, change, "key");
  const names = h("datalist", { id: "type-names" });
  const span = h("select", {}, Object.entries(SPANS).map(([v, t]) => h("option", { value: v }, t)));
  span.value = f.from || f.to ? "custom" : f.span || "";
  const from = h("input", { type: "datetime-local", value: toLocal(f.from), on: { change: (e) => change({ from: fromLocal(e.target.value) }) } });
  const to = h("input", { type: "datetime-local", value: toLocal(f.to), on: { change: (e) => change({ to: fromLocal(e.target.value) }) } });
  const custom = h("div", { class: "custom-time", hidden: span.value !== "custom" }, labelled("From", from), labelled("To", to));
  span.addEventListener("change", () => {
    custom.hidden = span.value !== "custom";
    change(span.value === "custom" ? { span: "" } : { span: span.value, from: "", to: "" });
  });
  const order = h("select", { on: { change: (e) => change({ order: e.target.value }) } }, h("option", { value: "" }, "Newest first"), h("option", { value: "asc" }, "Oldest first"));
  order.value = f.order || "";
  const clear = button("Clear", { icon: "close", kind: "ghost", onclick: () => go("/jobs") });
  const error = h("p", { class: "error-filter" });
  const fields = h("div", { class: "filter-more", id: "filter-more" }, labelled("Type", type), labelled("Key", keyed), labelled("Created", span), labelled("Order", order), custom);
  const toggle = button("Filters", { icon: "filter", "aria-expanded": "false", "aria-controls": "filter-more", onclick: () => open(fields.dataset.open !== "true") });
  toggle.classList.add("filter-toggle");
  function open(on) {
    fields.dataset.open = String(on);
    toggle.setAttribute("aria-expanded", String(on));
  }
  open(["type", "key", "span", "from", "to"].some((name) => f[name])); // on a narrow screen they are folded
  get("/types", { signal }).then(({ items }) => fill(names, items.map((t) => h("option", { value: t.type })))).catch(() => {});
  const show = (now) => {
    clear.hidden = !Object.keys(now).some((k) => k !== "order");
    error.hidden = !now.error;
    fill(error, "With the error ", h("code", {}, now.error || ""), " ", button("Any error", { small: true, kind: "ghost", onclick: () => change({ error: "" }) }));
  };
  show(f);
  const node = h("form", { class: "filters", role: "search", on: { submit: (e) => e.preventDefault() } },
    labelled("Search", text, "wide"), toggle, fields, clear, error, names);
  return { node, text, show };
}

// ---- the list ----

// The beginning of what went in, and why it failed.
function detail(j) {
  const input = j.input === null || j.input === undefined ? null : JSON.stringify(j.input).slice(0, 160);
  return [input && h("span", { class: "clip faint mono", title: input }, input), j.error && h("span", { class: "clip bad-text", title: firstLine(j.error) }, firstLine(j.error))];
}

function row(j, picked, onPick) {
  const box = h("input", { type: "checkbox", "aria-label": `Select job ${j.id}`, checked: picked.has(j.id) });
  box.addEventListener("click", (e) => onPick(j, box.checked, e.shiftKey));
  return h("tr", { tabindex: "-1", class: picked.has(j.id) ? "picked" : "" },
    mayWrite() && h("td", { class: "pick" }, box),
    cell("Job", link(`/jobs/${j.id}`, `#${j.id}`, { class: "mono idlink" })),
    cell("Type", h("span", { class: "clip strong", title: j.type }, j.type), j.key && h("span", { class: "clip" }, tag(j.key, "key"))),
    cell("Status", h("div", {}, badge(j.state), ["scheduled", "retrying"].includes(j.state) && h("p", { class: "faint" }, ago(j.scheduled_for)))),
    numCell("Attempts", j.attempt),
    cell("Created", ago(j.created_at)),
    numCell("Ran", took(j)),
    h("td", { class: "detail", data: { name: "Input" } }, detail(j)));
}

class List {
  constructor(view) {
    this.view = view;
    this.filter = filterOf(view.query);
    this.cursors = view.query.get("cursor") ? [view.query.get("cursor")] : [];
    this.items = [];
    this.picked = new Map(); // id → job
    this.everything = false; // all that match, not only those that are seen
    this.at = -1;
    this.run = 0;
  }

  draw() {
    const { root, signal } = this.view;
    const change = (part) => this.change(part);
    this.all = h("input", { type: "checkbox", "aria-label": "Select all on this page", on: { click: () => this.pickAll(this.all.checked) } });
    const columns = [{ name: "Job", class: "c-job" }, { name: "Type", class: "c-type" }, { name: "Status", class: "c-status" }, { name: "Attempts", class: "num c-attempts" }, { name: "Created", class: "c-created" }, { name: "Ran", class: "num c-ran" }, { name: "Input" }];
    if (mayWrite()) columns.unshift({ name: "Select", node: this.all, class: "pick" });
    this.table = table("Jobs", columns, { class: "stack jobs" });
    this.tabs = statusTabs(this.filter, change, signal);
    this.filters = filterBar(this.filter, change, signal);
    this.box = h("div", { class: "list-box" }, skeleton(10));
    this.pager = h("nav", { class: "pager", "aria-label": "Pages" });
    this.bulk = h("div", { class: "bulk", hidden: true, role: "region", "aria-label": "Selected jobs" });
    this.enqueueButton = mayWrite() && button("Enqueue", { icon: "plus", kind: "primary", onclick: enqueue });
    fill(root, pageHead("Jobs", { actions: this.enqueueButton }), h("div", { class: "card flush" }, this.tabs.node, this.filters.node, this.box, this.pager), this.bulk);
    this.keys();
  }

  keys() {
    const o = { group: "List of jobs", signal: this.view.signal };
    key("/", "Search", () => this.filters.text.focus(), o);
    key("j", "Next job", () => this.step(1), o);
    key("k", "Previous job", () => this.step(-1), o);
    key("x", "Select the job", () => this.items[this.at] && this.pick(this.items[this.at], !this.picked.has(this.items[this.at].id)), o);
    key("Enter", "Open the job", (e) => {
      if (e.target.closest("a, button, summary")) e.target.click();
      else if (this.items[this.at]) go(`/jobs/${this.items[this.at].id}`);
    }, o);
    key("n", "Next page", () => this.next(), o);
    key("p", "Previous page", () => this.previous(), o);
  }

  step(by) {
    this.at = Math.max(0, Math.min(this.items.length - 1, this.at + by));
    const tr = this.table.body.children[this.at];
    if (tr) tr.focus();
  }

  change(part) {
    for (const [k, v] of Object.entries(part)) {
      if (v) this.filter[k] = v;
      else delete this.filter[k];
    }
    this.cursors = [];
    this.clearPicks();
    this.tabs.show(this.filter);
    this.filters.show(this.filter);
    this.at = -1;
    note(address(this.filter, []));
    this.load().catch((e) => this.failed(e));
  }

  failed(e) {
    if (e.name !== "AbortError") fill(this.box, failure(e, () => this.change({})));
  }

  // Follows cursors over stretches without a match until there is a page of rows, the end, or enough rows were read.
  async fetchPage(cursor, alive) {
    const items = [];
    const until = performance.now() + SEARCH_MS;
    for (let hop = 0; ; hop++) {
      const answer = await get("/jobs", { signal: this.view.signal, query: { ...asked(this.filter), cursor, limit: LIMIT - items.length } });
      items.push(...answer.items);
      cursor = answer.next_cursor;
      if (!cursor || items.length >= LIMIT || !alive() || performance.now() > until) break;
      if (hop === 0) announce("Searching");
    }
    return { items, next: cursor };
  }

  async load() {
    const run = ++this.run;
    this.box.setAttribute("aria-busy", "true");
    const page = await this.fetchPage(this.cursors.at(-1), () => run === this.run);
    if (run !== this.run || this.view.signal.aborted) return;
    this.box.removeAttribute("aria-busy");
    this.items = page.items;
    this.nextCursor = page.next;
    this.show();
  }

  show() {
    if (!this.items.length) this.showNothing();
    else {
      reconcile(this.table.body, this.items, (j) => j.id, (j) => row(j, this.picked, (...a) => this.pick(...a)));
      if (this.table.node.parentNode !== this.box) fill(this.box, this.table.node);
    }
    const older = button("Next", { small: true, "data-focus": "next", onclick: () => this.next() });
    const newer = button("Previous", { small: true, onclick: () => this.previous() });
    older.disabled = !this.nextCursor;
    newer.disabled = !this.cursors.length;
    const text = this.items.length ? `${plural(this.items.length, "job")} on this page` : "";
    if (this.pager.state !== `${text}${older.disabled}${newer.disabled}`) {
      this.pager.state = `${text}${older.disabled}${newer.disabled}`;
      const had = this.pager.contains(document.activeElement);
      fill(this.pager, h("span", { class: "faint" }, text), h("div", { class: "actions" }, newer, older));
      if (had) (older.disabled ? newer : older).focus();
    }
    this.pager.hidden = !this.items.length && !this.cursors.length && !this.nextCursor;
    this.showBulk();
  }

  showNothing() {
    const filtered = Object.keys(this.filter).some((k) => k !== "order");
    if (this.nextCursor) fill(this.box, empty("search", "Nothing found so far", "There are more jobs to search.", button("Continue searching", { onclick: () => this.next() })));
    else if (filtered || this.cursors.length) fill(this.box, empty("search", "No job matches", "Widen the filter, or show all jobs.", button("Clear the filter", { onclick: () => go("/jobs") })));
    else fill(this.box, empty("drop", "No jobs yet", "Enqueue one, and it appears here:", firstJob()));
  }

  next() {
    if (!this.nextCursor) return;
    this.cursors.push(this.nextCursor);
    this.turn();
  }

  previous() {
    if (!this.cursors.length) return;
    this.cursors.pop();
    this.turn();
  }

  turn() {
    this.at = -1;
    this.clearPicks();
    note(address(this.filter, this.cursors));
    this.load().then(() => window.scrollTo(0, 0)).catch((e) => this.failed(e));
  }

  // ---- selection ----

  pick(job, on, range) {
    const i = this.items.findIndex((x) => x.id === job.id);
    const from = range && this.lastPick >= 0 ? Math.min(i, this.lastPick) : i;
    const to = range && this.lastPick >= 0 ? Math.max(i, this.lastPick) : i;
    for (const x of this.items.slice(from, to + 1)) {
      if (on) this.picked.set(x.id, x);
      else this.picked.delete(x.id);
    }
    this.lastPick = i;
    this.everything = false;
    this.showPicks();
  }

  pickAll(on) {
    this.picked = new Map(on ? this.items.map((x) => [x.id, x]) : []);
    this.everything = false;
    this.showPicks();
  }

  clearPicks() {
    this.picked.clear();
    this.everything = false;
    this.lastPick = -1;
    this.showPicks();
  }

  showPicks() {
    for (const tr of this.table.body.children) {
      const on = this.picked.has(tr.dataset.key);
      tr.classList.toggle("picked", on);
      const box = tr.querySelector("input");
      if (box) box.checked = on;
    }
    this.showBulk();
  }

  showBulk() {
    const n = this.picked.size;
    this.all.checked = n > 0 && n === this.items.length;
    this.all.indeterminate = n > 0 && n < this.items.length;
    this.bulk.hidden = n === 0;
    const state = `${n}/${this.everything}/${this.items.length}/${this.nextCursor}`;
    if (n === 0 || this.bulk.state === state) return;
    this.bulk.state = state;
    const filtered = Object.keys(this.filter).some((k) => k !== "order");
    const more = !this.everything && filtered && n === this.items.length && (this.nextCursor || this.cursors.length);
    const what = this.everything ? "All jobs that match the filter" : `${plural(n, "job")} selected`;
    fill(this.bulk, h("p", { class: "strong", role: "status" }, what),
      more && button("Select all that match", { kind: "ghost", small: true, onclick: () => {
        this.everything = true;
        this.showBulk();
      } }),
      h("div", { class: "actions" }, Object.entries(VERBS).map(([v, { name, icon }]) => button(name, { small: true, kind: v === "delete" ? "danger" : "", icon, onclick: () => this.act(v) })),
        button("Clear the selection", { icon: "close", kind: "ghost", small: true, hideLabel: true, onclick: () => this.clearPicks() })));
  }

  async act(verb) {
    const { name, done, keep, text, danger } = VERBS[verb];
    const { order, ...filter } = asked(this.filter);
    const chains = [...new Set([...this.picked.values()].map((j) => j.chain_id))];
    try {
      let changed;
      if (this.everything) {
        const { matched, more } = await countMany(verb, filter);
        const count = `${more ? "more than " : ""}${plural(matched, "chain")}`;
        if (!matched) return void toast(`No job that matches the filter can be changed so: ${text}`, "bad");
        changed = await ask({ title: `${name} ${count}?`, text: `All that match the filter. ${text}`, action: `${name} ${count}`, dismiss: keep, danger, send: () => changeMany(verb, { filter }) });
      } else if (danger) {
        const count = plural(chains.length, "chain");
        changed = await ask({ title: `${name} ${count}?`, text, action: `${name} ${count}`, dismiss: keep, danger, send: () => changeMany(verb, { chains }) });
      } else {
        changed = await changeMany(verb, { chains });
      }
      if (changed === null) return undefined;
      const skipped = this.everything ? 0 : chains.length - changed;
      toast(`${plural(changed, "chain")} ${done}${skipped ? `; ${plural(skipped, "other")} skipped because of their state` : ""}`);
      this.clearPicks();
      return await this.load();
    } catch (e) {
      return problem(e);
    }
  }
}

async function enqueue() {
  const isWhole = (t) => (/^-?\d{1,9}$/.test(t.trim() || "0") ? null : "The priority must be a whole number.");
  const isDelay = (t) => (delayMs(t) === null ? "The delay must be a number with a unit, such as 90s, 10m, 2h or 1d." : null);
  const answer = await ask({ title: "Enqueue a job", action: "Enqueue", fields: [
    { name: "type", label: "Type", required: true, placeholder: "hello", list: "type-names", check: (t) => (t.trim() ? null : "A job needs a type.") },
    { name: "input", label: "Input (JSON)", multiline: true, placeholder: '{"name": "world"}', check: isJson },
    { name: "priority", label: "Priority", half: true, placeholder: "0", check: isWhole, hint: "Lower runs first." },
    { name: "delay", label: "Delay", half: true, placeholder: "none", check: isDelay, hint: "For example 90s, 10m, 2h or 1d." },
    { name: "key", label: "Key", placeholder: "none", hint: "While a chain with this key has not ended, no second one is started." },
  ], send: (v) => {
    const job = { type: v.type.trim(), input: JSON.parse(v.input.trim() || "null"), priority: Number(v.priority) };
    if (delayMs(v.delay)) job.in_ms = delayMs(v.delay);
    if (v.key.trim()) job.key = v.key.trim();
    return post("/chains", job);
  } });
  if (!answer) return;
  toast(answer.existing ? `Chain ${answer.chain_id} already has this key` : `Job ${answer.chain_id} enqueued`);
  await go(`/jobs/${answer.chain_id}`);
}

export async function jobs(view) {
  const list = new List(view);
  list.draw();
  await list.load().catch((e) => list.failed(e));
  // The first page follows what happens; a page further down, or with a selection, holds still.
  poll(view.signal, 2000, async () => {
    if (!list.cursors.length && !list.picked.size && !document.querySelector("dialog[open]")) await list.load();
  });
}

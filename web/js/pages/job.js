// SPDX-License-Identifier: Apache-2.0
// One job: its chain, its attempts, how long it waited and ran, what went in, what came out, and what it writes now.
import { h, fill } from "../dom.js";
import { del, enc, get, post } from "../api.js";
import { ago, clock, duration, firstLine, plural } from "../format.js";
import { chainGraph } from "../graph.js";
import { jsonView } from "../jsonview.js";
import { go } from "../router.js";
import { mayWrite } from "../session.js";
import { Terminal } from "../terminal.js";
import { timeline } from "../timeline.js";
import { ask, badge, button, card, fact, isJson, jobLink, link, pageHead, poll, problem, skeleton, tag, toast, workerName } from "../ui.js";

const FINAL = ["completed", "failed", "cancelled"];

// ---- what can be done ----

const ACTIONS = [
  { name: "retry", label: "Retry", icon: "retry", kind: "primary", when: (c) => ["failed", "cancelled"].includes(c.status), done: "The chain will run again" },
  { name: "trigger", label: "Run now", icon: "bolt", when: (c) => ["scheduled", "retrying"].includes(c.state), done: "The job is due now" },
  { name: "cancel", label: "Cancel", icon: "close", when: (c) => !FINAL.includes(c.status), done: (c) => `${c.jobs.length > 1 ? "Chain" : "Job"} cancelled`, danger: true, sure: cancelWords },
  { name: "complete", label: "Complete …", icon: "check", when: (c) => !FINAL.includes(c.status), done: "Chain completed", field: { name: "output", label: "Output (JSON)", multiline: true, check: isJson }, body: (v) => ({ output: v.output.trim() ? JSON.parse(v.output) : null }) },
  { name: "fail", label: "Fail …", icon: "failures", when: (c) => !FINAL.includes(c.status), done: "Chain failed", danger: true, field: { name: "error", label: "Error", required: true }, body: (v) => ({ error: v.error }) },
];

const whatOf = (c) => (c.jobs.length > 1 ? "chain" : "job");
const keepWords = (c) => (c.status === "running" ? "Keep running" : `Keep the ${whatOf(c)}`);

function cancelWords(c) {
  return { title: `Cancel this ${whatOf(c)}?`, action: `Cancel ${whatOf(c)}`,
    text: `${c.status === "running" ? "Stops the running attempt. " : ""}${c.jobs.length > 1 ? "No further job of the chain is started." : "It does not run any more, unless you retry it."}` };
}

async function act(action, chain, load) {
  const send = async (data = {}) => {
    await post(`/chains/${enc(chain.id)}/${action.name}`, data);
    toast(typeof action.done === "function" ? action.done(chain) : action.done);
    await load();
    return true;
  };
  const name = action.label.replace(" …", "");
  if (action.sure) await ask({ ...action.sure(chain), dismiss: keepWords(chain), danger: action.danger, send: () => send() });
  else if (action.field) await ask({ title: `${name} this ${whatOf(chain)}`, text: "It ends without running further.", action: `${name} ${whatOf(chain)}`, dismiss: keepWords(chain), danger: action.danger, fields: [action.field], send: (v) => send(action.body(v)) });
  else await send().catch(problem);
}

// The same once more: a new job with the input of the chain's first one, in all its digits.
async function runAgain(chain) {
  try {
    const first = await get(`/jobs/${enc(chain.id)}`, { exact: true });
    const { chain_id: id } = await post("/chains", { type: first.type, input: first.input, priority: first.priority });
    toast(`Job ${id} enqueued with the same input`);
    await go(`/jobs/${id}`);
  } catch (e) {
    problem(e);
  }
}

async function remove(chain, leave) {
  const others = (chain.blocked || []).length;
  const gone = await ask({ title: `Delete ${whatOf(chain)} ${chain.id}?`, action: `Delete ${whatOf(chain)}`, dismiss: `Keep the ${whatOf(chain)}`, danger: true,
    text: `Its ${plural(chain.jobs.length, "job")}, attempts and output are deleted. This can't be undone.${others ? ` ${plural(others, "chain waits", "chains wait")} for it.` : ""}`,
    fields: others ? [{ name: "cascade", label: "Also delete the chains that wait for it", type: "checkbox" }] : [],
    send: async (v) => {
      leave(true); // what is gone is not asked for any more
      await del(`/chains/${enc(chain.id)}`, v.cascade ? { cascade: 1 } : {}).catch((e) => {
        leave(false);
        throw e;
      });
      return true;
    } });
  if (!gone) return;
  toast(`${chain.jobs.length > 1 ? "Chain" : "Job"} ${chain.id} deleted`);
  await go("/jobs");
}

function actions(chain, load, leave) {
  if (!mayWrite()) return null;
  return [...ACTIONS.filter((a) => a.when(chain)).map((a) => button(a.label, { icon: a.icon, kind: a.kind || "", onclick: () => act(a, chain, load) })),
    FINAL.includes(chain.status) && button("Run again", { icon: "play", kind: chain.status === "completed" ? "primary" : "", title: "Enqueue a new job with the same type, input and priority", onclick: () => runAgain(chain) }),
    button("Delete", { icon: "trash", kind: "ghost danger-text", onclick: () => remove(chain, leave) })];
}

// ---- what it is ----

function facts(job, chain) {
  const scheduled = job.scheduled_for && job.status === "pending" && Date.parse(job.scheduled_for) - Date.parse(job.created_at) > 1000;
  return h("dl", { class: "facts" },
    fact("Created", ago(job.created_at)),
    scheduled && fact("Due", ago(job.scheduled_for)),
    job.started_at && fact("Started", ago(job.started_at)),
    job.ended_at && FINAL.includes(job.status) && fact("Ended", ago(job.ended_at)),
    fact("Attempts", String(Math.max(job.attempt, (job.attempts || []).length))),
    job.leased_by && fact("Worker", link(`/workers/${enc(job.leased_by)}`, workerName(job.leased_by))),
    job.leased_until && job.status === "running" && fact("Lease expires", ago(job.leased_until)),
    fact("Priority", String(job.priority)),
    job.key && fact("Key", tag(job.key, "key")),
    fact("Chain", chain.jobs.length > 1 ? `${plural(chain.jobs.length, "job")}, from ` : "", jobLink(job.chain_id)),
    job.blockers_open ? fact("Waits for", plural(job.blockers_open, "chain")) : null,
    job.traceparent && fact("Trace", h("span", { class: "mono wrap-any" }, job.traceparent)));
}

function attempt(a) {
  const took = a.ended_at && a.started_at ? duration(Date.parse(a.ended_at) - Date.parse(a.started_at)) : "";
  return h("li", { class: "attempt" },
    h("div", { class: "attempt-head" }, h("b", {}, `Attempt ${a.attempt}`), tag(a.outcome, { running: "live", completed: "good", continued: "good", failed: "bad", lost: "bad", aborted: "bad" }[a.outcome] || ""),
      h("span", { class: "faint" }, a.started_at ? clock(a.started_at) : "", took && ` · ${took}`, a.worker && [" · ", workerName(a.worker)])),
    a.error && h("pre", { class: "error-text" }, a.error));
}

function attempts(job) {
  const list = [...(job.attempts || [])].reverse();
  return list.length ? h("ol", { class: "attempts" }, list.slice(0, 50).map(attempt)) : h("p", { class: "hint pad" }, "Not started yet.");
}

function data(name, value, none) {
  return card(name, {}, value === null || value === undefined ? h("p", { class: "hint pad" }, none) : jsonView(value, name));
}

// A share of the whole, when the job reports one: 0.4, {"percent": 40}, {"done": 4, "total": 10}.
function share(p) {
  if (typeof p === "number") return p <= 1 ? p : p / 100;
  if (p === null || typeof p !== "object") return null;
  if (typeof p.percent === "number") return p.percent / 100;
  return typeof p.done === "number" && p.total > 0 ? p.done / p.total : null;
}

function progressCard(p) {
  if (p === null || p === undefined) return null;
  const part = share(p);
  return card("Progress", {}, part !== null && h("div", { class: "progress" }, h("progress", { max: 1, value: Math.max(0, Math.min(1, part)), "aria-label": "Progress" }), h("b", {}, `${Math.round(part * 100)} %`)), jsonView(p, "Progress"));
}

class JobPage {
  constructor(view) {
    this.view = view;
    this.id = view.params.id;
    this.head = h("div", { class: "job-head" }, pageHead(`Job #${this.id}`), skeleton(3));
    this.facts = h("div");
    this.graph = card("Chain", {}, skeleton(2));
    this.line = timeline();
    this.attempts = h("div");
    this.bar = h("div");
    this.input = h("div");
    this.output = h("div");
  }

  draw() {
    const { root, signal } = this.view;
    this.terminal = new Terminal(this.id, signal, (p) => this.progress(p));
    fill(root, this.head, this.facts, h("div", { class: "grid wide-left" },
      h("div", { class: "stack-col" }, this.graph, card("Output, live", { label: "Output, live", class: "term-card" }, this.terminal.node)),
      h("div", { class: "stack-col" }, card("Waited and ran", {}, this.line.node), this.bar, card("Attempts", {}, this.attempts), this.input, this.output)));
  }

  // Parts are drawn anew only when what they show has changed: a selection and the focus stay.
  part(node, state, make) {
    const print = JSON.stringify(state);
    if (node.print === print) return;
    const had = node.contains(document.activeElement) ? document.activeElement.textContent : null;
    node.print = print;
    fill(node, make());
    if (had) [...node.querySelectorAll("a, button")].find((x) => x.textContent === had)?.focus();
  }

  show(job, chain) {
    const title = () => pageHead(h("span", { class: "job-title" }, h("span", { class: "job-type" }, job.type), badge(job.state)), {
      crumbs: h("nav", { class: "crumbs", "aria-label": "Path" }, link("/jobs", "Jobs"), " / ", h("span", { class: "mono" }, `#${job.id}`)),
      actions: actions(chain, () => this.load(), (on) => (this.leaving = on)) });
    const waits = job.served === false;
    this.part(this.head, [job.state, job.type, job.error, chain.status, (chain.blocked || []).length, waits], () => [title(), job.error && job.status !== "completed" && h("p", { class: "banner bad" }, firstLine(job.error)),
      waits && h("p", { class: "banner warn" }, `No worker serves ${job.type}. The job waits until one does.`)]);
    const factsOf = { ...job, input: null, output: null, attempts: (job.attempts || []).length, progress: null };
    this.part(this.facts, [factsOf, chain.jobs.length], () => facts(job, chain));
    this.part(this.graph, [chain.jobs.map((j) => [j.id, j.status]), chain.blockers, chain.blocked, chain.status], () => [h("header", { class: "card-head" }, h("h2", {}, "Chain"), h("span", { class: "faint" }, chainWords(chain))), chainGraph(chain, job.id)]);
    this.part(this.attempts, job.attempts, () => attempts(job));
    this.part(this.input, [job.input], () => data("Input", job.input, "No input."));
    this.part(this.output, [job.output, job.status, job.next_id], () => [
      data("Output", job.status === "completed" && !job.next_id ? job.output : job.output ?? null, job.next_id ? ["Continued by ", jobLink(job.next_id), "."] : FINAL.includes(job.status) ? "No output." : "Not completed yet.")]);
    if (this.liveProgress === undefined) this.progress(job.progress, false);
    this.line.show(job);
    if (FINAL.includes(job.status)) this.roundsAfterEnd = (this.roundsAfterEnd || 0) + 1;
    else this.roundsAfterEnd = 0;
  }

  progress(p, live = true) {
    if (live) this.liveProgress = p;
    this.part(this.bar, [p], () => progressCard(p));
  }

  async load() {
    const { signal } = this.view;
    const job = await get(`/jobs/${enc(this.id)}`, { signal, exact: true });
    const chain = await get(`/chains/${enc(job.chain_id)}`, { signal });
    if (signal.aborted) return;
    this.show(job, chain);
    this.view.root.dataset.title = `${job.type} #${job.id}, ${job.state}`;
    document.title = `${this.view.root.dataset.title} – Sluice`;
  }
}

function chainWords(chain) {
  const open = (chain.blockers || []).filter((b) => b.status !== "completed").length;
  if (open) return `waits for ${plural(open, "chain")}`;
  if ((chain.blocked || []).length && chain.status !== "completed") return `${plural(chain.blocked.length, "chain")} wait for it`;
  return plural(chain.jobs.length, "job");
}

export async function job(view) {
  const page = new JobPage(view);
  fill(view.root, page.head);
  await page.load();
  page.draw();
  const timer = setInterval(() => page.line.tick(), 500);
  view.signal.addEventListener("abort", () => clearInterval(timer));
  // A job that has ended is polled less and less often: it may be retried elsewhere.
  let turn = 0;
  poll(view.signal, 1000, async () => {
    if (page.leaving || (page.roundsAfterEnd && turn++ % Math.min(10, page.roundsAfterEnd + 1))) return;
    await page.load();
  });
}

// A chain has no separate page: it is shown on the page of its newest job.
export async function chain({ params, signal, root }) {
  fill(root, pageHead(`Chain ${params.id}`), skeleton(3));
  const c = await get(`/chains/${enc(params.id)}`, { signal });
  await go(`/jobs/${c.last_id || (c.jobs.length ? c.jobs.at(-1).id : c.id)}`, { replace: true });
}

// SPDX-License-Identifier: Apache-2.0
// Recurring schedules: what is enqueued by the clock.
import { h, fill, reconcile } from "../dom.js";
import { del, enc, get, post, put } from "../api.js";
import { ago } from "../format.js";
import { mayWrite, storeOption } from "../session.js";
import { ask, button, cell, command, empty, isJson, jobLink, pageHead, poll, problem, skeleton, table, tag, toast } from "../ui.js";

const NAMES = { "@hourly": "every hour", "@daily": "every day at midnight", "@weekly": "every Sunday at midnight", "@monthly": "on the first of every month", "@yearly": "on the first of January" };

function inWords(spec) {
  if (NAMES[spec]) return NAMES[spec];
  const [m, hour, day, month, week] = spec.trim().split(/\s+/);
  if (week === undefined) return "";
  const every = /^\*\/(\d+)$/.exec(m);
  const rest = [day, month, week].every((x) => x === "*");
  if (every && hour === "*" && rest) return `every ${every[1]} minutes`;
  if (m === "*" && hour === "*" && rest) return "every minute";
  if (/^\d+$/.test(m) && hour === "*" && rest) return `every hour at minute ${m}`;
  if (/^\d+$/.test(m) && /^\d+$/.test(hour) && rest) return `every day at ${hour.padStart(2, "0")}:${m.padStart(2, "0")} UTC`;
  return "";
}

const store = (c, load) => put(`/cron/${enc(c.name)}`, { spec: c.spec, type: c.type, input: c.input, priority: c.priority || 0, catch_up: c.catch_up, paused: c.paused }).then(load);

async function save(c, load) {
  const saved = await ask({ title: c ? `Change ${c.name}` : "Add a schedule", action: c ? "Save" : "Add", fields: [
    { name: "name", label: "Name", value: c?.name, required: true, placeholder: "nightly", hint: "An existing schedule with this name is replaced." },
    { name: "spec", label: "Schedule (UTC)", value: c?.spec, required: true, placeholder: "30 2 * * *", hint: "Minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly." },
    { name: "type", label: "Job type", value: c?.type, required: true, placeholder: "report" },
    { name: "input", label: "Input (JSON)", value: c?.input === undefined || c.input === null ? "" : JSON.stringify(c.input, null, 2), multiline: true, check: isJson },
    { name: "catch_up", label: "Enqueue missed ticks", type: "checkbox", value: c?.catch_up },
  ], send: async (v) => {
    const name = v.name.trim();
    await store({ name, spec: v.spec.trim(), type: v.type.trim(), input: v.input.trim() ? JSON.parse(v.input) : null, priority: c?.priority, catch_up: v.catch_up, paused: Boolean(c?.paused) }, load);
    return name;
  } });
  if (saved) toast(`Schedule ${saved} saved`);
}

async function remove(c, load) {
  const gone = await ask({ title: `Remove the schedule ${c.name}?`, text: "It enqueues no further jobs. Jobs that it already enqueued stay.", action: "Remove schedule", dismiss: "Keep it", danger: true, send: async () => {
    await del(`/cron/${enc(c.name)}`);
    await load();
    return true;
  } });
  if (gone) toast(`Schedule ${c.name} removed`);
}

async function runNow(c) {
  try {
    const { chain_id: id } = await post("/chains", { type: c.type, input: c.input, priority: c.priority });
    toast(`Job ${id} enqueued`, "good", jobLink(id));
  } catch (e) {
    problem(e);
  }
}

async function pause(c, load) {
  try {
    await store({ ...c, paused: !c.paused }, load);
    toast(c.paused ? `${c.name} resumed` : `${c.name} paused: it enqueues nothing until it is resumed`);
  } catch (e) {
    problem(e);
  }
}

function row(c, load) {
  return h("tr", {},
    cell("Name", h("span", { class: "strong wrap-any" }, c.name)),
    cell("Schedule", h("div", {}, h("code", {}, c.spec), h("p", { class: "faint" }, inWords(c.spec)))),
    cell("Type", h("div", {}, tag(c.type), c.catch_up && [" ", tag("catches up")])),
    cell("Next", c.paused ? tag("paused", "warn") : ago(c.next_at)),
    cell("Last", c.last_chain ? h("span", {}, ago(c.last_at), " ", jobLink(c.last_chain)) : h("span", { class: "faint" }, "not yet")),
    h("td", { class: "end" }, mayWrite() && h("div", { class: "actions" },
      button("Run now", { icon: "bolt", small: true, "aria-label": `Run now: ${c.name}`, onclick: () => runNow(c) }),
      button(c.paused ? "Resume" : "Pause", { icon: c.paused ? "play" : "pause", small: true, kind: c.paused ? "primary" : "", "aria-label": `${c.paused ? "Resume" : "Pause"} ${c.name}`, onclick: () => pause(c, load) }),
      button("Change", { small: true, "aria-label": `Change ${c.name}`, onclick: () => save(c, load) }),
      button("Remove", { icon: "trash", small: true, kind: "ghost", hideLabel: true, "aria-label": `Remove ${c.name}`, onclick: () => remove(c, load) }))));
}

export async function cron({ root, signal }) {
  const { node, body } = table("Schedules", [{ name: "Name" }, { name: "Schedule" }, { name: "Type" }, { name: "Next" }, { name: "Last" }, { name: "Actions", hidden: true }], { class: "stack" });
  const box = h("div", { class: "card" }, skeleton(4));
  async function load() {
    const { items } = await get("/cron", { signal, exact: true });
    if (!items.length) return fill(box, empty("cron", "No schedules yet", "A schedule enqueues a job at fixed times. Each tick is enqueued exactly once, however many workers run.", command(`sluice cron add${storeOption()} nightly '30 2 * * *' report '{"kind":"full"}'`)));
    reconcile(body, items, (c) => c.name, (c) => row(c, load));
    if (node.parentNode !== box) fill(box, node);
  }
  fill(root, pageHead("Schedules", { text: "Times are UTC.", actions: mayWrite() && button("Add a schedule", { icon: "plus", kind: "primary", onclick: () => save(undefined, load) }) }), box);
  await load();
  poll(signal, 5000, load);
}

// SPDX-License-Identifier: Apache-2.0
// Recurring schedules: what is enqueued by the clock.
import { h, fill, reconcile } from "../dom.js";
import { del, enc, get, put } from "../api.js";
import { ago } from "../format.js";
import { mayWrite } from "../session.js";
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

function form(c = {}) {
  return ask({ title: c.name ? `Change ${c.name}` : "Add a schedule", action: c.name ? "Save" : "Add", fields: [
    { name: "name", label: "Name", value: c.name, required: true, placeholder: "nightly", hint: "An existing schedule with this name is replaced." },
    { name: "spec", label: "Schedule (UTC)", value: c.spec, required: true, placeholder: "30 2 * * *", hint: "Minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly." },
    { name: "type", label: "Job type", value: c.type, required: true, placeholder: "report" },
    { name: "input", label: "Input (JSON)", value: c.input === undefined || c.input === null ? "" : JSON.stringify(c.input, null, 2), multiline: true, check: isJson },
    { name: "catch_up", label: "Enqueue missed ticks", type: "checkbox", value: c.catch_up },
  ] });
}

async function save(c, load) {
  const v = await form(c);
  if (!v) return;
  try {
    await put(`/cron/${enc(v.name.trim())}`, { spec: v.spec.trim(), type: v.type.trim(), input: v.input.trim() ? JSON.parse(v.input) : null, priority: c ? c.priority : 0, catch_up: v.catch_up });
    toast(`Schedule ${v.name} saved`);
    await load();
  } catch (e) {
    problem(e);
  }
}

async function remove(c, load) {
  if (!(await ask({ title: `Remove ${c.name}?`, text: "Jobs that it already enqueued stay.", action: "Remove", danger: true }))) return;
  try {
    await del(`/cron/${enc(c.name)}`);
    toast(`Schedule ${c.name} removed`);
    await load();
  } catch (e) {
    problem(e);
  }
}

function row(c, load) {
  return h("tr", {},
    cell("Name", h("span", { class: "strong" }, c.name)),
    cell("Schedule", h("code", {}, c.spec), h("p", { class: "faint" }, inWords(c.spec))),
    cell("Type", tag(c.type), c.catch_up && [" ", tag("catches up")]),
    cell("Next", ago(c.next_at)),
    cell("Last", c.last_chain ? [ago(c.last_at), " ", jobLink(c.last_chain)] : h("span", { class: "faint" }, "not yet")),
    h("td", { class: "end" }, mayWrite() && h("div", { class: "actions" },
      button("Change", { small: true, "aria-label": `Change ${c.name}`, onclick: () => save(c, load) }),
      button("Remove", { icon: "trash", small: true, kind: "ghost", hideLabel: true, "aria-label": `Remove ${c.name}`, onclick: () => remove(c, load) }))));
}

export async function cron({ root, signal }) {
  const { node, body } = table("Schedules", [{ name: "Name" }, { name: "Schedule" }, { name: "Type" }, { name: "Next" }, { name: "Last" }, { name: "Actions", hidden: true }], { class: "stack" });
  const box = h("div", { class: "card" }, skeleton(4));
  async function load() {
    const { items } = await get("/cron", { signal });
    if (!items.length) return fill(box, empty("cron", "No schedules yet", "A schedule enqueues a job at fixed times. Each tick is enqueued exactly once, however many workers run.", command("sluice cron add nightly '30 2 * * *' report '{\"kind\":\"full\"}'")));
    reconcile(body, items, (c) => c.name, (c) => row(c, load));
    if (node.parentNode !== box) fill(box, node);
  }
  fill(root, pageHead("Schedules", { text: "Times are UTC.", actions: mayWrite() && button("Add a schedule", { icon: "plus", kind: "primary", onclick: () => save(undefined, load) }) }), box);
  await load();
  poll(signal, 5000, load);
}

// SPDX-License-Identifier: Apache-2.0
// The commands that an empty page shows, for this server.
import { h } from "./dom.js";
import { command } from "./ui.js";

export function firstJob() {
  const run = `'{"type":"run","input":{"argv":["echo","hello, river"]}}'`;
  return h("div", { class: "commands" },
    command("sluice run --detach -- echo 'hello, river'", "On this machine, any command as a job; the worker of sluice up runs it:"),
    command(`curl -sS ${location.origin}/api/v1/chains -H 'Content-Type: application/json' -d ${run}`, "The same over HTTP:"),
    command(`sluice enqueue mail '{"to":"ada"}' && sluice worker --type mail='cat' --drain`, "A type of your own, and a worker for it:"));
}

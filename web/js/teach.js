// SPDX-License-Identifier: Apache-2.0
// The commands that an empty page shows, for this server and its store.
import { h } from "./dom.js";
import { storeOption } from "./session.js";
import { command } from "./ui.js";

export function firstJob() {
  const hello = `'{"type":"hello","input":{"name":"world"}}'`;
  return h("div", { class: "commands" },
    command(`sluice run${storeOption()} --detach -- echo 'hello, world'`, "Run any command as a job. A worker started by sluice up --command-from-input runs it:"),
    command(`curl -sS ${location.origin}/api/v1/chains -H 'Content-Type: application/json' -d ${hello}`, "Enqueue a job of your own type over HTTP:"),
    command(`sluice worker${storeOption()} --type hello=cat`, "Start a worker for it, with any command as the handler:"));
}

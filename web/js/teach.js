// SPDX-License-Identifier: Apache-2.0
// The commands that an empty page shows, for this server.
import { h } from "./dom.js";
import { command } from "./ui.js";

export function firstJob() {
  const hello = `'{"type":"hello","input":{"name":"world"}}'`;
  return h("div", { class: "commands" },
    command("sluice run --detach -- echo 'hello, world'", "Any command as a job, on this machine; a worker that sluice up --command-from-input starts runs it:"),
    command(`curl -sS ${location.origin}/api/v1/chains -H 'Content-Type: application/json' -d ${hello}`, "A type of your own, over HTTP:"),
    command("sluice worker --type hello=cat", "And a worker for it, with any command as the handler:"),
    h("p", { class: "hint" }, "Commands use the store in ~/.sluice; for another one, set SLUICE_STORE or give --store."));
}

// SPDX-License-Identifier: Apache-2.0
// The commands that an empty page shows, for this server.
import { h } from "./dom.js";
import { command } from "./ui.js";

export function firstJob() {
  const json = `'{"type":"hello","input":{"name":"world"}}'`;
  return h("div", { class: "commands" },
    command(`sluice enqueue hello '{"name":"world"}'`, "From a terminal on this machine:"),
    command(`curl -sS ${location.origin}/api/v1/chains -H 'Content-Type: application/json' -d ${json}`, "Or over HTTP, from anywhere that may:"),
    command(`sluice worker --type hello='echo hello, $SLUICE_JOB_ID'`, "And a worker that runs it, with any command as the handler:"));
}

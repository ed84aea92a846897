// SPDX-License-Identifier: Apache-2.0
// A real server in its own folder, a real browser, and what both must never do.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

const require = createRequire(path.join(process.env.SLUICE_WEB_MODULES, "x.js"));
const { chromium } = require("playwright-core");

export const [sluice, dlqPut] = process.argv.slice(2, 4);
const running = new Set();
export const EVIL = '"><img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script><svg onload=alert(1)>';

const PATIENCE = 90000; // only what never comes takes as long

// ---- the server ----

/*
 * The types that the worker of a test's server has, as shell commands. Those that wait do so for a file that the test
 * makes, so that "while it runs" is as long as the test needs it.
 */
const sh = String.raw;
const TYPES = {
  good: sh`echo done; echo '{"output":{"rows":7}}' >&3`,
  bad: sh`echo it breaks >&2; printf '%s\n' '{"fail":"disk <b>full</b>\nand a second line"}' >&3`,
  flaky: sh`echo 'not yet' >&2; exit 1`,
  first: sh`echo '{"continue_with":{"type":"good","input":{"from":"first"}}}' >&3`,
  hold: sh`while [ ! -e "$GATE" ]; do sleep 0.05; done`,
  talk: sh`printf '\033[32mgreen\033[0m and \033[1;31mbold red\033[0m\n<script>document.title=1</script>\n'; n=0; echo '{"progress":{"percent":40}}' >&3
    while [ ! -e "$GATE" ]; do n=$((n+1)); echo tick $n; sleep 0.1; done; echo last words >&2`,
  many: "seq 1 3000",
  evil: sh`printf '%s\n\033]0;owned\007\033[31m%s\n' "$EVIL" "$EVIL"`,
};

export class Server {
  constructor() {
    this.dir = mkdtempSync(path.join(tmpdir(), "sluice-web-"));
    this.gate = path.join(this.dir, "gate");
    this.data = path.join(this.dir, "data");
  }

  async start({ types = Object.keys(TYPES), flags = [], listen = "127.0.0.1:0" } = {}) {
    const args = ["up", "--data", this.data, "--listen", listen, "--shell", "--command-from-input", "--slots", "8", "--set", "jobs.max_attempts=1", ...flags];
    for (const t of types) args.push("--type", `${t}=${TYPES[t]}`);
    this.child = spawn(sluice, args, { env: { ...process.env, GATE: this.gate, EVIL }, stdio: ["ignore", "pipe", "pipe"] });
    running.add(this);
    this.log = "";
    this.child.stderr.on("data", (d) => (this.log = (this.log + d).slice(-20000)));
    this.ended = new Promise((resolve) => this.child.on("exit", (code, signal) => resolve(code ?? signal)));
    this.url = (await this.firstLine()).replace(/\/$/, "");
    return this;
  }

  firstLine() {
    return new Promise((resolve, reject) => {
      let text = "";
      this.child.stdout.on("data", (d) => {
        text += d;
        const m = /(https?:\/\/\S+)/.exec(text);
        if (m && text.includes("\n")) resolve(m[1]);
      });
      this.child.on("exit", (code) => reject(new Error(`the server ended with ${code} before it was up:\n${this.log}`)));
    });
  }

  async api(method, where, body, headers = {}) {
    const response = await fetch(`${this.url}/api/v1${where}`, { method, headers: { "Content-Type": "application/json", ...headers }, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${where}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  enqueue(type, input = null, more = {}) {
    return this.api("POST", "/chains", { type, input, ...more }).then((a) => a.chain_id);
  }

  async bulk(chains) {
    const out = [];
    for (let i = 0; i < chains.length; i += 10000) out.push(...(await this.api("POST", "/chains/bulk", { chains: chains.slice(i, i + 10000) })).chains);
    return out.map((c) => c.chain_id);
  }

  // Until the job is in that state, as the server reports it.
  async reached(id, ...states) {
    let job = null;
    await until(async () => states.includes((job = await this.api("GET", `/jobs/${id}`)).status), `job ${id} is ${states}`);
    return job;
  }

  openGate() {
    writeFileSync(this.gate, "");
  }

  closeGate() {
    rmSync(this.gate, { force: true });
  }

  tokens(list) {
    const file = path.join(this.dir, "tokens");
    writeFileSync(file, list.map(({ name, role, token }) => `${name} ${role} sha256:${createHash("sha256").update(token).digest("hex")}\n`).join(""));
    chmodSync(file, 0o600);
    return ["--tokens", file];
  }

  async stop() {
    if (this.child && this.child.exitCode === null && this.child.signalCode === null) {
      this.openGate();
      this.child.kill("SIGTERM");
      const late = setTimeout(() => this.child.kill("SIGKILL"), PATIENCE);
      await this.ended;
      clearTimeout(late);
    }
    running.delete(this);
  }

  async remove() {
    await this.stop();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/* An address to come back to: its port is below those that the kernel hands out, so that no other process has it meanwhile. */
export async function keptAddress() {
  for (;;) {
    const port = 16384 + Math.floor(Math.random() * 16384);
    const free = await new Promise((resolve) => {
      const probe = createServer();
      probe.once("error", () => resolve(false));
      probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
    });
    if (free) return `127.0.0.1:${port}`;
  }
}

export async function withServer(options, fn) {
  const server = new Server();
  try {
    if (options.flags instanceof Function) options = { ...options, flags: options.flags(server) };
    await server.start(options);
    return await fn(server);
  } catch (e) {
    e.message += server.log ? `\n--- the server said:\n${server.log.slice(-2000)}` : "";
    throw e;
  } finally {
    await server.remove();
  }
}

// ---- the browser ----

let browser = null;

export async function openBrowser() {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

export async function closeAll() {
  for (const server of [...running]) await server.remove();
  if (browser) await browser.close();
}

/*
 * A page on which everything that must not happen is kept: messages on the console, exceptions, what the policy for
 * content forbade, requests to elsewhere, dialogs. `allow` has patterns of console messages that the case expects.
 */
export async function withPage(server, options, fn) {
  const { allow = [], ...context } = options;
  const c = await browser.newContext({ viewport: { width: 1280, height: 900 }, baseURL: server.url, reducedMotion: "reduce", acceptDownloads: true, ...context });
  const page = await c.newPage();
  const faults = [];
  page.setDefaultTimeout(PATIENCE);
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && !allow.some((p) => p.test(m.text())) && faults.push(`console: ${m.text()}`));
  page.on("pageerror", (e) => faults.push(`exception: ${e.stack}`));
  page.on("dialog", (d) => (faults.push(`dialog: ${d.message()}`), d.dismiss()));
  page.on("request", (r) => !r.url().startsWith(server.url) && !/^(blob|data):/.test(r.url()) && faults.push(`request to ${r.url()}`));
  await page.addInitScript(() => document.addEventListener("securitypolicyviolation", (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`)));
  await page.addInitScript(() => {
    globalThis.toasts = [];
    const keep = (node) => node.classList?.contains("toast") && globalThis.toasts.push(node.cloneNode(true));
    new MutationObserver((changes) => changes.forEach((c) => c.addedNodes.forEach(keep))).observe(document, { childList: true, subtree: true });
  });
  try {
    await fn(page);
    if (faults.length) throw new Error(faults.join("\n"));
  } catch (e) {
    if (process.env.SLUICE_WEB_SHOTS) await page.screenshot({ path: path.join(process.env.SLUICE_WEB_SHOTS, "failed.png") }).catch(() => {});
    if (faults.length && !faults.includes(e.message)) e.message += `\n${faults.join("\n")}`;
    throw e;
  } finally {
    await c.close();
  }
}

// ---- checks ----

export function is(actual, expected, what = "") {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: ${a}, not ${b}`);
}

export function ok(value, what) {
  if (!value) throw new Error(what);
}

// Waits for what the page is to show; the message says what it showed instead.
export async function shows(locator, text) {
  const start = Date.now();
  let last = "";
  while (Date.now() - start < PATIENCE) {
    last = (await locator.first().textContent().catch(() => null)) ?? "";
    if (text instanceof RegExp ? text.test(last) : last.includes(text)) return last;
    await new Promise((r) => setTimeout(r, 50));
  }
  throw new Error(`${locator} shows ${JSON.stringify(last.slice(0, 300))}, not ${text}`);
}

// A toast with this text has been on the page since it was loaded: it is gone after seconds, and we may be late.
export function toasted(page, text, kind = "toast") {
  return until(() => page.evaluate(([t, k]) => globalThis.toasts.some((n) => n.classList.contains(k) && n.textContent.includes(t)), [text, kind]), `a toast: ${text}`);
}

export async function until(fn, what) {
  const start = Date.now();
  while (Date.now() - start < PATIENCE) {
    if (await fn()) return;
    await new Promise((r) => setTimeout(r, 50));
  }
  throw new Error(`not in time: ${what}`);
}

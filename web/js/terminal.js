// SPDX-License-Identifier: Apache-2.0
/*
 * The output of a job as it is written. Lines come by server-sent events and are drawn in bunches, once a frame; the
 * browser lays out only the bunches that are seen. The page keeps the newest LINES of them; a download has all.
 */
import { h, setText } from "./dom.js";
import { get, stream } from "./api.js";
import { clock, num, plural } from "./format.js";
import { fresh, render, strip } from "./ansi.js";
import { icon } from "./icons.js";
import { key } from "./keys.js";
import { announce, button, problem, toast } from "./ui.js";

const LINES = 50000;
const BUNCH = 200;
const MARKS = 2000; // matches that are painted
const OUTPUT = new Set(["stdout", "stderr", "log"]);

function decode(e) {
  if (typeof e.text === "string") return e.text;
  if (!e.data_b64) return "";
  return new TextDecoder().decode(Uint8Array.from(atob(e.data_b64), (c) => c.charCodeAt(0)));
}

function eventText(e) {
  const text = decode(e);
  if (e.type === "started") return `attempt ${e.attempt} started`;
  if (e.type === "error") return text;
  if (e.type !== "exited") return `${e.type} ${text}`;
  try {
    const end = JSON.parse(text);
    return end.signal !== undefined && end.signal !== null ? `ended by signal ${end.signal}` : `exited with code ${end.code}`;
  } catch {
    return `exited ${text}`;
  }
}

export class Terminal {
  constructor(jobId, signal, onProgress) {
    this.jobId = jobId;
    this.signal = signal;
    this.onProgress = onProgress;
    this.lines = 0;
    this.dropped = 0;
    this.queue = [];
    this.follow = true;
    this.colours = fresh();
    this.open = null; // the line that a partial event left unfinished
    this.matches = [];
    this.at = -1;
    this.build();
    stream(`/jobs/${jobId}/events/stream`, { signal, lastId: "0", onMessage: (e) => this.take(e), onState: (s) => this.connection(s) });
  }

  build() {
    this.pane = h("div", { class: "term-pane mono quiet", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Output of the job" });
    this.hint = h("p", { class: "term-empty" }, "No output yet.");
    this.older = h("p", { class: "term-older", hidden: true });
    this.body = h("div", { class: "term-lines" });
    this.pane.append(this.older, this.hint, this.body);
    this.pane.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.pane.addEventListener("wheel", (e) => this.turned(e), { passive: true });
    const sizes = new ResizeObserver(() => this.laidOut());
    for (const node of [this.pane, this.body]) sizes.observe(node);
    this.signal.addEventListener("abort", () => sizes.disconnect());
    this.count = h("span", { class: "faint term-count" });
    this.search = h("input", { type: "search", placeholder: "Find in the output", "aria-label": "Find in the output", spellcheck: "false", autocomplete: "off" });
    this.search.addEventListener("input", () => this.find());
    this.search.addEventListener("keydown", (e) => {
      if (e.key === "Enter") this.jump(e.shiftKey ? -1 : 1);
    });
    this.found = h("span", { class: "faint found", role: "status" });
    this.followButton = button("Follow", { icon: "down", small: true, "aria-pressed": "true", onclick: () => this.setFollow(!this.follow) });
    this.wrapButton = button("Wrap lines", { icon: "wrap", small: true, hideLabel: true, "aria-pressed": "true", onclick: () => this.setWrap() });
    this.live = h("span", { class: "term-live", data: { state: "connecting" } }, h("i", { class: "dot", "aria-hidden": "true" }), h("span", {}, "connecting"));
    const tools = h("div", { class: "term-tools" }, this.live, this.count, h("div", { class: "grow" }),
      h("div", { class: "find" }, icon("search"), this.search, this.found, button("Previous match", { icon: "up", small: true, kind: "ghost", hideLabel: true, onclick: () => this.jump(-1) }), button("Next match", { icon: "down", small: true, kind: "ghost", hideLabel: true, onclick: () => this.jump(1) })),
      this.followButton, this.wrapButton, button("Download", { icon: "download", small: true, onclick: () => this.download() }));
    this.node = h("div", { class: "term" }, tools, this.pane);
    const o = { group: "A job", signal: this.signal };
    key("/", "Find in the output", () => this.search.focus(), o);
    key("f", "Follow or pause the output", () => this.setFollow(!this.follow), o);
  }

  connection(state) {
    this.live.dataset.state = state;
    setText(this.live.lastElementChild, { live: "live", lost: "reconnecting", ended: "complete" }[state] || state);
  }

  ended() {
    this.connection("ended");
  }

  take(event) {
    if (event.offset === undefined) return;
    this.queue.push(event);
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drain());
  }

  drain() {
    this.frame = 0;
    if (this.signal.aborted) return;
    const events = this.queue.splice(0, 2000);
    for (const e of events) this.add(e);
    this.trim();
    this.hint.hidden = this.lines > 0;
    this.pane.classList.toggle("quiet", this.lines < 5);
    setText(this.count, this.lines ? plural(this.lines + this.dropped, "line") : "");
    if (this.follow) this.toEnd();
    if (this.search.value) this.findSoon();
    if (this.queue.length) this.frame = requestAnimationFrame(() => this.drain());
  }

  add(e) {
    const output = OUTPUT.has(e.type);
    if (output && this.open && this.open.type === e.type) {
      this.open.text.append(...render(decode(e), this.colours));
      if (!e.partial) this.open = null;
      return undefined;
    }
    if (e.type === "started") this.colours = fresh();
    if (e.type === "progress") return e.late ? undefined : this.progress(e);
    const text = h("span", { class: "line-text" }, output ? render(decode(e), this.colours) : strip(eventText(e)));
    const line = h("div", { class: `line ${output ? e.type : `note ${e.type}`}${e.late ? " late" : ""}`, title: `${clock(e.ts, true)} · attempt ${e.attempt ?? "–"} · ${e.type}${e.late ? " · late, of an earlier attempt" : ""}` }, text);
    let bunch = this.body.lastElementChild;
    if (!bunch || bunch.children.length >= BUNCH) {
      bunch = h("div", { class: "bunch" });
      this.body.append(bunch);
    }
    bunch.append(line);
    this.lines++;
    this.open = output && e.partial ? { type: e.type, text } : null;
    return undefined;
  }

  // The store has it with the next renewal of the lease; here it is at once.
  progress(e) {
    try {
      this.onProgress(JSON.parse(decode(e)));
    } catch {
      // not JSON: it is a line like others
    }
  }

  trim() {
    while (this.lines > LINES) {
      const first = this.body.firstElementChild;
      this.lines -= first.children.length;
      this.dropped += first.children.length;
      first.remove();
    }
    this.older.hidden = !this.dropped;
    if (this.dropped) setText(this.older, `${num(this.dropped)} earlier lines are not shown here; download the output to see them.`);
  }

  // ---- following ----

  toEnd() {
    this.pane.scrollTop = this.pane.scrollHeight;
    this.room = this.measure();
  }

  // How high the output and the pane are.
  measure() {
    return `${this.pane.scrollHeight} ${this.pane.clientHeight}`;
  }

  // The browser moves the pane, too: bunches get their real height only when they come into sight. Where the heights
  // are no longer those at which the end was shown, the user has not scrolled: the end is elsewhere now.
  scrolled() {
    const end = this.pane.scrollHeight - this.pane.scrollTop - this.pane.clientHeight < 24;
    if (end === this.follow) return;
    if (this.follow && (this.frame || this.measure() !== this.room)) this.toEnd();
    else this.setFollow(end, false);
  }

  laidOut() {
    if (this.follow && this.measure() !== this.room) this.toEnd();
  }

  // Also while lines come faster than anybody could scroll between them.
  turned(e) {
    if (this.follow && e.deltaY < 0 && this.pane.scrollTop > 0) this.setFollow(false);
  }

  setFollow(on, scroll = true) {
    this.follow = on;
    this.followButton.setAttribute("aria-pressed", String(on));
    if (on && scroll) this.toEnd();
  }

  setWrap() {
    const on = this.node.classList.toggle("no-wrap");
    this.wrapButton.setAttribute("aria-pressed", String(!on));
  }

  // ---- finding ----

  findSoon() {
    clearTimeout(this.findTimer);
    this.findTimer = setTimeout(() => this.find(true), 400);
  }

  find(keep) {
    const wanted = this.search.value.toLowerCase();
    const current = keep && this.matches[this.at] ? this.matches[this.at].line : null;
    this.matches = [];
    if (wanted) {
      for (const line of this.body.querySelectorAll(".line-text")) {
        if (line.textContent.toLowerCase().includes(wanted)) this.matches.push({ line });
      }
    }
    this.at = current ? this.matches.findIndex((m) => m.line === current) : -1;
    this.paint(wanted);
    this.showFound();
    if (this.here && !this.matches.length) this.here.classList.remove("here");
    if (!keep && this.matches.length) this.jump(1);
  }

  // Matches are painted over the text; the text itself is left alone.
  paint(wanted) {
    if (!globalThis.Highlight) return;
    const ranges = [];
    for (const { line } of this.matches.slice(0, MARKS)) {
      const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const text = walker.currentNode.data.toLowerCase();
        for (let i = text.indexOf(wanted); i >= 0; i = text.indexOf(wanted, i + wanted.length)) {
          const range = new Range();
          range.setStart(walker.currentNode, i);
          range.setEnd(walker.currentNode, i + wanted.length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  }

  showFound() {
    setText(this.found, this.search.value ? (this.matches.length ? `${this.at + 1} of ${num(this.matches.length)}` : "none") : "");
  }

  jump(by) {
    if (!this.matches.length) return;
    if (this.here) this.here.classList.remove("here");
    this.at = (this.at + by + this.matches.length) % this.matches.length;
    this.here = this.matches[this.at].line.parentNode;
    this.setFollow(false);
    this.here.classList.add("here");
    this.here.scrollIntoView({ block: "center" });
    this.showFound();
  }

  // ---- all of it ----

  async download() {
    const parts = [];
    let after = "0";
    try {
      for (;;) {
        const page = await get(`/jobs/${this.jobId}/events`, { signal: this.signal, query: { after, limit: 1000 } });
        for (const e of page.items) if (OUTPUT.has(e.type)) parts.push(decode(e), e.partial ? "" : "\n");
        if (!page.items.length || !page.next_after || page.next_after === after) break;
        after = page.next_after;
        announce(`${num(parts.length / 2)} lines so far`);
      }
    } catch (e) {
      return problem(e);
    }
    if (!parts.length) return toast("The job has no output", "bad");
    const url = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
    const a = h("a", { href: url, download: `job-${this.jobId}.log` });
    document.body.append(a);
    a.click();
    a.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}


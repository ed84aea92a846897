// SPDX-License-Identifier: Apache-2.0
/*
 * A chain as a drawing: what it waits for on the left, its jobs one after the other, what waits for it on the right.
 * Long chains and many neighbours are folded, so that the drawing stays readable whatever there is.
 */
import { h, s } from "./dom.js";

const W = 164, H = 58, GAP_X = 40, GAP_Y = 14, PAD = 8;
const LEAST = 0.85; // of its size, to fit its card; what is still wider is scrolled
const NEIGHBOURS = 6; // blockers, or blocked, that are drawn

const cut = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

function box(x, y, item, { current } = {}) {
  const inside = [
    s("rect", { width: W, height: H, rx: 10, class: "g-box" }),
    s("rect", { width: 5, height: H - 20, x: 9, y: 10, rx: 2.5, class: `g-bar ${item.status || ""}` }),
    s("text", { x: 24, y: 25, class: "g-type" }, cut(item.type, 17)),
    s("text", { x: 24, y: 44, class: "g-id" }, item.note || `#${item.id} · ${item.status}`),
  ];
  const place = { transform: `translate(${x} ${y})`, class: `g-node ${current ? "current" : ""}` };
  if (item.fold) return s("g", { ...place, class: "g-node fold" }, inside);
  return s("a", { ...place, href: item.href, "aria-current": current ? "true" : null }, s("title", {}, `${item.type}, ${item.role} ${item.id}, ${item.status}${current ? ", this job" : ""}`), s("g", { "aria-hidden": "true" }, inside));
}

function edge(x1, y1, x2, y2, cls) {
  const bend = Math.max(18, (x2 - x1) / 2);
  return s("path", { class: `g-edge ${cls}`, d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 9} ${y2}`, "marker-end": "url(#g-arrow)" });
}

function folded(list) {
  if (list.length <= NEIGHBOURS) return list;
  const rest = list.slice(NEIGHBOURS - 1);
  const open = rest.filter((x) => x.status !== "completed").length;
  return [...list.slice(0, NEIGHBOURS - 1), { fold: true, type: `${rest.length} more`, status: "", note: open ? `${open} not completed` : "all completed" }];
}

// Both ends and the surroundings of this job.
function shortened(jobs, currentId) {
  if (jobs.length <= 8) return jobs;
  const at = Math.max(0, jobs.findIndex((j) => j.id === currentId));
  const keep = new Set([0, 1, at - 1, at, at + 1, jobs.length - 2, jobs.length - 1]);
  const out = [];
  jobs.forEach((j, i) => {
    if (keep.has(i)) out.push(j);
    else if (!out.at(-1)?.fold) out.push({ fold: true, type: "…", status: "", n: 1, note: "1 job" });
    else {
      const f = out.at(-1);
      f.n++;
      f.note = `${f.n} jobs`;
    }
  });
  return out;
}

const column = (n) => n * H + Math.max(0, n - 1) * GAP_Y;

export function chainGraph(chain, currentId) {
  const before = folded((chain.blockers || []).map((b) => ({ ...b, href: `/chains/${b.id}`, role: "blocker" })));
  const after = folded((chain.blocked || []).map((b) => ({ ...b, href: `/chains/${b.id}`, role: "blocked chain" })));
  const jobs = shortened(chain.jobs.map((j) => ({ ...j, href: `/jobs/${j.id}`, role: "job" })), currentId);
  const tall = Math.max(column(before.length), column(after.length), H);
  const height = tall + 2 * PAD;
  const mid = PAD + tall / 2;
  const firstX = PAD + (before.length ? W + GAP_X + 12 : 0);
  const lastX = firstX + (jobs.length - 1) * (W + GAP_X);
  const width = lastX + W + PAD + (after.length ? GAP_X + 12 + W : 0);
  const nodes = [], edges = [];
  const side = (list, x, draw) => list.forEach((item, i) => {
    const y = mid - column(list.length) / 2 + i * (H + GAP_Y);
    nodes.push(box(x, y, item));
    edges.push(draw(y + H / 2, item));
  });
  side(before, PAD, (y, item) => edge(PAD + W, y, firstX, mid, item.status === "completed" ? "done" : "waits"));
  jobs.forEach((j, i) => {
    const x = firstX + i * (W + GAP_X);
    if (i) edges.push(edge(x - GAP_X, mid, x, mid, "done"));
    nodes.push(box(x, mid - H / 2, j, { current: j.id === currentId }));
  });
  side(after, lastX + W + GAP_X + 12, (y) => edge(lastX + W, mid, lastX + W + GAP_X + 12, y, chain.status === "completed" ? "done" : "waits"));
  const svg = s("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "The chain of this job" },
    s("defs", {}, s("marker", { id: "g-arrow", viewBox: "0 0 8 8", refX: 0, refY: 4, markerWidth: 4.5, markerHeight: 4.5, orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z", class: "g-head" }))), edges, nodes);
  svg.style.minWidth = `${Math.round(width * LEAST)}px`;
  return h("div", { class: "graph-box", tabindex: "0", role: "region", "aria-label": "Drawing of the chain" }, svg);
}

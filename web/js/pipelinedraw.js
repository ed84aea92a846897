// SPDX-License-Identifier: Apache-2.0
/*
 * The flow as a drawing, in the pixels of its box: side by side where there is room, one below the other on a phone.
 *
 *   store ═▶ workers ═▶ log ═▶ coordinator ═▶ events
 *                               ╚▶ dead letters
 *
 * Dashes move between two stages while something flows there, the faster the more. The coordinator is a gauge of its queue
 * between its watermarks.
 */
import { s } from "./dom.js";

export const WIDE = 860;
const CARD_H = 150, BEND = 12;

function textLine(x, y, cls, value, anchor) {
  return s("text", { x, y, class: cls, "text-anchor": anchor }, value);
}

// A number and what it counts, one after the other.
const figure = (big, unit, y) => s("text", { x: 16, y }, s("tspan", { class: "r-big" }, big), s("tspan", { class: "r-unit", dx: 6 }, unit));

// A stage: a card with its name, one big number and some lines of smaller ones.
function stage(box, st) {
  const lines = st.lines.slice(0, 3).map((l, i) => [
    textLine(16, 98 + i * 18, "r-label", l[0]),
    textLine(box.w - (st.basin ? 46 : 16), 98 + i * 18, `r-value ${l[2] || ""}`, l[1], "end")]);
  const label = `${st.name}: ${st.big} ${st.unit}; ${st.lines.map((l) => `${l[0]} ${l[1]}`).join(", ")}`;
  return s("a", { href: st.href, class: `r-stage ${st.kind || ""}`, transform: `translate(${box.x} ${box.y})` }, s("title", {}, label), s("g", { "aria-hidden": "true" },
    s("rect", { width: box.w, height: box.h, rx: 14, class: "r-card" }),
    textLine(16, 28, "r-name", st.name),
    figure(st.big, st.unit, 64),
    lines, st.basin && basin(box.w - 32, 16, 18, box.h - 32, st.basin)));
}

// Level and watermarks of the queue.
function basin(x, y, w, height, b) {
  const at = (n) => height * (1 - Math.min(1, n / (b.capacity || 1)));
  const level = at(b.depth);
  const mark = (n, cls) => (n ? s("line", { x1: -5, x2: w + 5, y1: at(n), y2: at(n), class: `r-mark ${cls}` }) : null);
  const id = "r-basin";
  return s("g", { transform: `translate(${x} ${y})`, class: "r-basin" },
    s("clipPath", { id }, s("rect", { width: w, height, rx: 6 })),
    s("rect", { width: w, height, rx: 6, class: "r-tank" }),
    s("rect", { y: level, width: w, height: Math.max(0, height - level), class: `r-water ${b.state}`, "clip-path": `url(#${id})` }),
    s("rect", { width: w, height, rx: 6, class: "r-rim" }), mark(b.high, "high"), mark(b.low, "low"));
}

function speed(perSecond) {
  if (!perSecond) return "";
  return perSecond < 1 ? "slow" : perSecond < 20 ? "steady" : "fast";
}

// path(shift): the middle of the stream, or a line beside it
function water(path, flow) {
  const pace = speed(flow);
  const ripples = [["a", 0], ["b", -11], ["c", 11]].map(([name, shift]) => s("path", { d: path(shift), class: `r-ripple ${name}` }));
  return s("g", { class: `r-flow ${pace || "still"}` }, s("path", { d: path(0), class: "r-bed" }), s("path", { d: path(0), class: "r-stream" }), pace && ripples);
}

function across(width, stages) {
  const gap = Math.max(52, Math.min(88, (width - stages.length * 190) / (stages.length - 1)));
  const w = (width - gap * (stages.length - 1) - 4) / stages.length;
  const boxes = stages.map((_, i) => ({ x: 2 + i * (w + gap), y: 6, w, h: CARD_H }));
  return { boxes, height: 6 + CARD_H + 146 };
}

function down(width, stages) {
  const gap = 46;
  const boxes = stages.map((_, i) => ({ x: 2, y: 8 + i * (CARD_H + gap), w: width - 4, h: CARD_H }));
  return { boxes, height: 8 + stages.length * (CARD_H + gap) + 120 };
}

function acrossFlows(boxes, flows) {
  const y = boxes[0].y + CARD_H / 2;
  return boxes.slice(1).map((b, i) => {
    const x1 = boxes[i].x + boxes[i].w, x2 = b.x;
    const mid = (x1 + x2) / 2;
    const path = (shift) => `M${x1 - 8} ${y + shift} C${mid} ${y + shift - BEND} ${mid} ${y + shift + BEND} ${x2 + 8} ${y + shift}`;
    return [water(path, flows[i].n), textLine(mid, y - 38, "r-rate", flows[i].text, "middle"), textLine(mid, y - 53, "r-rate-name", flows[i].name, "middle")];
  });
}

function downFlows(boxes, flows) {
  const x = boxes[0].x + boxes[0].w / 2;
  return boxes.slice(1).map((b, i) => {
    const y1 = boxes[i].y + boxes[i].h, y2 = b.y;
    return [water((shift) => `M${x + shift} ${y1 - 6} L${x + shift} ${y2 + 6}`, flows[i].n), textLine(x + 38, (y1 + y2) / 2 + 4, "r-rate", `${flows[i].text} ${flows[i].name}`)];
  });
}

function deadBox(box, dead, vertical) {
  const w = vertical ? box.w : Math.max(box.w, 190), h = 84;
  const x = vertical ? box.x : box.x + box.w / 2 - w / 2;
  const y = vertical ? box.y : box.y + box.h + 52;
  return s("a", { href: "/dead-letters", class: `r-stage r-dead ${dead.n ? "bad" : ""}`, transform: `translate(${x} ${y})` }, s("title", {}, `Dead letters: ${dead.text}`),
    s("g", { "aria-hidden": "true" }, s("rect", { width: w, height: h, rx: 14, class: "r-card" }), textLine(16, 28, "r-name", "Dead letters"), figure(dead.text, dead.n ? "to review" : "none", 62)));
}

// model: {stages: [{name, big, unit, lines: [[label, value, class]], href, kind, basin}], flows: [{n, text, name}], dead, completed}
export function drawPipeline(model, width) {
  const wide = width >= WIDE;
  const plan = wide ? across(width, model.stages) : down(width, model.stages);
  const { boxes } = plan;
  const parts = [wide ? acrossFlows(boxes, model.flows) : downFlows(boxes, model.flows)];
  let { height } = plan;
  if (wide) {
    const c = boxes[3], x = c.x + c.w / 2, y = c.y + c.h;
    parts.push(s("path", { class: `r-branch ${model.dead.n ? "bad" : ""}`, d: `M${x} ${y} L${x} ${y + 50}` }));
    const [a, b] = boxes, low = a.y + a.h + 60;
    parts.push(s("path", { class: "r-return", d: `M${b.x + b.w / 2} ${b.y + b.h} C${b.x + b.w / 2} ${low + 12} ${a.x + a.w / 2} ${low + 12} ${a.x + a.w / 2} ${a.y + a.h + 8}`, "marker-end": "url(#r-arrow)" }),
      textLine((a.x + a.w / 2 + b.x + b.w / 2) / 2, low + 18, "r-rate-name", model.completed, "middle"));
  }
  parts.push(boxes.map((b, i) => stage(b, model.stages[i])));
  if (wide) parts.push(deadBox(boxes[3], model.dead, false));
  else {
    const y = boxes.at(-1).y + CARD_H + 24;
    parts.push(deadBox({ x: 2, y, w: width - 4, h: 84 }, model.dead, true));
    height = y + 90;
  }
  return s("svg", { class: "pipeline", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "The flow from jobs to events" },
    s("defs", {}, s("marker", { id: "r-arrow", viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z", class: "g-head" }))), parts);
}

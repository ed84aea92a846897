// SPDX-License-Identifier: Apache-2.0
/*
 * Terminal output as text with colours. Only "select graphic rendition" (ESC [ … m) has an effect; every other control
 * sequence is dropped, so that output can neither move the cursor nor set a title nor make a link. What is returned are
 * text nodes in spans with classes: nothing is parsed as markup. Colours by number (256, RGB) become the nearest of 16.
 */
import { h } from "./dom.js";

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// CSI; OSC, DCS, PM, APC, SOS up to their end; two-byte escapes; control characters but tab
const SEQUENCE = /\x1b\[([0-9;:?<=>]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|[\x00-\x08\x0a-\x1f\x7f-\x9f]/g;
const plain = () => ({ fg: null, bg: null, bold: false, dim: false, italic: false, underline: false, inverse: false, strike: false });

export const fresh = plain;

// Of a colour cube or a grey ramp, or of three bytes: the nearest of the sixteen.
function nearest(r, g, b) {
  const max = Math.max(r, g, b), min = Math.min(r, g, b);
  if (max - min < 40) return max < 70 ? 0 : max < 130 ? 8 : max < 210 ? 7 : 15;
  const mid = (max + min) / 2;
  const bits = (r > mid ? 1 : 0) | (g > mid ? 2 : 0) | (b > mid ? 4 : 0);
  return max > 200 ? bits + 8 : bits;
}

function of256(n) {
  if (n < 16) return n;
  if (n > 231) return nearest(...Array(3).fill((n - 232) * 10 + 8));
  const level = (v) => (v ? v * 40 + 55 : 0);
  const i = n - 16;
  return nearest(level(Math.floor(i / 36)), level(Math.floor(i / 6) % 6), level(i % 6));
}

function extended(codes, i) {
  if (codes[i + 1] === 5) return [of256(codes[i + 2] || 0), i + 2];
  if (codes[i + 1] === 2) return [nearest(codes[i + 2] || 0, codes[i + 3] || 0, codes[i + 4] || 0), i + 4];
  return [null, i + 1];
}

function apply(state, params) {
  const codes = params.replace(/:/g, ";").split(";").map((c) => Number(c) || 0);
  for (let i = 0; i < codes.length; i++) {
    const c = codes[i];
    if (c === 0) Object.assign(state, plain());
    else if (c === 1) state.bold = true;
    else if (c === 2) state.dim = true;
    else if (c === 3) state.italic = true;
    else if (c === 4) state.underline = true;
    else if (c === 7) state.inverse = true;
    else if (c === 9) state.strike = true;
    else if (c === 22) state.bold = state.dim = false;
    else if (c === 23) state.italic = false;
    else if (c === 24) state.underline = false;
    else if (c === 27) state.inverse = false;
    else if (c === 29) state.strike = false;
    else if (c >= 30 && c <= 37) state.fg = c - 30;
    else if (c >= 40 && c <= 47) state.bg = c - 40;
    else if (c >= 90 && c <= 97) state.fg = c - 82;
    else if (c >= 100 && c <= 107) state.bg = c - 92;
    else if (c === 39) state.fg = null;
    else if (c === 49) state.bg = null;
    else if (c === 38) [state.fg, i] = extended(codes, i);
    else if (c === 48) [state.bg, i] = extended(codes, i);
  }
}

function classes(state) {
  const out = [];
  const colour = (n) => `${n > 7 ? "bright-" : ""}${NAMES[n % 8]}`;
  if (state.fg !== null) out.push(`fg-${colour(state.fg)}`);
  if (state.bg !== null) out.push(`bg-${colour(state.bg)}`);
  for (const name of ["bold", "dim", "italic", "underline", "inverse", "strike"]) if (state[name]) out.push(`a-${name}`);
  return out.join(" ");
}

// The nodes of a line; state continues from the line before it.
export function render(text, state) {
  const nodes = [];
  let from = 0;
  const add = (part) => {
    if (!part) return;
    const cls = classes(state);
    nodes.push(cls ? h("span", { class: cls }, part) : document.createTextNode(part));
  };
  for (const m of text.matchAll(SEQUENCE)) {
    add(text.slice(from, m.index));
    from = m.index + m[0].length;
    if (m[2] === "m") apply(state, m[1]);
  }
  add(text.slice(from));
  return nodes;
}

export const strip = (text) => text.replace(SEQUENCE, "");

// SPDX-License-Identifier: Apache-2.0
// Light, dark, or as the system has it. The choice is kept in this browser.
const KEY = "sluice.theme";
const order = ["auto", "light", "dark"];
const listeners = new Set();

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage is forbidden: the choice lasts as long as the page
  }
}

let current = order.includes(stored()) ? stored() : "auto";

function apply() {
  if (current === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = current;
  for (const fn of listeners) fn(current);
}

export const theme = () => current;

export function nextTheme() {
  current = order[(order.indexOf(current) + 1) % order.length];
  try {
    localStorage.setItem(KEY, current);
  } catch {
    // see above
  }
  apply();
  return current;
}

export function onTheme(fn, signal) {
  listeners.add(fn);
  if (signal) signal.addEventListener("abort", () => listeners.delete(fn));
}

export function startTheme() {
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
}

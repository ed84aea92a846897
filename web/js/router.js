// SPDX-License-Identifier: Apache-2.0
// Pages by path. A page is a function (view) that draws into view.root and stops what it started when view.signal aborts.

const routes = [];
const state = { control: null, before: () => true, after: () => {} };

export function route(pattern, load) {
  const names = [];
  const source = pattern.replace(/\{(\w+)\}/g, (_, name) => (names.push(name), "([^/]+)"));
  routes.push({ pattern: new RegExp(`^${source}$`), names, load });
}

export function hooks({ before, after }) {
  Object.assign(state, { before, after });
}

function find(path) {
  for (const r of routes) {
    const m = r.pattern.exec(path);
    try {
      if (m) return { load: r.load, params: Object.fromEntries(r.names.map((n, i) => [n, decodeURIComponent(m[i + 1])])) };
    } catch {
      return null; // not a valid escape
    }
  }
  return null;
}

export async function render({ focus = true } = {}) {
  if (state.control) state.control.abort();
  state.control = new AbortController();
  const { signal } = state.control;
  const found = find(location.pathname);
  const view = { path: location.pathname, params: found ? found.params : {}, query: new URLSearchParams(location.search), signal, focus };
  if (await state.before(view, found)) await state.after(view, found ? found.load : null);
}

export function go(url, { replace = false, focus = true } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", url);
  return render({ focus });
}

// The address follows the filters without drawing the page anew.
export const note = (url) => history.replaceState(null, "", url);

function followed(e) {
  const a = e.target.closest("a[href]");
  if (!a || e.defaultPrevented || e.button || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
  const href = a.getAttribute("href");
  if (a.hasAttribute("target") || a.hasAttribute("download") || !href.startsWith("/") || !find(new URL(href, location.origin).pathname)) return;
  e.preventDefault();
  go(href);
}

export function startRouter() {
  document.addEventListener("click", followed);
  window.addEventListener("popstate", () => render());
  return render();
}

// SPDX-License-Identifier: Apache-2.0
// Requests to the server, and streams that come back by themselves.

const BASE = "/api/v1";
const state = { csrf: null, onUnauthorized: () => {} };

export class ApiError extends Error {
  constructor(status, code, message, retryAfterMs) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

// An integer that does not fit into a double keeps its digits.
export class Exact {
  constructor(source) {
    this.source = source;
  }
  toJSON() {
    return JSON.rawJSON ? JSON.rawJSON(this.source) : this.source;
  }
}

function exactly(key, value, context) {
  const lossy = typeof value === "number" && context && context.source && !Number.isSafeInteger(value) && /^-?\d+$/.test(context.source);
  return lossy ? new Exact(context.source) : value;
}

async function refusal(response) {
  const after = Number(response.headers.get("Retry-After")) * 1000 || 0;
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    // not ours: a proxy's page
  }
  const message = error.message || `the server answered ${response.status}`;
  return new ApiError(response.status, error.code || "http", message, after);
}

async function request(method, path, { query, body, signal, exact, again } = {}) {
  const url = new URL(BASE + path, location.origin);
  for (const [k, v] of Object.entries(query || {})) if (v !== "" && v !== null && v !== undefined) url.searchParams.set(k, v);
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && state.csrf) headers["X-CSRF-Token"] = state.csrf;
  let response;
  try {
    response = await fetch(url, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new ApiError(0, "offline", "the server is not responding");
  }
  if (!response.ok) {
    const error = await refusal(response);
    // The server was started anew, and its tokens with it: ask for one, once.
    if (error.code === "csrf" && !again) {
      state.csrf = (await request("GET", "/session")).csrf;
      return request(method, path, { query, body, signal, exact, again: true });
    }
    if (error.status === 401 && path !== "/session") state.onUnauthorized();
    throw error;
  }
  const text = await response.text();
  return text ? JSON.parse(text, exact ? exactly : undefined) : null;
}

export const get = (path, options) => request("GET", path, options);
export const post = (path, body = {}) => request("POST", path, { body });
export const put = (path, body) => request("PUT", path, { body });
export const del = (path, query) => request("DELETE", path, { query });
export const enc = encodeURIComponent;

// Changes many chains. By a filter, the server does as many as fit into some seconds and says whether there are more.
export async function changeMany(verb, what) {
  let changed = 0;
  for (;;) {
    const answer = await post(`/chains/${verb}`, what);
    changed += answer.changed;
    if (!answer.more || !answer.changed) return changed;
  }
}

// How many chains that would change; more: and others, which were not counted in the time there is for it.
export const countMany = (verb, filter) => post(`/chains/${verb}`, { filter, dry_run: true });

export function setSession(session) {
  state.csrf = session ? session.csrf : null;
}

export function onUnauthorized(fn) {
  state.onUnauthorized = fn;
}

/*
 * Server-sent events until the signal aborts. The browser resumes a lost connection by itself with the last id; where it
 * gives up (an answer that is no stream), we ask again with a growing pause. No connection stays open while the page is hidden:
 * a browser has few connections to a server.
 */
export function stream(path, { signal, onMessage, onState = () => {}, lastId }) {
  let source = null;
  let timer = 0;
  let pause = 1000;
  let last = lastId;

  function close() {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  }

  function open() {
    close();
    if (signal.aborted || document.hidden) return;
    const url = new URL(BASE + path, location.origin);
    if (lastId !== undefined) url.searchParams.set("after", last);
    source = new EventSource(url);
    const take = (e) => {
      if (e.lastEventId) last = e.lastEventId;
      onMessage(JSON.parse(e.data), e);
    };
    for (const name of ["message", "event", "stats"]) source.addEventListener(name, take);
    source.addEventListener("end", () => {
      close();
      onState("ended");
    });
    source.addEventListener("open", () => {
      pause = 1000;
      onState("live");
    });
    source.addEventListener("error", () => {
      onState("lost");
      if (source && source.readyState === EventSource.CLOSED) {
        timer = setTimeout(open, pause);
        pause = Math.min(pause * 2, 30000);
      }
    });
  }

  const visible = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", visible);
  signal.addEventListener("abort", () => {
    document.removeEventListener("visibilitychange", visible);
    close();
  });
  open();
  return { close, reopen: open };
}

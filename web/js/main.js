// SPDX-License-Identifier: Apache-2.0
// The frame around the pages: who is there, where one can go, whether the server is heard.
import { h, fill, setText } from "./dom.js";
import { clock, compact, startTicking } from "./format.js";
import { onUnauthorized } from "./api.js";
import { icon } from "./icons.js";
import { startTheme, nextTheme, theme, onTheme } from "./theme.js";
import { announce, button, empty, failure, isAway, link, makeAnnouncer, pageHead, problem } from "./ui.js";
import { key, showKeys, startKeys } from "./keys.js";
import { latest, onConnection, onStats, startLive, stopLive } from "./live.js";
import { forget, load, logOut, may, who } from "./session.js";
import { go, hooks, render, route, startRouter } from "./router.js";
import { overview } from "./pages/overview.js";
import { jobs } from "./pages/jobs.js";
import { job, chain } from "./pages/job.js";
import { failures } from "./pages/failures.js";
import { types } from "./pages/types.js";
import { worker, workers } from "./pages/workers.js";
import { cron } from "./pages/cron.js";
import { pipeline } from "./pages/pipeline.js";
import { exportsPage, exportPage } from "./pages/exports.js";
import { backupsPage } from "./pages/backups.js";
import { deadLetters, deadLetter } from "./pages/deadletters.js";
import { audit } from "./pages/audit.js";
import { login } from "./pages/login.js";

const NAV = [
  { path: "/", icon: "overview", name: "Overview", key: "o" },
  { path: "/pipeline", icon: "pipeline", name: "Pipeline", key: "r" },
  { path: "/jobs", icon: "jobs", name: "Jobs", key: "j" },
  { path: "/failures", icon: "failures", name: "Failures", key: "f", count: "failed" },
  { path: "/types", icon: "types", name: "Types", key: "t" },
  { path: "/workers", icon: "workers", name: "Workers", key: "w" },
  { path: "/cron", icon: "cron", name: "Schedules", key: "c" },
  { path: "/exports", icon: "exports", name: "Exports", key: "x" },
  { path: "/backups", icon: "backups", name: "Backups", key: "b" },
  { path: "/dead-letters", icon: "dead", name: "Dead letters", key: "d" },
  { path: "/audit", icon: "audit", name: "Audit log", key: "a", role: "admin" },
];
const THEMES = { auto: ["auto", "System"], light: ["sun", "Light"], dark: ["moon", "Dark"] };

route("/", overview);
route("/login", login);
route("/jobs", jobs);
route("/jobs/{id}", job);
route("/chains/{id}", chain);
route("/failures", failures);
route("/types", types);
route("/workers", workers);
route("/workers/{worker}", worker);
route("/cron", cron);
route("/pipeline", pipeline);
route("/exports", exportsPage);
route("/exports/{dataset}", exportPage);
route("/backups", backupsPage);
route("/dead-letters", deadLetters);
route("/dead-letters/{id}", deadLetter);
route("/audit", audit);

const main = h("main", { id: "main", tabindex: "-1" });
const frame = h("div", { class: "frame" });
let drawnFor; // the session that the frame was drawn for

function brand() {
  return link("/", [h("img", { src: document.querySelector("link[rel=icon]").href, alt: "", width: "28", height: "28" }), h("span", {}, "Sluice")], { class: "brand", "aria-label": "Sluice, overview" });
}

function navItem(item) {
  const count = item.count && h("span", { class: "count", hidden: true });
  const a = link(item.path, [icon(item.icon), h("span", { class: "nav-name" }, item.name), count], { data: { path: item.path } });
  if (count) {
    onStats((stats) => {
      const n = stats.totals[item.count];
      count.hidden = !n;
      setText(count, compact(n));
    });
  }
  return h("li", {}, a);
}

function themeButton() {
  const b = button("Colours", { kind: "ghost", small: true, hideLabel: true, onclick: () => announce(`Theme: ${THEMES[nextTheme()][1]}`) });
  const show = () => {
    const [name, text] = THEMES[theme()];
    fill(b, icon(name), h("span", { class: "sr-only" }, `Theme: ${text}`));
    b.title = `Theme: ${text}`;
  };
  onTheme(show);
  show();
  return b;
}

function connectionLine() {
  const dot = h("i", { class: "dot", "aria-hidden": "true" });
  const text = h("span", {});
  const line = h("p", { class: "connection", role: "status" }, dot, text);
  onConnection((state) => {
    line.dataset.state = state;
    setText(text, { live: "Live", lost: "Reconnecting …", connecting: "Connecting …" }[state]);
  });
  return line;
}

/*
 * While the server is not heard, its numbers are grey under a banner that says from when they are. It comes back by
 * itself: the streams reconnect, pages poll, and one that could not be loaded is drawn again.
 */
const AWAY_MS = 1000; // a connection that is replaced at once says nothing
const RETRY_MS = 3000;

function makeBanner() {
  const text = h("span", {});
  const banner = h("div", { class: "away", role: "alert", hidden: true }, icon("failures"), text);
  let timer = 0;
  onConnection((state) => {
    clearTimeout(timer);
    if (state === "lost") {
      timer = setTimeout(() => {
        const since = latest() ? ` The numbers below are from ${clock(latest().now).slice(11)}.` : "";
        setText(text, `The server is not responding.${since} Trying to reconnect …`);
        banner.hidden = false;
        document.body.classList.add("is-away");
      }, AWAY_MS);
      return;
    }
    const was = !banner.hidden;
    banner.hidden = true;
    document.body.classList.remove("is-away");
    if (was && state === "live") announce("The server is back.");
    if (state === "live" && main.querySelector("[data-away]")) render({ focus: false });
  });
  return banner;
}
const banner = makeBanner();

function person(session) {
  if (!session) return null;
  const out = session.cookie !== false && session.actor && session.actor !== "local";
  return h("div", { class: "person" }, h("span", { class: "person-name", title: `Role: ${session.role}` }, session.actor || "local"), h("span", { class: "tag" }, session.read_only ? "read only" : session.role),
    out && button("Log out", { icon: "logout", kind: "ghost", small: true, hideLabel: true, onclick: leave }));
}

async function leave() {
  try {
    await logOut();
  } catch (e) {
    return problem(e);
  }
  return toLogin("/");
}

function drawFrame(session) {
  if (drawnFor === session) return;
  drawnFor = session;
  document.body.classList.toggle("read-only", !may("write"));
  if (!session) {
    fill(frame, main);
    frame.className = "frame bare";
    return;
  }
  frame.className = "frame";
  const list = h("ul", {}, NAV.filter((n) => !n.role || may(n.role)).map(navItem));
  const side = h("nav", { class: "side", id: "nav", "aria-label": "Main" }, brand(), list,
    h("div", { class: "side-end" }, connectionLine(), person(session),
      h("div", { class: "side-tools" }, themeButton(), button("Keyboard shortcuts", { icon: "keyboard", kind: "ghost", small: true, hideLabel: true, onclick: showKeys }), h("span", { class: "version" }, session.version ? `v${session.version}` : ""))));
  const menu = button("Menu", { icon: "menu", kind: "ghost", hideLabel: true, "aria-expanded": "false", "aria-controls": "nav", onclick: () => openMenu(menu.getAttribute("aria-expanded") !== "true") });
  function openMenu(open) {
    menu.setAttribute("aria-expanded", String(open));
    frame.classList.toggle("menu-open", open);
    if (open) list.querySelector("a").focus();
  }
  side.addEventListener("click", (e) => e.target.closest("a") && openMenu(false));
  side.addEventListener("keydown", (e) => {
    if (e.key !== "Escape" || menu.getAttribute("aria-expanded") !== "true") return;
    openMenu(false);
    menu.focus();
  });
  fill(frame, h("header", { class: "topbar" }, menu, brand(), connectionLine()), side, h("div", { class: "scrim", on: { click: () => openMenu(false) } }), h("div", { class: "body" }, banner, main));
}

function markCurrent(path) {
  for (const a of frame.querySelectorAll(".side a[data-path]")) {
    const here = a.dataset.path === "/" ? path === "/" : path === a.dataset.path || path.startsWith(`${a.dataset.path}/`);
    if (here) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
}

export function toLogin(back) {
  stopLive();
  forget();
  return go(`/login?next=${encodeURIComponent(back)}`, { replace: true });
}

async function before(view) {
  if (view.path === "/login" || who()) return true;
  try {
    await load();
  } catch (e) {
    if (e.status === 401) {
      await toLogin(location.pathname + location.search);
      return false;
    }
    drawFrame(null);
    fill(main, failure(e, () => render()));
    if (isAway(e)) {
      const timer = setTimeout(render, RETRY_MS);
      view.signal.addEventListener("abort", () => clearTimeout(timer));
    }
    return false;
  }
  startLive();
  return true;
}

async function after(view, page) {
  drawFrame(view.path === "/login" ? null : who());
  markCurrent(view.path);
  const root = h("div", { class: "page" });
  fill(main, root);
  window.scrollTo(0, 0);
  try {
    const drawn = page ? page({ ...view, root }) : fill(root, [pageHead("Page not found"), empty("search", "There is no such page", ["Nothing is at ", h("code", {}, view.path), "; the address may be incomplete or mistyped."], link("/", "Go to the overview", { class: "btn" }))]);
    titled(root, view.focus); // pages draw their heading before they wait for data
    await drawn;
  } catch (e) {
    if (e.name === "AbortError" || view.signal.aborted) return;
    fill(root, failure(e, () => render()));
  }
  if (!view.signal.aborted) titled(root, false);
}

let arrived = false; // the first page leaves the focus where the browser has it

function titled(root, focus) {
  const title = root.querySelector("h1");
  const name = root.dataset.title || (title && title.textContent);
  document.title = name ? `${name} – Sluice` : "Sluice";
  if (focus && arrived) {
    if (title) title.focus({ preventScroll: true });
    announce(document.title);
  }
  arrived = true;
}

function start() {
  startTheme();
  startTicking();
  startKeys();
  for (const n of NAV) key(`g ${n.key}`, n.name, () => go(n.path), { group: "Go to" });
  key("c", "Change the theme", () => announce(`Theme: ${THEMES[nextTheme()][1]}`));
  fill(document.getElementById("app"), h("a", { class: "skip", href: "#main", on: { click: (e) => {
    e.preventDefault();
    main.focus();
  } } }, "Skip to content"), frame, makeAnnouncer());
  onUnauthorized(() => location.pathname !== "/login" && toLogin(location.pathname + location.search));
  hooks({ before, after });
  startRouter();
}

start();

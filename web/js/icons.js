// SPDX-License-Identifier: Apache-2.0
// Icons drawn on a grid of 24, one stroke wide. They say nothing that the text beside them does not.
import { s } from "./dom.js";

const shapes = {
  overview: "M4 4h7v9H4z M13 4h7v5h-7z M13 12h7v8h-7z M4 16h7v4H4z",
  jobs: "M8 6h12 M8 12h12 M8 18h12 M4 6h.01 M4 12h.01 M4 18h.01",
  failures: "M12 4 2.5 20h19z M12 10v4 M12 17h.01",
  types: "M12 3l9 5-9 5-9-5z M3 12.500l9 5 9-5 M3 17l9 5 9-5",
  workers: "M7 7h10v10H7z M10 3v4 M14 3v4 M10 17v4 M14 17v4 M3 10h4 M3 14h4 M17 10h4 M17 14h4",
  cron: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z M12 7v5l3.5 2",
  pipeline: "M3 8c3-2.7 6-2.7 9 0s6 2.7 9 0 M3 13c3-2.7 6-2.7 9 0s6 2.7 9 0 M3 18c3-2.7 6-2.7 9 0s6 2.7 9 0",
  dead: "M4 13l2-8h12l2 8v6H4z M4 13h5l1 3h4l1-3h5",
  backups: "M4 5h16v5H4z M4 14h16v5H4z M7 7.500h.010 M7 16.500h.010 M12 10v4",
  exports: "M4 4h16v4H4z M6 8v12h12V8 M12 11v6 M9.5 14.500l2.500 2.500 2.500-2.500",
  audit: "M12 3l8 3v6c0 5-3.5 8-8 9-4.5-1-8-4-8-9V6z M9 12l2 2 4-4",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14z M16 16l5 5",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8z M12 2v2 M12 20v2 M4.9 4.900l1.4 1.4 M17.7 17.700l1.4 1.4 M2 12h2 M20 12h2 M4.9 19.100l1.4-1.4 M17.7 6.300l1.4-1.4",
  moon: "M20 14.500A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.500z",
  auto: "M4 5h16v11H4z M9 20h6 M12 16v4",
  keyboard: "M3 6h18v12H3z M7 10h.01 M11 10h.01 M15 10h.01 M8 14h8",
  menu: "M4 7h16 M4 12h16 M4 17h16",
  copy: "M9 9h11v11H9z M5 15H4V4h11v1",
  check: "M5 12l5 5 9-10",
  play: "M7 5l12 7-12 7z",
  pause: "M8 5v14 M16 5v14",
  retry: "M4 12a8 8 0 1 0 2.5-5.8 M4 4v5h5",
  close: "M6 6l12 12 M18 6L6 18",
  trash: "M4 7h16 M9 7V4h6v3 M6 7l1 13h10l1-13",
  download: "M12 4v11 M7 11l5 5 5-5 M4 20h16",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  up: "M5 15l7-7 7 7",
  down: "M5 9l7 7 7-7",
  bolt: "M13 3L5 14h6l-1 7 8-11h-6z",
  logout: "M10 4H4v16h6 M9 12h12 M17 8l4 4-4 4",
  lock: "M5 11h14v10H5z M8 11V7a4 4 0 0 1 8 0v4",
  wrap: "M4 6h16 M4 12h13a3 3 0 0 1 0 6h-5 M14 15l-3 3 3 3 M4 18h3",
  filter: "M4 6h16 M7 12h10 M10 18h4",
  plus: "M12 5v14 M5 12h14",
  drop: "M12 3c4 5 6 8 6 11a6 6 0 0 1-12 0c0-3 2-6 6-11z",
};

export function icon(name) {
  const d = shapes[name];
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, s("path", { d }));
}

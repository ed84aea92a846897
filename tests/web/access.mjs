// SPDX-License-Identifier: Apache-2.0
// By keyboard alone, on a phone, in both colour schemes, and as a screen reader meets it.
import { readFileSync } from "node:fs";
import path from "node:path";
import { is, ok, shows, until, withPage, withServer } from "./harness.mjs";
import { PATHS } from "./pages.mjs";

// Something on every page: a running chain with neighbours, failures, output, a schedule.
async function furnish(server) {
  const hold = await server.enqueue("hold", { customer: "ada" }, { key: "order-1" });
  await server.enqueue("good", null, { after: [hold] });
  const bad = await server.enqueue("bad", { path: "/srv/" + "long/".repeat(40) });
  const talk = await server.enqueue("talk");
  await server.reached(bad, "failed");
  await server.enqueue(`type.with.a.very.long.name.${"x".repeat(60)}`, null, { in_ms: 3600000 });
  await server.api("PUT", "/cron/nightly", { spec: "30 2 * * *", type: "good", input: null });
  return [...PATHS, `/jobs/${hold}`, `/jobs/${bad}`, `/jobs/${talk}`];
}

async function settled(page, path) {
  await page.goto(path);
  await page.locator(".page h1").waitFor();
  await until(async () => (await page.locator(".skeleton").count()) === 0, `${path} is drawn`);
}

// Runs in the page: every visible text whose contrast with its background is too low.
function tooFaint() {
  const parse = (c) => {
    const m = /^rgba?\((.*)\)$/.exec(c);
    const [r, g, b, a = 1] = m[1].split(/[ ,/]+/).map(Number);
    return { r, g, b, a };
  };
  const over = (top, under) => ({ r: top.r * top.a + under.r * (1 - top.a), g: top.g * top.a + under.g * (1 - top.a), b: top.b * top.a + under.b * (1 - top.a), a: 1 });
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  function behind(node) {
    const layers = [];
    for (let n = node; n; n = n.parentElement) {
      const c = parse(getComputedStyle(n).backgroundColor);
      if (c.a > 0) layers.push(c);
      if (c.a === 1) break;
    }
    return layers.reverse().reduce((under, top) => over(top, under), { r: 255, g: 255, b: 255, a: 1 });
  }
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || node.closest(".sr-only, :disabled, datalist, option, .skip, title, noscript")) continue;
    const style = getComputedStyle(node);
    const back = behind(node);
    const front = over(parse(node instanceof SVGElement ? style.fill : style.color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${JSON.stringify(walker.currentNode.data.trim().slice(0, 40))} in ${node.tagName}.${node.getAttribute("class")}`);
  }
  return [...new Set(found)];
}

// Presses Tab from the beginning of the page to its end. Returns what had the focus without showing it.
async function walk(page) {
  const unseen = new Set();
  await page.evaluate(() => (document.activeElement.blur(), getSelection().removeAllRanges(), document.querySelector(".skip").focus()));
  for (let i = 0; i < 500; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const node = document.activeElement;
      if (node === document.body || node.matches(".skip")) return null;
      const shown = node instanceof SVGElement ? node.querySelector("rect") : node;
      const style = getComputedStyle(shown);
      return style.outlineStyle !== "none" || (node instanceof SVGElement && parseFloat(style.strokeWidth) >= 3) ? "" : node.outerHTML.slice(0, 120);
    });
    if (at === null) break;
    if (at) unseen.add(at);
  }
  return [...unseen];
}

async function contrast(colorScheme) {
  await withServer({}, (server) => withPage(server, { colorScheme }, async (page) => {
    for (const path of await furnish(server)) {
      await settled(page, path);
      is(await page.evaluate(tooFaint), [], `too faint on ${path}`);
    }
    const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    is(back, colorScheme === "dark" ? "rgb(12, 18, 22)" : "rgb(244, 246, 248)", "background");
  }));
}

// What axe-core finds, in words. It is evaluated, not loaded as a script, which the page's policy would refuse.
const axe = readFileSync(path.join(process.env.SLUICE_WEB_MODULES, "node_modules/axe-core/axe.min.js"), "utf8");

async function findings(page, where) {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
    return violations.map((v) => `${v.id} (${v.help}): ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(" … ")}`);
  });
  return found.map((f) => `${where}: ${f}`);
}

async function inspectAll(colorScheme) {
  await withServer({}, (server) => withPage(server, { colorScheme, allow: [/404/] }, async (page) => {
    const found = [];
    const inspect = async (where) => found.push(...(await findings(page, where)));
    for (const path of [...PATHS, "/nowhere"]) {
      await settled(page, path);
      await inspect(`${path}, empty`);
    }
    for (const path of await furnish(server)) {
      await settled(page, path);
      await inspect(path);
    }
    await page.goto("/jobs");
    await page.getByRole("button", { name: "Enqueue" }).click();
    await inspect("the dialog to enqueue");
    await page.keyboard.press("Escape");
    await page.getByLabel("Select job 1", { exact: true }).click();
    await inspect("a selection");
    await page.setViewportSize({ width: 360, height: 740 });
    await inspect("the list on a phone");
    is(found, [], "axe-core");
  }));
}

export const cases = {
  "axe-core finds nothing on any page in the light colours": () => inspectAll("light"),
  "axe-core finds nothing on any page in the dark colours": () => inspectAll("dark"),

  "six jobs are on the screen of a phone": () => withServer({}, (server) => withPage(server, { viewport: { width: 360, height: 740 }, hasTouch: true }, async (page) => {
    await server.bulk(Array.from({ length: 8 }, (_, i) => ({ type: `mail.send.${"x".repeat(60)}`, input: { customer: "ada", order: i, note: "long ".repeat(20) }, key: `order-${i}`, in_ms: 3600000 })));
    await settled(page, "/jobs");
    const rows = page.locator("table.jobs tbody tr");
    await until(async () => (await rows.count()) === 8, "eight rows");
    const bottoms = await rows.evaluateAll((list) => list.map((r) => r.getBoundingClientRect().bottom));
    ok(bottoms[5] <= 740, `the sixth job ends at ${bottoms[5]}`);
    await page.getByRole("button", { name: "Filters" }).click();
    await page.getByLabel("Key").fill("order-3");
    await until(async () => (await rows.count()) === 1, "the one with the key");
  })),

  "every text has enough contrast in the light colours": () => contrast("light"),
  "every text has enough contrast in the dark colours": () => contrast("dark"),

  "the colours can be chosen, and the choice is kept": () => withServer({}, (server) => withPage(server, { colorScheme: "light" }, async (page) => {
    const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.goto("/types");
    const button = page.getByRole("button", { name: "Theme: System" });
    await button.click();
    is(await back(), "rgb(244, 246, 248)", "light");
    await page.getByRole("button", { name: "Theme: Light" }).click();
    is(await back(), "rgb(12, 18, 22)", "dark");
    await page.reload();
    await page.getByRole("button", { name: "Theme: Dark" }).waitFor();
    is(await back(), "rgb(12, 18, 22)", "dark after a reload");
  })),

  "no page is wider than a phone of 360 pixels, and the menu opens and closes there": () => withServer({}, (server) => withPage(server, { viewport: { width: 360, height: 740 }, hasTouch: true }, async (page) => {
    for (const path of await furnish(server)) {
      await settled(page, path);
      is(await page.evaluate(() => document.scrollingElement.scrollWidth), 360, `width of ${path}`);
    }
    await page.goto("/");
    const menu = page.getByRole("button", { name: "Menu" });
    await menu.click();
    await page.getByRole("link", { name: "Jobs" }).click();
    await shows(page.locator("h1"), "Jobs");
    const closed = async () => (await menu.getAttribute("aria-expanded")) === "false";
    await until(closed, "the menu is closed again");
    await menu.click();
    await until(async () => !(await closed()), "the menu is open");
    await page.keyboard.press("Escape");
    await until(closed, "closed by Escape");
    await until(() => menu.evaluate((b) => b === document.activeElement), "focus is back on the button");
  })),

  "the pages can be used with the keyboard alone": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.bulk(Array.from({ length: 3 }, () => ({ type: "later", input: null, in_ms: 3600000 })));
    await page.goto("/");
    await shows(page.locator("h1"), "Overview");
    await page.keyboard.press("Tab");
    await until(() => page.evaluate(() => document.activeElement.textContent === "Skip to content"), "the first stop");
    await page.keyboard.press("Enter");
    await until(() => page.evaluate(() => document.activeElement.id === "main"), "the focus after what was skipped");
    await until(async () => { // the second key counts only soon after the first, and a busy machine may be late with it
      for (const k of ["g", "j"]) await page.keyboard.press(k);
      return (await page.locator("h1").textContent()) === "Jobs";
    }, "the jobs");
    await until(async () => (await page.evaluate(() => document.activeElement.tagName)) === "H1", "a new page has the focus on its heading");
    await until(async () => (await page.locator("table.jobs tbody tr").count()) === 3, "three rows");
    for (const k of ["j", "j", "x"]) await page.keyboard.press(k);
    await shows(page.locator(".bulk"), "1 job selected");
    await page.keyboard.press("x");
    await until(() => page.locator(".bulk").isHidden(), "nothing selected");
    await page.keyboard.press("/");
    await page.keyboard.type("g t?");
    is(await page.getByLabel("Search").inputValue(), "g t?", "keys are text while a person types");
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await shows(page.getByRole("dialog"), "Keyboard shortcuts");
    await page.keyboard.press("Escape");
    await until(async () => (await page.getByRole("dialog").count()) === 0, "the help is closed");
    await page.goto("/jobs");
    await until(async () => (await page.locator("table.jobs tbody tr").count()) === 3, "three rows");
    for (const k of ["j", "Enter"]) await page.keyboard.press(k);
    await shows(page.locator(".crumbs"), "#3");
    await page.locator(".job-head").getByRole("button", { name: "Cancel" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await until(() => page.evaluate(() => document.activeElement.textContent === "Cancel job"), "the focus is on what the dialog is for");
    await page.keyboard.press("Enter");
    await shows(page.locator(".job-head .badge"), "cancelled");
  })),

  "every control of every page is reached with the Tab key, and shows that it has the focus": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    for (const path of await furnish(server)) {
      await settled(page, path);
      await page.evaluate(() => {
        globalThis.reached = new Set();
        document.addEventListener("focusin", (e) => globalThis.reached.add(e.target));
      });
      // What was drawn anew meanwhile is met in the next round.
      let missed = [];
      await until(async () => {
        const unseen = await walk(page);
        is(unseen, [], `without a sign of the focus on ${path}`);
        missed = await page.evaluate(() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
          .filter((n) => n.checkVisibility({ visibilityProperty: true }) && !n.disabled && n.tabIndex >= 0 && !globalThis.reached.has(n)).map((n) => n.outerHTML.slice(0, 120)));
        return !missed.length;
      }, `every control of ${path} is reached`).catch((e) => {
        throw new Error(`${e.message}; missed ${missed.join("\n")}`);
      });
    }
  })),

  "everything that can be operated has a name, and every page its landmarks": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    const session = await page.context().newCDPSession(page);
    const OPERABLE = ["button", "link", "textbox", "searchbox", "combobox", "checkbox", "meter", "image", "table", "region", "navigation", "dialog"];
    for (const path of await furnish(server)) {
      await settled(page, path);
      const { nodes } = await session.send("Accessibility.getFullAXTree");
      const seen = nodes.filter((n) => !n.ignored && n.role);
      const nameless = seen.filter((n) => OPERABLE.includes(n.role.value) && !n.name?.value);
      is(nameless.map((n) => n.role.value), [], `without a name on ${path}`);
      for (const role of ["main", "navigation"]) ok(seen.some((n) => n.role.value === role), `no ${role} on ${path}`);
      is(await page.locator("h1").count(), 1, `headings of ${path}`);
      is(await page.evaluate(() => document.querySelectorAll("[id]").length - new Set([...document.querySelectorAll("[id]")].map((n) => n.id)).size), 0, `ids twice on ${path}`);
    }
    is(await page.locator("html").getAttribute("lang"), "en", "language");
  })),

  "what was done is announced politely to those who do not see it": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await server.reached(await server.enqueue("good"), "completed");
    await page.goto("/types");
    await page.getByRole("button", { name: "Pause good" }).click();
    await shows(page.locator("[role=status][aria-live=polite]"), "good paused");
  })),
};

// SPDX-License-Identifier: Apache-2.0
// The backups: snapshots and sizes, checks by the button, damage by its name, and nothing of the passphrase.
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { EVIL, is, ok, shows, sluice, toasted, until, withPage, withServer } from "./harness.mjs";

const PASSPHRASE = "a passphrase that must not be seen";
const folder = (server) => path.join(server.dir, "backups");
const secret = (server) => path.join(server.dir, "passphrase");
const backup = (server, ...args) => execFileSync(sluice, ["backup", ...args, "--passphrase-file", secret(server)], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
const create = (server, ...args) => backup(server, "create", path.join(server.dir, "tree"), "--repo", folder(server), ...args);
const settings = (server) => ["--set", `backup.repo=${folder(server)}`, "--set", `backup.passphrase_file=${secret(server)}`, "--set", "backup.refresh_interval_ms=200"];

// A repository and a tree for it, before the server is started.
function made(server) {
  writeFileSync(secret(server), `${PASSPHRASE}\n`);
  chmodSync(secret(server), 0o600);
  mkdirSync(path.join(server.dir, "tree"));
  writeFileSync(path.join(server.dir, "tree", "file"), "what is in it\n".repeat(1000));
  backup(server, "init", folder(server));
  return settings(server);
}

function flip(server) {
  const root = path.join(folder(server), "packs");
  const file = readdirSync(root, { recursive: true, withFileTypes: true }).find((f) => f.isFile());
  const name = path.join(file.path ?? file.parentPath, file.name);
  const data = readFileSync(name);
  data[60] ^= 1;
  chmodSync(name, 0o600);
  writeFileSync(name, data);
  return file.name;
}

export const cases = {
  "a server without a repository teaches how to make and show one": () => withServer({}, (server) => withPage(server, {}, async (page) => {
    await page.goto("/backups");
    await shows(page.locator(".empty h2"), "No backup repository is configured");
    ok((await page.locator(".command code").allTextContents()).includes(`sluice backup create --data ${server.data} --repo ./backups`), "no command");
  })),

  "a snapshot is shown soon after it was made, newest first, with its sizes": () => withServer({ flags: (s) => made(s) }, (server) => withPage(server, {}, async (page) => {
    await page.goto("/backups");
    await shows(page.locator(".facts"), "ready");
    await shows(page.locator("section", { hasText: "Snapshots" }), "No snapshots yet");
    const first = create(server, "--tag", "daily");
    const rows = page.locator('table[aria-label="Snapshots"] tbody tr');
    await shows(rows.first(), first.slice(0, 8));
    await shows(rows.first(), "daily");
    const second = create(server, "--host", EVIL);
    await shows(rows.first(), second.slice(0, 8));
    await shows(rows.last(), first.slice(0, 8));
    await shows(rows.first(), EVIL);
    await shows(page.locator(".facts"), folder(server));
    ok((await page.title()) !== "owned", "the host's name ran");
  })),

  "a check passes, and names what is damaged": () => withServer({ flags: (s) => made(s) }, (server) => withPage(server, {}, async (page) => {
    create(server);
    await page.goto("/backups");
    await shows(page.locator(".page"), "Not checked since");
    await page.getByRole("button", { name: "Check", exact: true }).click();
    await shows(page.locator(".all-good"), "Every snapshot can be restored");
    await shows(page.locator(".all-good"), "without reading the data");
    await toasted(page, "Every snapshot can be restored");
    const victim = flip(server);
    await page.getByRole("button", { name: "Check every byte" }).focus();
    await page.keyboard.press("Enter");
    await shows(page.locator("section", { hasText: "Check" }).locator(".banner.bad"), "damaged or missing");
    await shows(page.locator('table[aria-label="Findings"]'), victim);
  })),

  "a repository that cannot be read is reported, and comes back": () => withServer({ flags: (s) => {
    const flags = made(s);
    writeFileSync(secret(s), "another");
    return flags;
  } }, (server) => withPage(server, {}, async (page) => {
    await page.goto("/backups");
    await shows(page.locator(".banner.bad"), "The repository cannot be read");
    writeFileSync(secret(server), PASSPHRASE);
    await shows(page.locator(".facts"), "ready");
    await until(async () => (await page.locator(".banner.bad").count()) === 0, "no banner");
  })),

  "nothing of the passphrase or its file is in any answer": () => withServer({ flags: (s) => made(s) }, async (server) => {
    create(server);
    await until(async () => (await server.api("GET", "/backups")).items.length === 1, "a snapshot");
    await server.api("POST", "/backups/check");
    const answers = JSON.stringify([await server.api("GET", "/backups"), await server.api("GET", "/backups/check")]);
    ok(!answers.includes(PASSPHRASE) && !answers.includes(secret(server)), "a secret is shown");
  }),

  "a server that may change nothing shows backups and no way to check them": () => withServer({ flags: (s) => [...made(s), "--read-only"] }, (server) => withPage(server, { allow: [/403/] }, async (page) => {
    await page.goto("/backups");
    await shows(page.locator(".facts"), "ready");
    is(await page.getByRole("button", { name: "Check" }).count(), 0, "buttons");
  })),
};

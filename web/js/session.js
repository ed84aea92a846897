// SPDX-License-Identifier: Apache-2.0
// Who is looking, and what they may do. Buttons that would be refused are not drawn; the server refuses them anyway.
import { del, get, post, setSession } from "./api.js";

const LEVEL = { public: 0, read: 1, write: 2, admin: 3 };
let session = null;

export const who = () => session;
export const may = (role) => Boolean(session) && (LEVEL[session.role] ?? 0) >= LEVEL[role] && !(session.read_only && role !== "read");
export const mayWrite = () => may("write");

// What commands on this machine need to reach the store of this server; nothing where it is the default one.
const quoted = (text) => (/^[\w./:@%+=~-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);
export const storeOption = () => (session?.store ? ` --store ${quoted(session.store)}` : "");
// The same for commands that take the folder of an embedded store.
export function dataOption() {
  const folder = /^sqlite:(.+)\/sluice\.db$/.exec(session?.store || "");
  return folder ? ` --data ${quoted(folder[1])}` : "";
}
export const serverOption = () => dataOption() || storeOption();

function keep(s) {
  session = s;
  setSession(s);
  return s;
}

export const load = async () => keep(await get("/session"));
export async function logIn(token) {
  await post("/session", { token });
  return load();
}
export async function logOut() {
  await del("/session");
  keep(null);
}
export const forget = () => keep(null);

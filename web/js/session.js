// SPDX-License-Identifier: Apache-2.0
// Who is looking, and what they may do. Buttons that would be refused are not drawn; the server refuses them anyway.
import { del, get, post, setSession } from "./api.js";

const LEVEL = { public: 0, read: 1, write: 2, admin: 3 };
let session = null;

export const who = () => session;
export const may = (role) => Boolean(session) && (LEVEL[session.role] ?? 0) >= LEVEL[role] && !(session.read_only && role !== "read");
export const mayWrite = () => may("write");

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

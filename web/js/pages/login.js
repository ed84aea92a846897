// SPDX-License-Identifier: Apache-2.0
// Where a token is needed. It goes to the server once and comes back as a cookie that scripts cannot read.
import { h, fill, setText } from "../dom.js";
import { startLive } from "../live.js";
import { go } from "../router.js";
import { logIn } from "../session.js";

// Only a path of this server: an address that begins with // would lead elsewhere.
const backTo = (query) => (/^\/(?!\/)/.test(query.get("next") || "") ? query.get("next") : "/");

export async function login({ root, query }) {
  const input = h("input", { id: "token", name: "token", type: "password", required: true, autocomplete: "current-password", spellcheck: "false" });
  const note = h("p", { class: "form-error", role: "alert" });
  const submit = h("button", { class: "btn primary wide", type: "submit" }, "Log in");
  const form = h("form", { class: "card login" },
    h("img", { src: document.querySelector("link[rel=icon]").href, alt: "", width: "44", height: "44" }),
    h("h1", { tabindex: "-1" }, "Sluice"), h("p", { class: "lead" }, "This server requires a token."),
    h("div", { class: "field" }, h("label", { for: "token" }, "Token"), input), note, submit,
    h("p", { class: "hint" }, "Ask the operator of the server for a token."));
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    setText(note, "");
    submit.disabled = true;
    try {
      await logIn(input.value);
      startLive();
      await go(backTo(query), { replace: true });
    } catch (error) {
      setText(note, error.status === 401 || error.status === 403 ? "Unknown token." : error.message);
      input.select();
    } finally {
      submit.disabled = false;
    }
  });
  fill(root, form);
  input.focus();
}

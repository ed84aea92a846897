// SPDX-License-Identifier: Apache-2.0
// Building the page. Everything that comes from a job is set as text or as an attribute, never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function apply(node, props) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [type, fn] of Object.entries(value)) node.addEventListener(type, fn);
    else if (name === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "value" || name === "checked" || name === "indeterminate") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// h("a", {href: "/", class: "x", on: {click}}, "text", otherNode)
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  apply(node, props);
  append(node, children);
  return node;
}

export function s(tag, props, ...children) {
  const node = document.createElementNS(SVG, tag);
  apply(node, props);
  append(node, children);
  return node;
}

export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

// Sets the text only when it differs, so that a screen reader and a selection are left alone.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

// Makes the children of parent those of items, in their order. A child whose item is the same stays untouched; one whose
// item changed is made anew, with the focus on the same control in it.
export function reconcile(parent, items, keyOf, make) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  let before = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    const print = JSON.stringify(item);
    let node = old.get(key);
    old.delete(key);
    if (!node || node.print !== print) {
      const made = make(item, node);
      made.dataset.key = key;
      made.print = print;
      if (node) {
        const at = [...node.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
        const wasSelf = node === document.activeElement;
        if (before === node) before = made;
        node.replaceWith(made);
        if (wasSelf) made.focus();
        else if (at >= 0) made.querySelectorAll(FOCUSABLE)[at]?.focus();
      }
      node = made;
    }
    if (node === before) before = before.nextElementSibling;
    else parent.insertBefore(node, before);
  }
  for (const node of old.values()) node.remove();
}

// Makes old look like made, touching only what differs: animations continue, the focus stays. For drawings without handlers.
export function morph(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) return old.replaceWith(made);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return undefined;
  }
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const children = [...made.childNodes];
  while (old.childNodes.length > children.length) old.lastChild.remove();
  children.forEach((child, i) => (i < old.childNodes.length ? morph(old.childNodes[i], child) : old.append(child)));
  return undefined;
}

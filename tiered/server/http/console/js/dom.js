// Draws a tree of plain values into the page and, next time, changes only what differs.
// Owns every write to the DOM: text goes in as text nodes, so that data can never become markup.

const SVG = "http://www.w3.org/2000/svg";
const AS_PROPERTY = new Set(["value", "checked", "selected", "disabled", "open"]);
const drawn = new WeakMap();

/** An element to draw: `h("a", { href: "#/" , on: { click } }, "text", [more])`. null, undefined and false draw nothing. */
export function h(tag, props, ...children) {
  const { key = null, on = null, ref = null, ...attributes } = props || {};
  return { tag, key, on, ref, attributes, children: flat(children) };
}

/** Makes the children of `parent` what `children` say. Elements that stay keep their focus, scroll and selection. */
export function render(parent, children) {
  patch(parent, drawn.get(parent) || [], flat([children]), parent.namespaceURI === SVG);
}

function flat(children) {
  const found = [];
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    found.push(typeof child === "object" ? child : { tag: null, key: null, text: String(child) });
  }
  return found;
}

function patch(parent, before, after, inSvg) {
  const nodes = before.map((each) => each.node);
  const keyed = new Map();
  before.forEach((each, place) => { if (each.key !== null) keyed.set(each.key, place); });
  const taken = new Set();
  let loose = 0;
  for (const next of after) {
    let place = -1;
    if (next.key !== null) {
      place = keyed.has(next.key) ? keyed.get(next.key) : -1;
    } else {
      while (loose < before.length && (before[loose].key !== null || taken.has(loose))) loose += 1;
      if (loose < before.length) { place = loose; loose += 1; }
    }
    const old = place >= 0 ? before[place] : null;
    if (old && old.tag === next.tag && !taken.has(place)) {
      taken.add(place);
      next.node = nodes[place];
      change(old, next, inSvg);
    } else {
      next.node = make(next, inSvg);
    }
  }
  const kept = new Set(after.map((each) => each.node));
  for (const node of nodes) if (!kept.has(node)) node.remove();
  let here = parent.firstChild;
  for (const next of after) {
    if (next.node === here) here = here.nextSibling;
    else parent.insertBefore(next.node, here);
  }
  drawn.set(parent, after);
  for (const next of after) if (next.ref) { next.ref(next.node); }
}

function make(next, inSvg) {
  if (next.tag === null) return document.createTextNode(next.text);
  const svg = inSvg || next.tag === "svg";
  const node = svg ? document.createElementNS(SVG, next.tag) : document.createElement(next.tag);
  next.node = node;
  change({ tag: next.tag, attributes: {}, children: [], on: null }, next, inSvg);
  return node;
}

function change(old, next, inSvg) {
  const { node } = next;
  if (next.tag === null) {
    if (old.text !== next.text) node.data = next.text;
    return;
  }
  node.tieredListeners = listen(node, next.on);
  const svg = inSvg || next.tag === "svg";
  patch(node, drawn.get(node) || [], next.children, svg && next.tag !== "foreignObject");
  // After the children: a select has its value only once it has its options.
  for (const name of Object.keys(old.attributes)) if (!(name in next.attributes)) set(node, name, null);
  for (const [name, value] of Object.entries(next.attributes)) {
    if (old.attributes[name] !== value) set(node, name, value);
  }
}

function set(node, name, value) {
  if (AS_PROPERTY.has(name) && name in node && name !== "open") {
    if (node[name] !== value) node[name] = value ?? (name === "value" ? "" : false);
    return;
  }
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

function listen(node, handlers) {
  const listeners = node.tieredListeners || new Map();
  for (const [type, handler] of Object.entries(handlers || {})) {
    if (listeners.has(type)) listeners.get(type).handler = handler;
    else {
      const entry = { handler };
      listeners.set(type, entry);
      node.addEventListener(type, (event) => entry.handler && entry.handler(event));
    }
  }
  for (const [type, entry] of listeners) if (!handlers || !(type in handlers)) entry.handler = null;
  return listeners;
}

// Small things that several views show: states, times, freshness, notices, commands to copy, page heads.

import { announce } from "./announce.js";
import { awayBecause } from "./api.js";
import { h } from "./dom.js";
import { ago, duration, exactTime, dateTime, size, sizeParts } from "./format.js";

const SHAPES = {
  good: "M2 8.5 6 12.5 14 3.5",
  warn: "M8 2 15 14H1ZM8 6.5V10M8 11.6V12.6",
  bad: "M3 3 13 13M13 3 3 13",
  quiet: "M3 8H13",
};

const WORD_CHARS = 24;

/** What `local_bytes` of topics and partitions is, in words that are the same on every page. */
export const ON_DISK = "On disk, one replica";
export const ON_DISK_MEANS = "What one replica of each partition takes on its broker's disk. Other replicas take about as much.";

/** A state by shape, word and colour; while no broker answers, the last known one. */
export function state(kind, text) {
  return awayBecause() === null ? mark(kind, text) : before(text);
}

/** A state that was so before, and that nobody knows now. */
export function before(text) {
  return mark("quiet", `last known: ${text.charAt(0).toLowerCase()}${text.slice(1)}`);
}

/** The same, for what is known whoever answers. */
export function mark(kind, text) {
  return h("span", { class: `state state-${kind}` },
    h("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" },
      h("path", { d: SHAPES[kind], fill: "none", stroke: "currentColor", "stroke-width": "2" })),
    text);
}

/** A button for what the broker must do: off while nobody answers. */
export function action(props, ...children) {
  return h("button", { type: "button", ...props, disabled: Boolean(props.disabled) || awayBecause() !== null }, children);
}

/** A name that may be broken where its words end, and only a word that is too long elsewhere. */
export function named(text) {
  const words = text.split(/(?<=[^a-zA-Z0-9])(?=[a-zA-Z0-9])/).flatMap((word) => word.match(new RegExp(`.{1,${WORD_CHARS}}`, "gsu")) || []);
  return words.map((word, place) => [place > 0 && h("wbr"), word]);
}

/** How long ago, with the exact time as a tooltip. */
export function moment(ms, { absolute = false } = {}) {
  if (ms === null || ms === undefined || ms === -1) return h("span", { class: "soft" }, "unknown");
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return h("span", { class: "number", title: exactTime(ms) }, String(ms));
  const iso = at.toISOString();
  return h("time", { datetime: iso, title: exactTime(ms), class: "number" }, absolute ? dateTime(ms) : ago(ms));
}

/** A dash for what nobody could tell, and why. */
export function unknown(why) {
  return h("span", { class: "soft", title: why }, "–", h("span", { class: "unseen" }, ` unknown: ${why}`));
}

export function sized(bytes) {
  return h("span", { class: "number" }, size(bytes));
}

export function figure(name, value, unit, note) {
  return h("div", null, h("dt", null, name), h("dd", null, value, unit && h("span", { class: "unit" }, unit), note && h("small", null, note)));
}

export function sizeFigure(name, bytes, note) {
  const [amount, unit] = sizeParts(bytes);
  return figure(name, amount, unit, note);
}

/** One line on how old the data is; a sentence when the broker no longer answers. */
export function freshness(source) {
  if (source.loadedAt === null) return h("p", { class: "freshness" }, source.error ? "No answer yet" : "Loading …");
  const passed = Date.now() - source.loadedAt;
  if (!source.isStale) return h("p", { class: "freshness" }, `Updated ${ago(source.loadedAt)}`);
  return h("p", { class: "freshness stale" }, `Stale: ${duration(passed)} old`);
}

/** What to show instead of data: nothing yet, or why not. null when there is data and it is fresh, and while nobody
    answers, which the page says once for all of it. */
export function trouble(source) {
  if (source.error === null || (source.error.status === 0 && awayBecause() !== null)) return null;
  const since = source.loadedAt === null ? "" : ` The data shown is from ${ago(source.loadedAt)}.`;
  return notice("bad", `${source.error.message}${since} This page tries again every ${duration(source.everyMs)}.`);
}

export function notice(kind, ...children) {
  return h("p", { class: `notice notice-${kind}` }, children);
}

/** What went wrong with what was asked for: read out when it appears. */
export function problem(text) {
  return h("p", { class: "notice notice-bad", role: "alert" }, text);
}

/** A label with its control, the hint that explains it (`${id}-hint`), and what is wrong with it. */
export function field(id, label, control, { hint = null, wrong = null, grow = false } = {}) {
  return h("div", { class: grow ? "field grow" : "field", key: id }, h("label", { for: id }, label), control,
    hint && h("p", { class: "hint", id: `${id}-hint` }, hint), wrong && h("p", { class: "problem", role: "alert" }, wrong));
}

/** One of `entries` ([value, name]): a switch, or with `legend` to be seen, choices below each other. */
export function radios(name, entries, chosen, change, { legend, choices = false }) {
  return h("fieldset", { class: choices ? "choices" : "switch" }, h("legend", { class: choices ? "label" : "unseen" }, legend), entries.map(([value, title], place) =>
    h("label", null, h("input", { type: "radio", name, value, checked: chosen === value, "data-first": choices && place === 0, on: { change } }), title)));
}

/** What stands where the answer will be: nothing yet, or why not. */
export function asking(source) {
  return trouble(source) || h("p", { class: "soft" }, "Loading …");
}

/** A command and a button that copies it. */
export function command(text) {
  return h("div", { class: "command" },
    h("pre", { tabindex: "0" }, h("code", null, text)),
    h("button", { type: "button", "aria-label": `Copy: ${text}`, on: { click: () => copy(text) } }, "Copy"));
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied.");
  } catch {
    announce("This browser does not let the page copy: select the text instead.");
  }
}

/** The head of a page: where it is, its name, how fresh, what can be done. */
export function head({ crumbs = [], title, subtitle = null, source = null, actions = [] }) {
  return h("div", { class: "head", key: "head" },
    h("div", { class: "titles" },
      crumbs.length > 0 && h("nav", { "aria-label": "Breadcrumb" },
        h("ol", { class: "crumbs" }, crumbs.map(([name, href]) => h("li", null, h("a", { href }, name))))),
      h("h1", { tabindex: "-1", id: "title" }, named(title)),
      subtitle && h("p", { class: "subtitle" }, subtitle)),
    h("div", { class: "actions" }, source && freshness(source), actions));
}

export function panel(title, { end = null, id = null, key = title, about = null } = {}, ...children) {
  return h("section", { class: "panel", key, "aria-labelledby": id || `panel-${slug(title)}` },
    h("div", { class: "panel-head" }, h("h2", { id: id || `panel-${slug(title)}` }, title), about && h("span", { class: "soft" }, about),
      end && h("div", { class: "end" }, end)),
    children);
}

export function tabs(label, entries, current) {
  return h("nav", { "aria-label": label, key: "tabs" },
    h("ul", { class: "tabs" }, entries.map(([id, name, href]) =>
      h("li", null, h("a", { href, "aria-current": id === current ? "page" : null }, name)))));
}

function slug(text) {
  return text.toLowerCase().replace(/[^a-z0-9]+/g, "-");
}

// A topic's configs: what holds, where it comes from, and the way to change it.

import { h } from "../js/dom.js";
import { duration, size, whole } from "../js/format.js";
import { action, named, panel } from "../js/parts.js";
import { makeTable } from "../js/table.js";
import { changeConfig } from "./change_config.js";

const SOURCES = {
  TOPIC: "this topic", DYNAMIC_TOPIC: "this topic", DYNAMIC_TOPIC_CONFIG: "this topic",
  DYNAMIC_BROKER: "broker, changed at run time", DYNAMIC_BROKER_CONFIG: "broker, changed at run time",
  DYNAMIC_DEFAULT: "cluster, changed at run time", DYNAMIC_DEFAULT_BROKER_CONFIG: "cluster, changed at run time",
  STATIC_BROKER: "broker's settings", STATIC_BROKER_CONFIG: "broker's settings", DEFAULT: "default", DEFAULT_CONFIG: "default",
};

export function configsTab({ name, query, changed, topic }) {
  const table = makeTable({
    caption: "Configs", noun: "configs", query, order: "source", changed,
    keyOf: (each) => each.name,
    words: (each) => `${each.name} ${each.documentation}`,
    columns: [
      { id: "name", name: "Config", sort: (each) => each.name, cell: (each) => [
        h("span", { class: "mono breaks" }, named(each.name)), h("p", { class: "soft wide documentation" }, each.documentation)] },
      { id: "value", name: "Value", class: "breaks", cell: (each) => [h("span", { class: "mono anywhere" }, named(valueOf(each))), meaning(each)] },
      { id: "source", name: "Source", wide: true, sort: (each) => `${rank(each)} ${each.name}`, cell: (each) => [
        ownOf(each) ? h("span", { class: "tag" }, "this topic") : h("span", { class: "soft" }, SOURCES[each.source] || each.source),
        isInert(each) && h("div", null, h("span", { class: "tag" }, "no effect here"))] },
      { id: "change", name: "Change", head: h("span", { class: "unseen" }, "Change"), right: true, cell: (each) => !each.read_only && (ownOf(each) || !isInert(each)) && action({
        class: "plain", "aria-label": `Change ${each.name}`,
        on: { click: () => changeConfig(name, each, { changed: () => topic.refresh() }) },
      }, "Change") },
    ],
    empty: () => h("p", { class: "empty" }, "This topic has no configs of its own."),
  });

  function draw(data) {
    const own = data.configs.filter(ownOf).length;
    return [
      h("div", { class: "bar", key: "bar" }, table.search("Find a config by name or meaning")),
      panel("Configs", { about: own === 0 ? "all have the broker's values" : `${whole(own)} set for this topic` }, table.draw(data.configs, { stale: topic.isStale })),
    ];
  }
  return { draw, stop() {} };
}

/** Accepted for Kafka's clients alone: whatever its value, nothing here reads it. */
function isInert(config) {
  return config.has_effect === false;
}

/** What was set comes first, what has no effect last. */
function rank(config) {
  if (isInert(config)) return ownOf(config) ? 1 : 3;
  return ownOf(config) ? 0 : 2;
}

export function ownOf(config) {
  return SOURCES[config.source] === "this topic";
}

export function valueOf(config) {
  if (config.is_sensitive) return "(secret)";
  if (config.value === null || config.value === "") return "(empty)";
  return config.value;
}

/** "7 d" beside 604800000, "1.00 GiB" beside 1073741824. */
export function meaning({ name, value }) {
  const number = Number(value);
  if (value === null || value === "" || !Number.isFinite(number)) return null;
  let text = null;
  if (value === "9223372036854775807") text = "never";
  else if (number === -1 && /(retention|max)\.(ms|bytes)$/.test(name)) text = "no limit";
  else if (number > 999 && name.endsWith(".ms") && number < 1e15) text = duration(number);
  else if (number > 1023 && name.endsWith(".bytes") && number < 1e18) text = size(number);
  return text && h("span", { class: "soft number" }, ` ${text}`);
}

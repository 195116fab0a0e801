// What disk, metadata store and object store disagree about, what to do, and how far each broker has looked.

import { get } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, whole } from "../js/format.js";
import { GRAVE } from "../js/health.js";
import { head, moment, named, notice, panel, sized, state, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link } from "../js/router.js";
import { makeTable, plainTable } from "../js/table.js";

export function findingsView({ query, changed }) {
  const found = poll((signal) => get("api/v1/reconcile", { signal }), { everyMs: 15_000, changed });
  const table = makeTable({
    caption: "Findings", noun: "findings", query, order: "where", changed,
    keyOf: (each) => [each.broker_id, each.kind, each.topic_id, each.partition, each.first_offset, each.chunk, each.name].join(" "),
    words: (each) => `${each.kind} ${each.topic} ${each.message} ${each.name}`,
    columns: [
      { id: "where", name: "Where", sort: (each) => `${each.topic}-${each.partition} ${each.first_offset}`, cell: whereOf },
      { id: "kind", name: "What is wrong, and what to do", sort: (each) => each.kind, cell: (each) => [
        state(GRAVE.has(each.kind) ? "bad" : "warn", each.kind), h("div", { class: "breaks" }, named(each.message)),
        h("div", { class: "soft breaks" }, named(each.advice)), each.name && h("code", { class: "breaks" }, named(each.name))] },
      { id: "since", name: "Since", right: true, wide: true, sort: (each) => each.found_at_ms, cell: (each) => moment(each.found_at_ms) },
      { id: "broker", name: "Found by", right: true, wide: true, sort: (each) => each.broker_id, cell: (each) => String(each.broker_id) },
    ],
    empty: () => h("div", { class: "empty" }, state("good", "Nothing"), h("p", null, "Disk, metadata store and object store agree as far as they were looked at.")),
  });

  function draw() {
    const data = found.data;
    const page = [head({
      crumbs: [["Brokers", "#/brokers"]], title: "Findings", source: found,
      subtitle: data && `${data.findings.length === 0 ? "No findings" : counted(data.findings.length, "finding")}; docs/reconcile.md explains each kind`,
    }), trouble(found)];
    if (data === null) return page;
    const omitted = data.brokers.reduce((all, each) => all + each.omitted, 0);
    return [...page,
      data.silent.length > 0 && notice("warn", `What broker ${data.silent.join(", ")} found is missing: no answer.`),
      omitted > 0 && notice("warn", `${counted(omitted, "finding")} more had no room; the brokers' logs have them.`),
      data.findings.length > 10 && h("div", { class: "bar", key: "bar" }, table.search("Find a finding")),
      panel("What is wrong", {}, table.draw(data.findings, { stale: found.isStale })),
      panel("How far each broker is", {}, plainTable("How far each broker is", [
        { name: "Broker", cell: (each) => String(each.broker_id) },
        { name: "Looks", wide: true, cell: (each) => (each.enabled ? state("good", "yes") : state("warn", "switched off")) },
        { name: "All objects looked for", right: true, cell: (each) => counted(each.turns, "time") },
        { name: "Objects", right: true, wide: true, cell: (each) => whole(each.objects) },
        { name: "Chunks read", right: true, wide: true, cell: (each) => sized(each.scrubbed_bytes) },
        { name: "All chunks read", right: true, cell: (each) => (each.scrub_turn_ended_at_ms > 0 ? moment(each.scrub_turn_ended_at_ms) : "not yet") },
      ], data.brokers, (each) => each.broker_id))];
  }
  return { title: () => "Findings", draw, stop: () => found.stop() };
}

/** The partition with a link, and its offsets, as far as the finding has any. */
function whereOf(each) {
  const offsets = each.first_offset < 0 ? null : h("div", { class: "number soft" }, `offsets ${whole(each.first_offset)}–${whole(each.last_offset)}`);
  if (each.partition < 0) return [h("span", { class: "breaks" }, named(each.topic)), offsets];
  return [h("a", { href: link(["topics", each.topic, "partitions", each.partition]), class: "breaks" }, named(`${each.topic}-${each.partition}`)), offsets];
}

// Where disk, metadata store and object store disagree, what to do about it, and how much each broker has checked.

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
      { id: "broker", name: "Found by broker", right: true, wide: true, sort: (each) => each.broker_id, cell: (each) => String(each.broker_id) },
    ],
    empty: () => h("div", { class: "empty" }, state("good", "No findings"), h("p", null, "Disks, metadata store and object store agree, as far as the brokers have checked.")),
  });

  function draw() {
    const data = found.data;
    const page = [head({
      title: "Findings", source: found,
      subtitle: data && `${data.findings.length === 0 ? "No findings" : counted(data.findings.length, "finding")}. docs/reconcile.md explains each kind.`,
    }), trouble(found)];
    if (data === null) return page;
    const omitted = data.brokers.reduce((all, each) => all + each.omitted, 0);
    return [...page,
      data.silent.length > 0 && notice("warn", `The findings of broker ${data.silent.join(", ")} are missing: it did not answer.`),
      omitted > 0 && notice("warn", `${counted(omitted, "more finding")} did not fit into this list; the brokers' logs have them.`),
      data.findings.length > 10 && h("div", { class: "bar", key: "bar" }, table.search("Find a finding")),
      panel("What is wrong", {}, table.draw(data.findings, { stale: found.isStale })),
      panel("What each broker has checked", {}, plainTable("What each broker has checked", [
        { name: "Broker", cell: (each) => String(each.broker_id) },
        { name: "Checking", wide: true, cell: (each) => (each.enabled ? state("good", "on") : state("warn", "switched off")) },
        { name: "Full checks of all objects", right: true, cell: (each) => whole(each.turns) },
        { name: "Objects checked", right: true, wide: true, cell: (each) => whole(each.objects) },
        { name: "Data read and checked", right: true, wide: true, cell: (each) => sized(each.scrubbed_bytes) },
        { name: "Last time all data was read", right: true, cell: (each) => (each.scrub_turn_ended_at_ms > 0 ? moment(each.scrub_turn_ended_at_ms) : "not yet") },
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

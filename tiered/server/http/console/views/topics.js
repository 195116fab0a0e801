// All topics: searched, sorted, a page at a time; and the way to a new one.

import { get } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, whole } from "../js/format.js";
import { ON_DISK, ON_DISK_MEANS, action, command, head, named, panel, sized, state, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link, refine } from "../js/router.js";
import { legend, topicStrip } from "../js/strip.js";
import { makeTable } from "../js/table.js";
import { createTopic } from "./create_topic.js";
import { lastWriteOf, readOf, retentionOf, writtenOf } from "./topic_facts.js";
import { isLong } from "./transactions.js";

export function topicsView({ query, changed, go, cluster }) {
  const topics = poll((signal) => get("api/v1/topics", { query: { partitions: "false" }, signal }), { everyMs: 10_000, changed });
  const create = () => createTopic({ created: (name) => go(["topics", name]), brokers: cluster.data?.brokers.length });
  const table = makeTable({
    caption: "Topics", noun: "topics", query, order: "topic", changed,
    keyOf: (each) => each.topic,
    words: (each) => each.topic,
    columns: [
      { id: "topic", name: "Topic", class: "wraps-left", sort: (each) => each.topic, cell: (each) => [
        h("a", { href: link(["topics", each.topic]), class: "breaks" }, named(each.topic)), each.internal && [" ", h("span", { class: "tag" }, "internal")], compactedTag(each), h("div", { class: "narrow" }, troubleOf(each, (count) => counted(count, "partition"))), heldBackMark(each)] },
      { id: "partitions", name: "Partitions", right: true, wide: true, sort: (topic) => topic.partition_count, cell: (topic) => whole(topic.partition_count) },
      { id: "replicas", name: "Replicas", right: true, wide: true, sort: (topic) => topic.replication_factor, cell: replicasOf },
      { id: "records", name: "Records, up to", right: true, wide: true, sort: (topic) => topic.record_count, cell: (topic) => whole(topic.record_count) },
      { id: "in", name: "Written", right: true, wide: true, sort: (topic) => topic.bytes_in_per_s ?? -1, cell: writtenOf },
      { id: "out", name: "Read", right: true, wide: true, class: "roomy", sort: (topic) => topic.bytes_out_per_s ?? -1, cell: readOf },
      { id: "last", name: "Last write", right: true, wide: true, sort: (topic) => topic.last_write_ms ?? -1, cell: lastWriteOf },
      { id: "retention", name: "Retention", wide: true, class: "roomy", sort: retentionOrder, cell: retentionOf },
      { id: "disk", name: ON_DISK, title: ON_DISK_MEANS, right: true, sort: (topic) => topic.local_bytes, cell: (topic) => sized(topic.local_bytes) },
      { id: "store", name: "Object store", right: true, sort: (topic) => topic.cold_bytes, cell: (topic) => sized(topic.cold_bytes) },
      { id: "where", name: "Where its records are", wide: true, class: "strip-cell strip-narrow roomy", cell: topicStrip },
    ],
    empty: () => h("div", { class: "empty" }, h("h3", null, "There is no topic yet"),
      h("p", null, "A topic is a named log that producers append to. Create one here or from the command line:"),
      command("tiered topics create orders --partitions 3"),
      action({ class: "primary", on: { click: create } }, "Create a topic")),
  });

  function draw() {
    const found = topics.data?.topics;
    return [
      head({ title: "Topics", source: topics, subtitle: found && counted(found.length, "topic"),
        actions: [action({ class: "primary", id: "create-topic", on: { click: create } }, "Create a topic")] }),
      trouble(topics),
      found && h("div", { class: "bar", key: "bar" }, table.search("Find a topic"), legend(["hot", "both", "cold", "overdue"])),
      found && panel("All topics", {}, h("div", { class: "dense" }, table.draw(found, { stale: topics.isStale }))),
    ];
  }

  /** What lacks replicas or a leader; `name` says how many partitions that are. */
  function troubleOf(topic, name) {
    if (topic.offline > 0) return state("bad", `${name(topic.offline)} offline`);
    return topic.under_replicated > 0 && state("warn", `${name(topic.under_replicated)} under-replicated`);
  }

  function heldBackMark(topic) {
    return isLong(topic.held_back_since_ms) && h("div", null, h("a", { href: "#/transactions" }, state("warn", "readers held back")));
  }

  /** How many, and a mark where a partition has fewer in sync. */
  function replicasOf(topic) {
    return [whole(topic.replication_factor), h("div", { class: "wraps", title: "partitions" }, troubleOf(topic, whole))];
  }

  /** In the list, since it changes what the number of records means. */
  function compactedTag({ cleanup_policy: policy }) {
    return policy?.includes("compact") && [" ", h("span", { class: "tag" }, "compacted")];
  }

  function retentionOrder({ retention_ms: ms }) {
    return ms === -1 ? Infinity : ms ?? -1;
  }

  if (query.new === "1") {
    // Going back must not open it again.
    refine({ new: null });
    setTimeout(create);
  }
  return { title: () => "Topics", draw, stop: () => topics.stop() };
}

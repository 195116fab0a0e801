// All topics: searched, sorted, a page at a time; and the way to a new one.

import { get } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, whole } from "../js/format.js";
import { action, command, head, named, panel, sized, state, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link, refine } from "../js/router.js";
import { legend, topicStrip } from "../js/strip.js";
import { makeTable } from "../js/table.js";
import { createTopic } from "./create_topic.js";

export function topicsView({ query, changed, go, cluster }) {
  const topics = poll((signal) => get("api/v1/topics", { query: { partitions: "false" }, signal }), { everyMs: 10_000, changed });
  const create = () => createTopic({ created: (name) => go(["topics", name]), brokers: cluster.data?.brokers.length });
  const table = makeTable({
    caption: "Topics", noun: "topics", query, order: "topic", changed,
    keyOf: (each) => each.topic,
    words: (each) => each.topic,
    columns: [
      { id: "topic", name: "Topic", sort: (each) => each.topic, cell: (each) => [
        h("a", { href: link(["topics", each.topic]), class: "breaks" }, named(each.topic)), each.internal && [" ", h("span", { class: "tag" }, "internal")], compactedTag(each), troubleOf(each)] },
      { id: "partitions", name: "Partitions", right: true, wide: true, sort: (each) => each.partition_count, cell: (each) => whole(each.partition_count) },
      { id: "records", name: "Records, up to", right: true, wide: true, sort: (each) => each.record_count, cell: (each) => whole(each.record_count) },
      { id: "disk", name: "On disk", right: true, sort: (each) => each.local_bytes, cell: (each) => sized(each.local_bytes) },
      { id: "store", name: "Object store", right: true, sort: (each) => each.cold_bytes, cell: (each) => sized(each.cold_bytes) },
      { id: "where", name: "Where its offsets are", wide: true, class: "strip-cell", cell: topicStrip },
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
      found && panel("All topics", {}, table.draw(found, { stale: topics.isStale })),
    ];
  }

  function troubleOf(topic) {
    if (topic.offline > 0) return h("div", null, state("bad", `${counted(topic.offline, "partition")} offline`));
    return topic.under_replicated > 0 && h("div", null, state("warn", `${counted(topic.under_replicated, "partition")} under-replicated`));
  }

  /** In the list, since it changes what the number of records means. */
  function compactedTag({ cleanup_policy: policy }) {
    return policy?.includes("compact") && [" ", h("span", { class: "tag" }, "compacted")];
  }

  if (query.new === "1") {
    // Going back must not open it again.
    refine({ new: null });
    setTimeout(create);
  }
  return { title: () => "Topics", draw, stop: () => topics.stop() };
}

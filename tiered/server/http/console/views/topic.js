// One topic: its partitions, its records, its consumers, its configs, its retention. Owns the choice between them.

import { get, part } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, size, whole } from "../js/format.js";
import { ON_DISK, ON_DISK_MEANS, command, figure, head, notice, panel, sized, state, tabs, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link } from "../js/router.js";
import { legend, smallStrip } from "../js/strip.js";
import { makeTable } from "../js/table.js";
import { configsTab } from "./configs.js";
import { consumersTab } from "./consumers.js";
import { diskOnly } from "./disk_only.js";
import { followersOf, positionsIn } from "./positions.js";
import { manageTab } from "./manage.js";
import { recordsTab } from "./records.js";
import { retentionTab } from "./retention.js";
import { lastWriteOf, readOf, retentionOf, writtenOf } from "./topic_facts.js";
import { heldBack, heldBackPanel, isLong, openTransactions } from "./transactions.js";

const TABS = [["partitions", "Partitions"], ["records", "Records"], ["consumers", "Consumers"], ["configs", "Configs"], ["retention", "Retention"], ["manage", "Manage"]];

export function topicView(context, name, tab) {
  const { changed, cluster } = context;
  const topic = poll((signal) => get(`api/v1/topics/${part(name)}`, { signal }), { everyMs: 5_000, changed });
  const followers = tab === "partitions" || tab === "consumers" ? followersOf(name, changed) : null;
  const shown = tabOf(tab, { ...context, name, topic, followers });

  function draw() {
    const data = topic.data;
    const page = [head({
      crumbs: [["Topics", "#/topics"]], title: name, source: topic,
      subtitle: data && `${counted(data.partition_count, "partition")}${data.replication_factor > 1 ? `, ${data.replication_factor} replicas each` : ""}, ${data.record_count === 0 ? "no records" : `up to ${counted(data.record_count, "record")}`}, ${size(data.local_bytes)} on disk${data.replication_factor > 1 ? " (one replica)" : ""}, ${size(data.cold_bytes)} in the object store${policyOf(data)}`,
    })];
    if (topic.error?.status === 404) {
      return [...page, notice("bad", topic.error.message), h("p", null, h("a", { href: "#/topics" }, "See the topics that exist"))];
    }
    return [...page, trouble(topic), tabs("Pages of this topic", TABS.map(([id, title]) => [id, title, link(["topics", name, id])]), tab), data && unreachableMinimum(data), data && shown.draw(data, cluster.data)];
  }

  return { title: () => name, draw, stop() { topic.stop(); followers?.stop(); shown.stop(); } };
}

function policyOf({ cleanup_policy: policy }) {
  if (!policy?.includes("compact")) return "";
  return policy.includes("delete") ? "; compacted: keeps the newest record of each key, until retention deletes it" : "; compacted: keeps the newest record of each key";
}

/** acks=all is never answered while more replicas must be in sync than there are. */
function unreachableMinimum({ configs, replication_factor: replicas }) {
  const minimum = Number(configs.find((each) => each.name === "min.insync.replicas")?.value);
  return minimum > replicas && notice("warn", `min.insync.replicas is ${minimum}, and each partition has ${counted(replicas, "replica")}: produce requests with acks=all are refused.`);
}

function tabOf(tab, context) {
  if (tab === "records") return recordsTab(context);
  if (tab === "configs") return configsTab(context);
  if (tab === "manage") return manageTab(context);
  if (tab === "retention") return retentionTab(context);
  if (tab === "consumers") return consumersTab(context);
  return partitionsTab(context);
}

function partitionsTab({ name, query, changed, topic, followers }) {
  const standing = (each) => positionsIn(followers, each.partition);
  let open = null;
  const table = makeTable({
    caption: "Partitions", noun: "partitions", query, order: "partition", changed,
    keyOf: (each) => each.partition,
    words: (each) => String(each.partition),
    columns: [
      { id: "partition", name: "Partition", class: "wraps-left", sort: (each) => each.partition, cell: (each) => [
        h("a", { href: link(["topics", name, "partitions", each.partition]) }, String(each.partition)), marksOf(each)] },
      { id: "where", name: "Where its records are", class: "strip-cell", cell: (each) => smallStrip(each, standing(each)) },
      { id: "start", name: "First offset", right: true, wide: true, sort: (each) => each.log_start_offset, cell: (each) => whole(each.log_start_offset) },
      { id: "end", name: "High watermark", right: true, sort: (each) => each.high_watermark, cell: (each) => whole(each.high_watermark) },
      { id: "disk", name: ON_DISK, title: ON_DISK_MEANS, right: true, wide: true, sort: (each) => each.local_bytes, cell: (each) => sized(each.local_bytes) },
      { id: "store", name: "Object store", right: true, wide: true, sort: (each) => each.cold_bytes, cell: (each) => sized(each.cold_bytes) },
      { id: "leader", name: "Leader", right: true, wide: true, sort: (each) => each.leader, cell: (each) => leaderOf(each) },
      { id: "isr", name: "In sync", wide: true, sort: (each) => each.isr.length, cell: inSync },
      { id: "replicas", name: "Replicas", wide: true, cell: (each) => each.replicas.join(", ") },
    ],
    empty: () => h("p", { class: "empty" }, "This topic has no partitions here: Tiered keeps committed offsets in SQL. See Groups."),
  });

  function draw(data, cluster) {
    const held = heldBack(data.partitions);
    if (held.length > 0) open ??= openTransactions(changed);
    return [
      data.record_count === 0 && data.partitions.length > 0 && firstRecord(name, cluster),
      data.partitions.length > 0 && h("dl", { class: "figures", key: "figures" },
        figure("Written", writtenOf(data)), figure("Read by consumers", readOf(data)), figure("Last write", lastWriteOf(data)), figure("Retention", retentionOf(data))),
      h("div", { class: "bar", key: "bar" },
        data.partitions.length > 20 && table.search("Find a partition by number"), legend()),
      held.length > 0 && heldBackPanel(held, open),
      diskOnly(data.partitions, data.configs),
      panel("Partitions", { about: "upper lane: the leader's disk · lower lane: the object store" }, table.draw(data.partitions, { stale: topic.isStale })),
    ];
  }
  return { draw, stop: () => open?.stop() };
}

/** What is wrong with the partition, where it is seen on a phone too. */
function marksOf(partition) {
  const marks = [];
  if (partition.leader < 0) marks.push(state("bad", "offline"));
  else if (partition.under_min_isr) marks.push(state("bad", "below minimum"));
  else if (partition.under_replicated) marks.push(state("warn", "under-replicated"));
  if (isLong(partition.held_back_by?.since_ms)) marks.push(state("warn", "readers held back"));
  if (partition.adding_replicas.length || partition.removing_replicas.length) marks.push(h("span", { class: "tag" }, "moving"));
  return marks.map((mark) => h("div", null, mark));
}

function leaderOf(partition) {
  return partition.leader < 0 ? state("bad", "none") : `${partition.leader}`;
}

function inSync(partition) {
  if (partition.failed) return state("bad", "disk failed");
  const count = `${partition.isr.length} of ${partition.replicas.length}`;
  const names = partition.replicas.length > 1 ? `: ${partition.isr.join(", ") || "none"}` : "";
  return state(partition.under_min_isr ? "bad" : partition.under_replicated ? "warn" : "good", count + names);
}

/** Teaches the next command. */
export function firstRecord(name, cluster) {
  const broker = cluster?.brokers[0];
  const address = broker ? `${broker.host}:${broker.port}` : "127.0.0.1:9092";
  return h("section", { class: "panel", key: "first", "aria-labelledby": "first-record" }, h("div", { class: "empty" },
    h("h2", { id: "first-record" }, "No records yet"),
    h("p", null, "Produce the first one with kcat, or with Tiered's own command:"),
    command(`echo 'hello' | kcat -b ${address} -t ${name} -P`),
    command(`echo 'hello' | tiered produce ${name} --bootstrap ${address}`),
    h("p", null, "Then follow it live in ", h("a", { href: link(["topics", name, "records"]) }, "Records"), ".")));
}

// One partition: the strip in full, each segment, and where groups stand.

import { get, part } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, size, whole } from "../js/format.js";
import { brokerState } from "../js/health.js";
import { copy, figure, head, moment, named, notice, panel, sized, state, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link } from "../js/router.js";
import { largeStrip, legend, segmentKind, tierMark } from "../js/strip.js";
import { makeTable, plainTable } from "../js/table.js";
import { diskOnly } from "./disk_only.js";
import { followersOf, positionsIn } from "./positions.js";

const KINDS = { hot: "only on disks", active: "only on disks, being written", both: "on disk and in the store", cold: "only in the store", overdue: "only on disks, upload overdue" };

export function partitionView({ query, changed, cluster }, name, number) {
  const path = `api/v1/topics/${part(name)}`;
  const segments = poll((signal) => get(`${path}/partitions/${part(number)}/segments`, { signal }), { everyMs: 5_000, changed });
  const topic = poll((signal) => get(path, { signal }), { everyMs: 5_000, changed });
  const followers = followersOf(name, changed);
  const table = makeTable({
    caption: "Segments", noun: "segments", query, order: "-offsets", changed,
    keyOf: (each) => each.base_offset,
    columns: [
      { id: "offsets", name: "Offsets", sort: (each) => each.base_offset, cell: (each) => h("a", {
        href: link(["topics", name, "records"], { mode: "read", partition: number, offset: each.base_offset }), class: "number", title: "Read from here",
      }, each.end_offset > each.base_offset ? `${whole(each.base_offset)}–${whole(each.end_offset - 1)}` : `${whole(each.base_offset)}, empty`) },
      { id: "where", name: "Where", sort: (each) => each.kind, cell: (each) => [tierMark(each.kind), " ", KINDS[each.kind]] },
      { id: "size", name: "Size", right: true, sort: (each) => each.size_bytes, cell: (each) => sized(each.size_bytes) },
      { id: "newest", name: "Newest record", right: true, sort: (each) => each.max_timestamp_ms, cell: (each) => moment(each.max_timestamp_ms) },
      { id: "oldest", name: "Oldest record", right: true, wide: true, sort: (each) => each.min_timestamp_ms, cell: (each) => moment(each.min_timestamp_ms) },
      { id: "object", name: "Object", wide: true, cell: (each) => (each.object_key ? objectKey(each) : h("span", { class: "soft" }, "none yet")) },
    ],
    empty: () => h("p", { class: "empty" }, "No segments: no record was produced yet, or all of them were deleted."),
  });

  function draw() {
    const data = segments.data;
    const crumbs = [["Topics", "#/topics"], [name, link(["topics", name])]];
    const page = [head({ crumbs, title: `Partition ${number}`, source: segments, subtitle: data && counted(data.segments.length, "segment") })];
    if (segments.error?.status === 404) return [...page, notice("bad", segments.error.message)];
    page.push(trouble(segments));
    if (data === null) return page;
    const standing = positionsIn(followers, Number(number));
    const about = topic.data?.partitions.find((each) => each.partition === Number(number));
    const overdueEnd = data.overdue_end_offset ?? 0;
    const kinds = data.segments.map((each) => ({ ...each, kind: segmentKind(each, overdueEnd) }));
    page.push(
      h("dl", { class: "figures", key: "figures" },
        figure("First offset", whole(data.log_start_offset)),
        figure("In the object store up to offset", whole(data.cold_end_offset), "", coldShare(data)),
        figure("On the leader's disk from offset", whole(data.local_log_start_offset), "", about && size(about.local_bytes)),
        figure("High watermark", whole(data.high_watermark), "", data.log_end_offset > data.high_watermark ? `log end offset ${whole(data.log_end_offset)}` : "everything written can be read"),
        about && figure("Leader", about.leader < 0 ? state("bad", "none") : String(about.leader), "", `epoch ${about.leader_epoch}; in sync: ${about.isr.join(", ") || "none"} of ${about.replicas.join(", ")}`)),
      about && about.told_by === null && notice("warn", "The leader does not answer: these offsets are the last that the metadata store knows."),
      about && diskOnly([about], topic.data.configs),
      about?.failed && notice("bad", `This log takes no more writes: ${about.failed}`),
      data.segments.length >= 10_000 && notice("warn", "Only the oldest 10,000 segments are shown."),
      panel("Where its records are", { about: "upper lane: the leader's disk · lower lane: the object store" }, h("div", { class: "panel-body" },
        data.log_end_offset > data.log_start_offset ? largeStrip(data, standing) : h("p", { class: "soft" }, "No records."),
        legend(["hot", "active", "both", "cold", "overdue", "consumer"]))),
      about && about.replicas.length > 1 && replicasPanel(about, cluster.data?.brokers || []),
      standing.length > 0 && panel("Committed offsets of groups", {}, plainTable("Committed offsets of groups", [
        { name: "Group", cell: (each) => h("a", { href: link(["groups", each.group]), class: "breaks" }, named(each.group)) },
        { name: "Committed", right: true, cell: (each) => whole(each.offset) },
        { name: "Lag", right: true, cell: (each) => whole(each.lag) },
        { name: "Reads next from", cell: (each) => tierAt(kinds, each.offset, data.high_watermark) },
        { name: "Committed at", right: true, wide: true, cell: (each) => moment(each.atMs) },
      ], standing, (each) => each.group)),
      panel("Segments", {}, table.draw(kinds, { stale: segments.isStale })));
    return page;
  }

  return { title: () => `${name}, partition ${number}`, draw, stop() { segments.stop(); topic.stop(); followers.stop(); } };
}

/** Each replica with its broker; the first one is preferred as leader. */
function replicasPanel(about, brokers) {
  const rows = about.replicas.map((id, place) => ({ id, place, broker: brokers.find((each) => each.broker_id === id) }));
  return panel("Replicas", { about: "the first is preferred as leader" }, plainTable("Replicas", [
    { name: "Broker", cell: ({ id }) => h("a", { href: "#/brokers" }, String(id)) },
    { name: "Role", cell: ({ id }) => [id === about.leader ? "leader" : "follower", movingTag(about, id)] },
    { name: "In sync", cell: ({ id }) => (about.isr.includes(id) ? state("good", "in sync") : state("warn", "not in sync")) },
    { name: "Broker's state", cell: ({ broker }) => (broker ? state(...brokerState(broker)) : state("bad", "not registered")) },
    { name: "Rack", wide: true, cell: ({ broker }) => broker?.rack || h("span", { class: "soft" }, "none") },
  ], rows, ({ id }) => id));
}

function movingTag(about, id) {
  if (about.adding_replicas.includes(id)) return [" ", h("span", { class: "tag" }, "being added")];
  return about.removing_replicas.includes(id) && [" ", h("span", { class: "tag" }, "being removed")];
}

function objectKey(segment) {
  return [h("code", { class: "clip", title: segment.object_key }, segment.object_key),
    h("button", { type: "button", class: "plain", "aria-label": `Copy the object key of offset ${segment.base_offset}`, on: { click: () => copy(segment.object_key) } }, "Copy")];
}

function coldShare(data) {
  return data.cold_end_offset > data.log_start_offset ? `${whole(data.cold_end_offset - data.log_start_offset)} offsets` : "nothing yet";
}

function tierAt(segments, offset, highWatermark) {
  if (offset >= highWatermark) return "the end: caught up";
  const found = segments.find((each) => offset < each.end_offset);
  if (!found) return "—";
  return found.kind === "cold" ? "the object store" : "a broker's disk";
}


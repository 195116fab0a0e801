// What the next retention check would do to one partition, and why: the answer of the function that the leader uses.

import { get, part } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, duration, size, whole } from "../js/format.js";
import { field, figure, moment, named, notice, panel, sizeFigure, sized, state, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { plainTable } from "../js/table.js";

const UNLIMITED = -1;
const SHOWN_RUNS = 500;
const CONFIGS = ["cleanup.policy", "retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes", "remote.storage.enable", "tiered.purge.grace.ms"];

export function retentionTab({ name, query, go, changed }) {
  const number = Number.parseInt(query.partition, 10) || 0;
  const retention = poll((signal) => get(`api/v1/topics/${part(name)}/partitions/${number}/retention`, { signal }), { everyMs: 10_000, changed });

  function draw(topic) {
    const data = retention.data;
    const page = [
      topic.partition_count > 1 && h("div", { class: "bar", key: "bar" }, field("retention-partition", "Partition",
        h("input", { id: "retention-partition", type: "number", min: "0", max: String(topic.partition_count - 1), value: String(number), on: { change: (event) => choose(event.target, topic) } }))),
      trouble(retention),
    ];
    if (data === null) return page;
    return [...page,
      !data.clock.trusted && notice("warn", `Nothing is deleted for its age: ${data.clock.reason}`),
      h("dl", { class: "figures", key: "figures" },
        figure("First offset", whole(data.log_start_offset), "", nextStart(data)),
        sizeFigure("The next check deletes", data.retires.bytes, counted(data.retires.segments, "segment")),
        sizeFigure("It keeps", data.keeps.bytes, counted(data.keeps.segments, "segment")),
        sizeFigure("Waits for deletion from the store", data.retired.bytes, waiting(data.retired))),
      runsPanel(`Segments of partition ${number}`, "oldest first, both tiers", data.runs),
      runsPanel("Copies on the leader's disk", "what local retention does", data.local_runs),
      data.pins.length > 0 && panel("Kept for snapshots and readers", {}, plainTable("Kept for snapshots and readers", [
        { name: "By", class: "breaks", cell: (each) => named(each.name) },
        { name: "Offsets", cell: (each) => span(each.start_offset, each.end_offset) },
        { name: "Until", right: true, cell: (each) => (each.expires_at_ms === null ? "the snapshot is deleted" : moment(each.expires_at_ms)) },
      ], data.pins, (each) => each.name)),
      panel("Configs that decide this", { about: `as broker ${data.broker_id} applies them` }, plainTable("Configs that decide this", [
        { name: "Config", cell: (config) => h("code", null, config) },
        { name: "Value", right: true, cell: (config) => valueOf(config, data.configs[config]) },
      ], CONFIGS, (config) => config))];
  }

  function choose(field, topic) {
    const wanted = Number.parseInt(field.value, 10);
    if (wanted >= 0 && wanted < topic.partition_count) go(["topics", name, "retention"], { partition: wanted });
  }
  return { draw, stop: () => retention.stop() };
}

function runsPanel(title, about, runs) {
  if (runs.length === 0) return panel(title, { about }, h("p", { class: "empty" }, "No segments."));
  const table = plainTable(title, [
    { name: "Offsets", cell: (each) => span(each.base_offset, each.end_offset) },
    { name: "What the next check does, and why", cell: (each) => [
      each.deletes ? state("warn", "deleted") : state("good", "kept"),
      h("div", { class: "soft" }, each.why, each.pin && [": ", h("span", { class: "breaks" }, named(each.pin))])] },
    { name: "Segments", right: true, wide: true, cell: (each) => whole(each.segments) },
    { name: "Size", right: true, cell: (each) => sized(each.size_bytes) },
    { name: "Newest record", right: true, wide: true, cell: (each) => moment(each.newest_ms) },
  ], runs.slice(0, SHOWN_RUNS), (each) => each.base_offset);
  return panel(title, { about }, table, runs.length > SHOWN_RUNS && h("p", { class: "empty soft" }, `The oldest ${whole(SHOWN_RUNS)} of ${whole(runs.length)} rows; tiered explain-retention has all of them.`));
}

function span(start, end) {
  return h("span", { class: "number nowrap" }, end > start ? `${whole(start)}–${whole(end - 1)}` : `${whole(start)}, empty`);
}

function nextStart({ log_start_offset: now, new_log_start_offset: next }) {
  return next > now ? `the next check moves it to ${whole(next)}` : "the next check leaves it there";
}

function waiting({ objects, pinned_objects: pinned, next_purge_ms: next }) {
  if (objects === 0) return "no object";
  const held = pinned > 0 ? `, ${whole(pinned)} kept for readers` : "";
  return `${counted(objects, "object")}${held}${next === null ? "" : `; the next is deleted at ${new Date(next).toLocaleString("en-GB")}`}`;
}

function valueOf(config, value) {
  if (value === UNLIMITED) return "no limit";
  if (config.endsWith(".ms")) return duration(value);
  return config.endsWith(".bytes") ? size(value) : String(value);
}

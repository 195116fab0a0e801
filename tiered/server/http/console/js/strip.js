// The strip: a partition's offsets from left to right; the upper lane is the local disk, the lower one the object store.
// Owns how places are drawn and said: what the picture shows, its text alternative says. Draws values, asks nobody.

import { h } from "./dom.js";
import { counted, whole } from "./format.js";

const TICKS = 5;
const MIN_WIDTH = 0.25;

/** Ranges of a partition from its offsets alone: { base, end, disk, bucket, kind }. */
export function rangesOf(partition) {
  const start = partition.log_start_offset;
  const end = partition.log_end_offset;
  const localStart = clamp(partition.local_log_start_offset, start, end);
  const coldEnd = clamp(partition.cold_end_offset, start, end);
  const overdueEnd = clamp(partition.overdue_end_offset ?? coldEnd, coldEnd, end);
  return [
    { base: start, end: Math.min(localStart, coldEnd), kind: "cold" },
    { base: Math.max(start, localStart), end: coldEnd, kind: "both" },
    { base: Math.max(coldEnd, localStart), end: overdueEnd, kind: "overdue" },
    { base: Math.max(overdueEnd, localStart), end, kind: "hot" },
  ].filter((range) => range.end > range.base);
}

/** Ranges of single segments, for the large strip. Neighbours too narrow to see are drawn as one. */
export function rangesOfSegments(answer) {
  const overdueEnd = answer.overdue_end_offset ?? 0;
  const found = [];
  const least = (answer.log_end_offset - answer.log_start_offset) * (MIN_WIDTH / 100);
  for (const segment of answer.segments) {
    const base = Math.max(segment.base_offset, answer.log_start_offset);
    if (segment.end_offset <= base) continue;
    const kind = segmentKind(segment, overdueEnd);
    const last = found[found.length - 1];
    if (last && last.kind === kind && last.end === base && (last.end - last.base < least || segment.end_offset - base < least)) {
      last.end = segment.end_offset;
      last.count += 1;
    } else {
      found.push({ base, end: segment.end_offset, kind, count: 1 });
    }
  }
  return found;
}

export function segmentKind(segment, overdueEnd) {
  if (segment.tier !== "hot") return segment.tier;
  if (segment.state === "active") return "active";
  return segment.end_offset <= overdueEnd ? "overdue" : "hot";
}

/** What the picture says, in words. */
export function wordsOf(ranges, consumers = []) {
  if (ranges.length === 0) return "No records.";
  const names = { cold: "only in the object store", both: "on disk and in the object store", hot: "only on disks", active: "only on disks, being written", overdue: "only on disks, upload overdue" };
  const merged = [];
  for (const range of ranges) {
    const last = merged[merged.length - 1];
    if (last && last.kind === range.kind && last.end === range.base) last.end = range.end;
    else merged.push({ ...range });
  }
  const shown = merged.slice(0, 12).map((range) => `offsets ${whole(range.base)} to ${whole(range.end - 1)} ${names[range.kind]}`);
  if (merged.length > 12) shown.push(`${counted(merged.length - 12, "more range")}`);
  const readers = consumers.slice(0, 20).map((each) => `group ${each.group} has committed ${whole(each.offset)}`);
  return `${[...shown, ...readers].join("; ")}.`;
}

/** The strip of one row of a table. */
export function smallStrip(partition, consumers = []) {
  const ranges = rangesOf(partition);
  const scale = scaleOf(partition);
  return h("svg", { class: "strip", role: "img", "aria-label": wordsOf(ranges, consumers) },
    lanes(2, 7, 9), ranges.map((range) => bars(range, scale, 2, 7, 9)),
    consumers.slice(0, 50).map((each) => marker(each, scale, 0, 20)));
}

/** A topic's partitions added up: how many offsets are only cold, both, overdue and only hot. */
export function topicStrip(topic) {
  if (topic.internal) return h("span", { class: "soft" }, "kept in SQL");
  const tiers = topic.tier_records;
  if (!tiers || topic.record_count === 0) return h("span", { class: "soft" }, "no records");
  const coldEnd = tiers.cold + tiers.both;
  return smallStrip({
    log_start_offset: 0, local_log_start_offset: tiers.cold, cold_end_offset: coldEnd,
    overdue_end_offset: coldEnd + tiers.overdue, log_end_offset: coldEnd + tiers.overdue + tiers.hot,
  });
}

/** The strip of one partition's page: with segments, a scale and the groups' names. */
export function largeStrip(answer, consumers) {
  const ranges = rangesOfSegments(answer);
  const scale = scaleOf(answer);
  const top = 34;
  const named = consumers.slice(0, 30);
  const rows = [-100, -100];
  return h("svg", { class: "strip strip-large", role: "img", "aria-label": wordsOf(ranges, consumers) },
    lanes(top, 22, 26),
    ranges.map((range) => bars(range, scale, top, 22, 26)),
    h("text", { x: "0", y: String(top - 4), class: "lane-name" }, ""),
    ticks(answer, scale, top + 52),
    named.map((each) => {
      const at = scale(each.offset);
      const room = 3 + each.group.length * 0.9;
      const row = rows.findIndex((until) => at - until > room || until < 0);
      if (row >= 0) rows[row] = at;
      return [marker(each, scale, 24, top + 50), row >= 0 && h("text", {
        x: `${at}%`, y: row === 0 ? "20" : "8", "text-anchor": at > 85 ? "end" : at < 8 ? "start" : "middle",
      }, shortened(each.group))];
    }));
}

/** What the marks mean, in the same marks. */
export function legend(kinds = ["hot", "both", "cold", "overdue", "consumer"]) {
  const names = { hot: "hot: only on disks (not yet in the object store)", active: "being written", both: "on disks and in the object store", cold: "cold: only in the object store", overdue: "overdue: its upload is late", consumer: "committed offset of a group" };
  return h("ul", { class: "legend", "aria-label": "Legend of the strips" }, kinds.map((kind) =>
    h("li", null, tierMark(kind), names[kind])));
}

/** A kind as the strip draws it, small. */
export function tierMark(kind) {
  return h("svg", { class: "strip mark", "aria-hidden": "true" }, kind === "consumer"
    ? marker({ group: "", offset: 50 }, (at) => at, 0, 16)
    : [lanes(1, 6, 8), bars({ base: 0, end: 100, kind }, (at) => at, 1, 6, 8)]);
}

/** Patterns that strips refer to; drawn once in the page. */
export function stripDefs() {
  return h("svg", { class: "strip-defs", "aria-hidden": "true", focusable: "false" },
    h("defs", null, h("pattern", { id: "overdue", width: "6", height: "6", patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      h("rect", { class: "back", width: "6", height: "6" }), h("line", { class: "stripe", x1: "0", y1: "0", x2: "0", y2: "6", "stroke-width": "5" }))));
}

function lanes(top, height, step) {
  return [top, top + step].map((y) => h("rect", { class: "lane", x: "0", y: String(y), width: "100%", height: String(height), rx: "1.5" }));
}

function bars(range, scale, top, height, step) {
  const x = scale(range.base);
  const width = Math.max(scale(range.end) - x, MIN_WIDTH);
  const place = { x: `${x}%`, width: `${width}%`, height: String(height), rx: "1.5" };
  const upper = { cold: null, both: "disk", hot: "disk", active: "active", overdue: "overdue" }[range.kind];
  return [
    upper && h("rect", { ...place, class: upper, y: String(top) }),
    (range.kind === "cold" || range.kind === "both") && h("rect", { ...place, class: "bucket", y: String(top + step) }),
    "count" in range && x > 0 && h("line", { class: "edge", x1: `${x}%`, x2: `${x}%`, y1: String(top), y2: String(top + step + height) }),
  ];
}

function marker(consumer, scale, top, bottom) {
  const at = `${scale(consumer.offset)}%`;
  return h("svg", { x: at, y: "0", class: "strip-marker", overflow: "visible", width: "1", height: String(bottom) },
    consumer.group && h("title", null, `${consumer.group} has committed ${whole(consumer.offset)}`),
    h("line", { class: "consumer-line", x1: "0", x2: "0", y1: String(top), y2: String(bottom) }),
    h("path", { class: "consumer", d: `M-4 ${top}H4L0 ${top + 5}Z` }));
}

function ticks(answer, scale, y) {
  const { log_start_offset: start, log_end_offset: end } = answer;
  if (end <= start) return [];
  const step = roundStep((end - start) / TICKS);
  const offsets = [start];
  // A round offset too near to an end would be written over its label.
  for (let offset = Math.ceil((start + 1) / step) * step; offset < end; offset += step) {
    if (scale(offset) > 9 && scale(offset) < 91) offsets.push(offset);
  }
  offsets.push(end);
  return offsets.map((offset, place) => {
    const at = `${scale(offset)}%`;
    const isFirst = place === 0;
    const isLast = place === offsets.length - 1;
    return [h("line", { class: "tick", x1: at, x2: at, y1: String(y), y2: String(y + 5) }),
      h("text", { x: at, y: String(y + 18), "text-anchor": isFirst ? "start" : isLast ? "end" : "middle", class: isFirst || isLast ? null : "wide" }, whole(offset))];
  });
}

/** 1, 2 or 5 times a power of ten. */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least);
}

function scaleOf({ log_start_offset: start, log_end_offset: end }) {
  const span = Math.max(1, end - start);
  return (offset) => Math.round(clamp((offset - start) / span, 0, 1) * 1e5) / 1e3;
}

function shortened(name) {
  return name.length > 24 ? `${name.slice(0, 22)}…` : name;
}

function clamp(number, least, most) {
  return Math.min(Math.max(number, least), most);
}

// What a topic is written, read and kept like, in words: the same in the list and on the topic's own page.

import { h } from "../js/dom.js";
import { kept, perSecond, size } from "../js/format.js";
import { moment, unknown } from "../js/parts.js";

const MEAN = "The mean of the last 15 to 45 seconds";
const NO_REPLICA = "this broker has no replica in sync, and the leader did not answer";
const NOT_LEADER = "other brokers lead partitions of this topic; the page of the topic asks them";
const NO_RIGHT = "you may not see the configs of this topic";

export function writtenOf(topic) {
  if ((topic.records_in_per_s ?? null) === null) return topic.internal ? null : unknown(NO_REPLICA);
  if (topic.bytes_in_per_s === 0) return h("span", { class: "soft", title: MEAN }, "nothing");
  return [h("div", { title: MEAN }, `${perSecond(topic.records_in_per_s)} records/s`), h("div", { class: "soft" }, `${size(Math.round(topic.bytes_in_per_s))}/s`)];
}

export function readOf(topic) {
  if ((topic.bytes_out_per_s ?? null) === null) return topic.internal ? null : unknown(NOT_LEADER);
  if (topic.bytes_out_per_s === 0) return h("span", { class: "soft", title: MEAN }, "nothing");
  return h("span", { title: MEAN }, `${size(Math.round(topic.bytes_out_per_s))}/s`);
}

export function lastWriteOf(topic) {
  if ((topic.last_write_ms ?? null) !== null) return moment(topic.last_write_ms);
  if (topic.internal) return null;
  return topic.record_count === 0 ? h("span", { class: "soft" }, "never") : unknown(NO_REPLICA);
}

export function retentionOf(topic) {
  if ((topic.retention_ms ?? null) === null) return unknown(NO_RIGHT);
  if (topic.internal) return null;
  const { retention_ms: ms, retention_bytes: bytes, local_retention_ms: localMs, local_retention_bytes: localBytes, cleanup_policy: policy } = topic;
  const local = { ms: localMs === ms ? -1 : localMs, bytes: localBytes === bytes ? -1 : localBytes };
  return [h("div", null, policy.includes("delete") ? kept({ ms, bytes }) : "newest of each key"),
    (local.ms >= 0 || local.bytes >= 0) && h("div", { class: "soft", title: "Local retention: after that, records are in the object store alone" }, `on disk: ${kept(local)}`)];
}

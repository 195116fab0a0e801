// How old the oldest record is that is only on brokers' disks, in words, and whether that is as it should be.

import { h } from "../js/dom.js";
import { duration } from "../js/format.js";
import { moment, notice } from "../js/parts.js";

const LIMIT = "tiered.disk.only.max.ms";
// The limit closes the segment; the upload itself takes its time, too.
const LATE = 2;

/** A sentence for these partitions of one topic; null where the object store has every record that belongs there.
    `configs` are empty for a login that may not see them. */
export function diskOnly(partitions, configs) {
  const times = partitions.map((partition) => partition.disk_only_since_ms ?? null).filter((ms) => ms !== null);
  if (times.length === 0) return null;
  const sinceMs = Math.min(...times);
  const limitMs = limitOf(configs);
  const isLate = limitMs !== null && limitMs >= 0 && Date.now() - sinceMs > limitMs * LATE;
  const text = ["The oldest record that is only on disks (not yet in the object store) was written ", moment(sinceMs), rest(limitMs, isLate)];
  if (!isLate) return h("p", { class: "soft", key: "disk-only" }, text);
  const isHeldBack = partitions.some((partition) => partition.held_back_by);
  const why = isHeldBack ? "An open transaction is not uploaded before it ends: see Held back." : [h("a", { href: "#/" }, "Health on the overview"), " says whether the object store is away."];
  return h("div", { key: "disk-only" }, notice("warn", text, why));
}

function limitOf(configs) {
  const value = configs?.find((config) => config.name === LIMIT)?.value;
  return value === undefined ? null : Number(value);
}

function rest(limitMs, isLate) {
  if (isLate) return `. It should have been there within ${duration(limitMs)} (${LIMIT}). `;
  if (limitMs === null) return ".";
  if (limitMs < 0) return `. It is uploaded once its segment is full or old enough (segment.bytes, segment.ms); there is no other limit (${LIMIT} is -1).`;
  return `; within ${duration(limitMs)} it is in the object store (${LIMIT}), unless an open transaction keeps it back.`;
}

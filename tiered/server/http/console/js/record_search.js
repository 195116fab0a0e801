// Reads a page of records, or looks on until a page of those that match is found. Owns how far a search looks at once.

import { get, part } from "./api.js";

export const PAGE = 100;
const LOOK_RECORDS = 1_000;
const MAX_LOOKED = 50_000;
const MAX_MS = 15_000;
const FIELD_BYTES = 16 << 10;

/** { records, looked, from, next, start, end }: ends with PAGE records, the partition, or what is looked at at once.
    `from` is the first offset that was looked at, `next` the first that was not. */
export async function search(topic, { partition, where, matches, isWanted }) {
  const until = performance.now() + MAX_MS;
  const found = { records: [], looked: 0, from: null, next: null, start: 0, end: 0 };
  while (isWanted()) {
    const place = found.next === null ? where : { offset: found.next };
    const page = await get(`api/v1/topics/${part(topic)}/records`, { query: { partition, ...place, limit: matches ? LOOK_RECORDS : PAGE, field_bytes: FIELD_BYTES } });
    found.from ??= page.records[0]?.offset ?? page.next_offset;
    Object.assign(found, { next: page.next_offset, start: page.log_start_offset, end: page.high_watermark });
    for (const record of page.records) {
      found.looked += 1;
      if (!matches || matches(record)) found.records.push({ ...record, partition: page.partition });
      if (found.records.length === PAGE) {
        found.next = record.offset + 1;
        return found;
      }
    }
    if (!matches || page.is_end || found.looked >= MAX_LOOKED || performance.now() > until) return found;
  }
  return found;
}

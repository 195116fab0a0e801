// Gives records to the reader as a file: one JSON object a line, each whole, though the page shows the beginning alone.

import { get, part } from "./api.js";

const WHOLE_BYTES = 1 << 20;

/** Saves `records` of `topic`. What was cut for the page is read again, one by one, up to a MiB of each field. */
export async function download(topic, records) {
  const lines = [];
  for (const record of records) lines.push(JSON.stringify(lineOf(isCut(record) ? await whole(topic, record) : record)));
  const url = URL.createObjectURL(new Blob(lines.map((line) => `${line}\n`), { type: "application/x-ndjson" }));
  const anchor = Object.assign(document.createElement("a"), { href: url, download: `${topic}.jsonl` });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

async function whole(topic, { partition, offset }) {
  const { records } = await get(`api/v1/topics/${part(topic)}/records`, { query: { partition, offset, limit: 1, field_bytes: WHOLE_BYTES } });
  return { ...records[0], partition };
}

function isCut({ key, value, headers, header_count: count = headers.length }) {
  return [key, value, ...headers.map((each) => each.value)].some((each) => each?.truncated) || count > headers.length;
}

function lineOf({ partition, offset, timestamp_ms, key, value, headers }) {
  return { partition, offset, timestamp_ms, key: contentOf(key), value: contentOf(value), headers: headers.map((each) => [each.key, contentOf(each.value)]) };
}

/** Text as it is; other bytes, and what is still cut, say so. */
function contentOf(field) {
  if (field === null) return null;
  const content = field.text ?? { base64: field.base64 };
  return field.truncated ? { truncated: true, size_bytes: field.size_bytes, content } : content;
}

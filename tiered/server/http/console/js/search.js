// Searches a topic on the broker, which looks through all partitions and tells how far it is. Owns the connection and the
// records that were found. Bounded: the newest MAX_RECORDS of them are kept.

import { ApiError, answerOf, part, unreachable, urlOf } from "./api.js";
import { isFinal, readEvents } from "./events.js";
import { pairOf } from "./record_filter.js";

export const MAX_RECORDS = 500;
const MATCHES = 100;
const FIELD_BYTES = 16 << 10;
const MAX_TROUBLES = 20;

export const WAYS = [["text", "value has text"], ["regex", "value matches"], ["json", "JSON field"], ["header", "header"], ["key", "key is"], ["prefix", "key begins with"], ["none", "any record"]];

/** What the broker is asked for. Throws what is wrong with it. */
export function queryOf({ way, wanted, partition, fromMs, toMs }) {
  const query = { partition, from_ms: fromMs, to_ms: toMs, limit: MATCHES, field_bytes: FIELD_BYTES };
  if (way === "none") return query;
  if (wanted.trim() === "") throw new Error("Say what to look for, or choose any record.");
  const [name, value] = pairOf(wanted);
  const conditions = {
    text: { text: wanted }, regex: { regex: wanted }, key: { key: wanted }, prefix: { key_prefix: wanted },
    json: { json_path: name, json_value: value }, header: { header: name, header_value: value },
  };
  return { ...query, ...conditions[way] };
}

/** Starts at once. `changed()` after news; `state` is running, cancelled, ended, failed or refused. */
export function openSearch(topic, { query, changed, ended }) {
  const search = { state: "running", records: [], matches: 0, looked: 0, bytes: 0, places: [], reason: null, troubles: [], error: null };
  let controller = null;
  let lastEventId = null;
  let before = { looked: 0, bytes: 0 };
  const starts = new Map();

  async function connect() {
    controller = new AbortController();
    const { signal } = controller;
    Object.assign(search, { state: "running", reason: null, error: null, troubles: [] });
    before = { looked: search.looked, bytes: search.bytes };
    changed();
    try {
      const headers = { Accept: "text/event-stream", ...(lastEventId ? { "Last-Event-ID": lastEventId } : {}) };
      const answer = await fetch(urlOf(`api/v1/topics/${part(topic)}/search`, query), { signal, headers, cache: "no-store" });
      if (!answer.ok) await answerOf(answer);
      await readEvents(answer.body, receive);
      if (search.state === "running") throw new ApiError(0, "The broker broke the search off.");
    } catch (error) {
      if (signal.aborted) return;
      search.error = error instanceof ApiError ? error : new ApiError(0, unreachable());
      search.state = isFinal(search.error.status) ? "refused" : "failed";
    }
    changed();
    ended(search);
  }

  function receive(event) {
    if (event.id) lastEventId = event.id;
    const data = JSON.parse(event.data || "null");
    if (event.type === "match") keep(data);
    else if (event.type === "trouble" && search.troubles.length < MAX_TROUBLES) search.troubles.push(data);
    else if (event.type === "progress" || event.type === "end") move(data);
    if (event.type === "end") {
      search.state = "ended";
      search.reason = data.reason;
    }
    changed();
  }

  function keep(record) {
    search.matches += 1;
    search.records.push(record);
    search.records.sort((a, b) => a.timestamp_ms - b.timestamp_ms || a.partition - b.partition || a.offset - b.offset);
    if (search.records.length > MAX_RECORDS) search.records.shift();
  }

  function move({ looked_records: looked, read_bytes: bytes, partitions }) {
    search.looked = before.looked + looked;
    search.bytes = before.bytes + bytes;
    search.places = partitions.map(({ partition, start_offset: start, next_offset: next, end_offset: end }) => {
      if (!starts.has(partition)) starts.set(partition, start);
      return { partition, looked: next - starts.get(partition), all: end - starts.get(partition) };
    });
  }

  connect();
  return Object.assign(search, {
    /** Hangs up, which ends the reading at the broker. */
    cancel() {
      controller.abort();
      search.state = "cancelled";
      changed();
      ended(search);
    },
    /** Goes on behind what was looked at. */
    goOn: connect,
    stop: () => controller.abort(),
  });
}

export function hasMore({ state, reason }) {
  return state !== "running" && state !== "refused" && reason !== "done";
}

// Follows a topic: server-sent events over fetch, so that it can resume exactly where it paused and read refusals.
// Owns the connection and the last records. Bounded: MAX_RECORDS and MAX_BYTES, the oldest go first.

import { ApiError, answerOf, get, part, unreachable, urlOf } from "./api.js";
import { isFinal, readEvents } from "./events.js";

export const MAX_RECORDS = 500;
const MAX_BYTES = 16 << 20;
const FIELD_BYTES = 16 << 10;
const RETRY_MS = [500, 1_000, 2_000, 4_000, 8_000];

/** Starts at once: with the newest records of all partitions, or `from` latest or earliest. `changed()` after every batch of news; `state` is connecting, live, paused, waiting or failed. */
export function openTail(topic, { partition, key, isPrefix, from, matches = null, changed }) {
  const tail = { state: "connecting", records: [], received: 0, matched: 0, dropped: 0, behind: null, problems: [], ended: null, error: null, lastEventId: null };
  let bytes = 0;
  let controller = null;
  let timer = null;
  let failures = 0;
  const chosen = { partition, [isPrefix ? "key_prefix" : "key"]: key, field_bytes: FIELD_BYTES };

  /** Afterwards the tail begins behind what was read here. */
  async function readNewest(signal) {
    const newest = await get(`api/v1/topics/${part(topic)}/newest`, { query: chosen, signal });
    newest.records.forEach(keep);
    tail.problems = newest.problems;
    tail.lastEventId = newest.last_event_id;
    changed();
  }

  async function connect() {
    controller = new AbortController();
    const { signal } = controller;
    tail.state = "connecting";
    changed();
    try {
      if (from === "newest" && tail.lastEventId === null) await readNewest(signal);
      const headers = { Accept: "text/event-stream" };
      if (tail.lastEventId !== null) headers["Last-Event-ID"] = tail.lastEventId;
      const url = urlOf(`api/v1/topics/${part(topic)}/tail`, {
        ...chosen, from: from === "newest" ? null : from,
      });
      const answer = await fetch(url, { signal, headers, cache: "no-store" });
      if (!answer.ok) await answerOf(answer);
      tail.state = "live";
      tail.error = null;
      changed();
      await readEvents(answer.body, receive);
      if (!signal.aborted) again(new ApiError(0, tail.ended ? tail.ended.message : "The broker ended the tail."));
    } catch (error) {
      if (signal.aborted) return;
      again(error instanceof ApiError ? error : new ApiError(0, unreachable()));
    }
  }

  function again(error) {
    tail.error = error;
    if (isFinal(error.status)) {
      tail.state = "failed";
    } else {
      tail.state = "waiting";
      timer = setTimeout(connect, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
      failures += 1;
    }
    changed();
  }

  function receive(event) {
    failures = 0;
    if (event.id !== null) tail.lastEventId = event.id;
    // A heartbeat has an id and no data.
    if (event.data === "") return;
    const data = JSON.parse(event.data);
    if (event.type === "record") {
      keep(data);
      if (tail.behind && hasCaughtUp(tail.behind, tail.lastEventId)) tail.behind = null;
    }
    else if (event.type === "behind") tail.behind = { atMs: Date.now(), ...data };
    else if (event.type === "end") tail.ended = data;
    changed();
  }

  function keep(record) {
    tail.received += 1;
    if (matches && !matches(record)) return;
    tail.matched += 1;
    record.weight = 300 + weight(record.key) + weight(record.value);
    tail.records.unshift(record);
    bytes += record.weight;
    while (tail.records.length > MAX_RECORDS || (bytes > MAX_BYTES && tail.records.length > 1)) {
      bytes -= tail.records.pop().weight;
      tail.dropped += 1;
    }
  }

  function stop() {
    clearTimeout(timer);
    controller?.abort();
  }

  connect();
  return Object.assign(tail, {
    /** Hangs up. Nothing is lost: `resume` goes on after the last record that came. */
    pause() {
      stop();
      tail.state = "paused";
      changed();
    },
    resume() {
      failures = 0;
      connect();
    },
    clear() {
      tail.records.length = 0;
      tail.dropped = 0;
      tail.received = 0;
      tail.matched = 0;
      tail.behind = null;
      bytes = 0;
      changed();
    },
    stop,
  });
}

/** True once everything that was late has come. What was skipped never does. */
function hasCaughtUp(behind, lastEventId) {
  if (behind.skipped || behind.reason === "cut_off") return false;
  const positions = new Map((lastEventId || "").split(",").map((each) => each.split(":").map(Number)));
  return behind.partitions.every((each) => (positions.get(each.partition) ?? 0) >= each.to_offset);
}

function weight(field) {
  return field === null ? 0 : field.base64.length + (field.text?.length ?? 0) * 2;
}

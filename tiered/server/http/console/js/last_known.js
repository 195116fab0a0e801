// Keeps the last figures of each broker, so that one that does not answer shows what it had, and since when.
// Owns that memory: one entry for each registered broker, as long as the page is open.

/** A broker of an answer of `nowMs`, with the moment of its newest heartbeat by this page's clock, or null. */
export function withHeartbeat(broker, nowMs = Date.now()) {
  return { ...broker, heartbeatAtMs: broker.heartbeat_age_ms === null ? null : nowMs - broker.heartbeat_age_ms };
}

/** Puts `last` ({ atMs, version, totals } or null) to each broker of an answer of /api/v1/cluster. */
export function makeLastKnown() {
  let known = new Map();
  return (data, nowMs = Date.now()) => {
    const newer = new Map();
    const brokers = data.brokers.map((broker) => withHeartbeat(broker, nowMs));
    for (const broker of brokers) {
      const last = broker.totals === null ? known.get(broker.broker_id) : { atMs: nowMs, version: broker.version, totals: broker.totals };
      broker.last = last ?? null;
      if (last) newer.set(broker.broker_id, last);
    }
    known = newer;
    return { ...data, brokers };
  };
}

// Asks again and again while the page is visible, and knows how old the last answer is.
// Owns the rhythm. What was known stays when the broker is away; it is marked, not thrown away. One answer that was lost
// is asked for again before it counts as an error.

import { awayBecause } from "./api.js";

const STALE_AFTER = 3;
const AGAIN_MS = 1_000;

/** `load(signal)` every `everyMs`; `changed()` after each answer. Bounded: one question at a time. */
export function poll(load, { everyMs = 5_000, changed }) {
  const state = { data: null, error: null, loadedAt: null, everyMs };
  let timer = null;
  let stopped = false;
  let asking = null;
  let isLost = false;

  async function ask() {
    clearTimeout(timer);
    if (stopped || asking) return;
    asking = new AbortController();
    try {
      state.data = await load(asking.signal);
      state.loadedAt = Date.now();
      state.error = null;
      isLost = false;
    } catch (error) {
      if (stopped) return;
      const isFirst = error.status === 0 && !error.isLate && !isLost && awayBecause() === null;
      isLost = error.status === 0;
      if (isFirst) {
        asking = null;
        timer = setTimeout(ask, AGAIN_MS);
        return;
      }
      state.error = error;
    }
    asking = null;
    if (stopped) return;
    changed();
    if (!document.hidden) timer = setTimeout(ask, state.everyMs);
  }

  function visible() {
    if (!document.hidden) ask();
  }
  document.addEventListener("visibilitychange", visible);
  ask();

  return {
    get data() { return state.data; },
    get error() { return state.error; },
    get loadedAt() { return state.loadedAt; },
    get everyMs() { return state.everyMs; },
    /** True when what is shown is older than it should be. */
    get isStale() {
      return state.loadedAt !== null && (state.error !== null || awayBecause() !== null || Date.now() - state.loadedAt > STALE_AFTER * state.everyMs + 5_000);
    },
    /** Asks now, or right after the question that is open: its answer may be from before a change. */
    async refresh() {
      while (asking && !stopped) await new Promise((done) => setTimeout(done, 20));
      await ask();
    },
    stop() {
      stopped = true;
      clearTimeout(timer);
      asking?.abort();
      document.removeEventListener("visibilitychange", visible);
    },
  };
}

// Asks the broker that serves this page whether it lives, while the page is looked at.
// Owns the rhythm and the judgement: nobody answers only after two questions without an answer, in a page that was
// itself not held up, and only if nothing else was answered meanwhile.

import { answered, lateAfter, unanswered, unreachable, urlOf } from "./api.js";

const EVERY_MS = 2_000;
const SECOND_AFTER_MS = 1_500;
const PAUSE_MS = 500;
const PATIENCE_MS = 3_500;
const HELD_UP_MS = 1_000;

/** `changed()` after each look. Worst: a broker that hangs is known to after EVERY_MS + PATIENCE_MS. */
export function watchBroker(changed) {
  let timer = null;
  let isLooking = false;

  async function look() {
    clearTimeout(timer);
    if (isLooking) return;
    isLooking = true;
    const startedMs = performance.now();
    const first = question(PATIENCE_MS);
    const outcome = await Promise.race([first, wait(SECOND_AFTER_MS)]);
    if (outcome !== "answered") {
      if (outcome === "refused") await wait(PAUSE_MS);
      const outcomes = await Promise.all([first, question(PATIENCE_MS - SECOND_AFTER_MS)]);
      const wasHeldUp = performance.now() - startedMs > PATIENCE_MS + HELD_UP_MS;
      if (!outcomes.includes("answered") && !wasHeldUp) {
        unanswered(outcomes.includes("late") ? lateAfter(PATIENCE_MS) : unreachable(), startedMs);
      }
    }
    isLooking = false;
    changed();
    if (!document.hidden) timer = setTimeout(look, EVERY_MS);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  look();
}

/** "answered", "late" or "refused". */
async function question(patienceMs) {
  try {
    const answer = await fetch(urlOf("healthz"), { signal: AbortSignal.timeout(patienceMs), cache: "no-store" });
    await answer.text(); // An answer that is not read keeps its connection.
  } catch (error) {
    return error.name === "TimeoutError" ? "late" : "refused";
  }
  answered();
  return "answered";
}

function wait(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

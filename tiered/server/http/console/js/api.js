// Asks the broker. Owns the token for changes, the words for failures, and whether anybody answers at all; every path is
// relative to the page.

const TIMEOUT_MS = 15_000;
const TOKEN_HEADER = "X-Tiered-CSRF";
let token = null;
let away = null;
let answeredMs = -Infinity;

/** Why nobody answers, as a sentence; null while somebody does. Pages show it once, and nothing as if it were of now. */
export function awayBecause() {
  return away;
}

/** Notes an answer of the broker, whatever it says. */
export function answered() {
  away = null;
  answeredMs = performance.now();
}

/** Notes that the broker does not answer, unless it has answered anything since `sinceMs` of the page's own clock. */
export function unanswered(reason, sinceMs) {
  if (answeredMs < sinceMs) away = reason;
}

/** A failure with a sentence for people. `status` is 0 when nothing answered; `isLate` when that took too long. */
export class ApiError extends Error {
  constructor(status, message, isLate = false) {
    super(message);
    this.status = status;
    this.isLate = isLate;
  }
}

export function urlOf(path, query = {}) {
  const url = new URL(path, document.baseURI);
  url.hash = "";
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

/** The JSON at `path`. */
export async function get(path, { query = {}, signal = null } = {}) {
  return answerOf(await ask(urlOf(path, query), { signal }));
}

/** Changes something; the JSON of the answer, or null. A token that the broker no longer knows is fetched anew, once. */
export async function send(method, path, body) {
  for (const mayRepeat of [true, false]) {
    if (token === null) token = (await get("api/v1/session")).csrf_token;
    const answer = await ask(urlOf(path), {
      method,
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: { [TOKEN_HEADER]: token, "Content-Type": "application/json" },
    });
    if (mayRepeat && (await isAboutToken(answer))) {
      token = null;
      continue;
    }
    return answerOf(answer);
  }
  throw new ApiError(403, "The broker refused this change: reload the page, then try again.");
}

/** A refusal for want of a right says nothing of the token, and comes again however often it is asked for. */
async function isAboutToken(answer) {
  return answer.status === 403 && (await answer.clone().text()).includes(TOKEN_HEADER);
}

async function ask(url, { signal = null, ...options }) {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const answer = await fetch(url, { ...options, signal: signal ? AbortSignal.any([signal, timeout]) : timeout, cache: "no-store" });
    answered();
    return answer;
  } catch (error) {
    if (signal?.aborted) throw error;
    const isLate = error.name === "TimeoutError";
    throw new ApiError(0, isLate ? lateAfter(TIMEOUT_MS) : unreachable(), isLate);
  }
}

export function unreachable() {
  return `Nothing answers at ${location.host}. Is the broker running? Start it with "tiered serve".`;
}

export function lateAfter(ms) {
  return `${location.host} did not answer within ${ms / 1000} s. Its process may hang, or its machine be overloaded.`;
}

export async function answerOf(answer) {
  if (answer.status === 204) return null;
  let content = null;
  try {
    content = await answer.json();
  } catch {
    throw new ApiError(answer.status, `The broker answered ${answer.status} without JSON. Is there a proxy between the broker and this page?`);
  }
  if (!answer.ok) throw new ApiError(answer.status, content.message ? `The broker says: ${sentence(content.message)}` : `The broker answered ${answer.status}.`);
  return content;
}

/** `text` with its full stop. Its first word stays as it is: it may be the name of a topic. */
export function sentence(text) {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

export const part = encodeURIComponent;

// Server-sent events, read from a fetched stream. Owns the bound of one event; knows no event's meaning.

import { ApiError } from "./api.js";

const MAX_EVENT_CHARS = 4 << 20;

/** Gives each event of the stream to `receive`. An event that never ends is an error, not a growing buffer. */
export async function readEvents(stream, receive) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let event = { type: "message", data: [], id: null };
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    if (text.length > MAX_EVENT_CHARS) throw new ApiError(0, "The broker sent an event that is too large to show.");
    const lines = text.split(/\r\n|\n|\r(?!$)/);
    text = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (event.data.length > 0 || event.id !== null) receive({ type: event.type, data: event.data.join("\n"), id: event.id });
        event = { type: "message", data: [], id: null };
      } else if (!line.startsWith(":")) {
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const content = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (name === "event") event.type = content;
        else if (name === "data") event.data.push(content);
        else if (name === "id") event.id = content;
      }
    }
  }
}

/** Whether the same request can never be answered otherwise. */
export function isFinal(status) {
  return status >= 400 && status < 500 && status !== 408 && status !== 429;
}

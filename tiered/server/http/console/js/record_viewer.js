// One record in full: key, value and headers as text, JSON or hex. Owns how bytes are shown; decides nothing.

import { h } from "./dom.js";
import { exactTime, size, whole } from "./format.js";
import { jsonTokens } from "./json_text.js";
import { copy, radios } from "./parts.js";

const HEX_BYTES = 4 << 10;
const JSON_CHARS = 128 << 10;
const WAYS = [["text", "Text"], ["json", "JSON"], ["hex", "Hex"]];

/** The way that suits the record best: JSON where the value is an object or a list, else text, else hex. */
export function bestWay(record) {
  const value = record.value;
  if (value === null) return "text";
  if (value.text === null) return "hex";
  return /^\s*[[{]/.test(value.text) && value.text.length <= JSON_CHARS && jsonTokens(value.text) ? "json" : "text";
}

export function viewer(record, { way, choose, close, wide }) {
  return h("section", { class: "panel viewer", key: "viewer", "aria-labelledby": "viewer-title",
    on: { keydown: (event) => { if (event.key === "Escape") close(); } } },
  h("div", { class: "panel-head" },
    h("h2", { id: "viewer-title", tabindex: "-1" }, `Offset ${whole(record.offset)}`, h("span", { class: "soft" }, ` of partition ${record.partition}`)),
    h("div", { class: "end" }, h("button", { type: "button", class: "plain", on: { click: close } }, "Close"))),
  h("div", { class: "panel-body" },
    radios("way", WAYS, way, (event) => choose(event.target.value), { legend: "Show bytes as" }),
    h("dl", { class: "pairs" },
      h("dt", null, record.timestamp_type === "LogAppendTime" ? "Appended" : "Created"),
      h("dd", null, record.timestamp_ms === -1 ? "no timestamp" : exactTime(record.timestamp_ms))),
    field("Key", record.key, way, wide),
    field("Value", record.value, way, wide),
    headers(record)));
}

function field(name, content, way, wide) {
  return h("div", { class: "field" },
    h("div", { class: "bar" },
      h("h3", null, name),
      content !== null && h("span", { class: "soft number" }, size(content.size_bytes),
        content.truncated && `, the first ${size(shownBytes(content))} are shown`),
      content !== null && content.text !== null && h("button", { type: "button", class: "plain", "aria-label": `Copy the ${name.toLowerCase()}`, on: { click: () => copy(content.text) } }, "Copy")),
    content === null ? h("p", { class: "none" }, name === "Value" ? "null: a tombstone" : "null") : body(name, content, way, wide));
}

function body(name, content, way, wide) {
  const pre = (children, extra = "") => h("pre", { tabindex: "0", class: extra, "aria-label": name, key: way }, children);
  if (content.size_bytes === 0) return h("p", { class: "none" }, "empty: 0 bytes");
  if (way === "hex") return pre(hexLines(bytesOf(content), wide ? 16 : 8), "hex");
  if (content.text === null) {
    return [h("p", { class: "soft" }, "These bytes are no UTF-8 text, so they are shown in hex."), pre(hexLines(bytesOf(content), wide ? 16 : 8), "hex")];
  }
  if (way === "json") {
    const tokens = content.text.length <= JSON_CHARS ? jsonTokens(content.text) : null;
    if (tokens) return pre(tokens.map((token) => (token.kind === "mark" ? token.text : h("span", { class: token.kind === "number" ? "number-literal" : token.kind }, token.text))));
    if (name === "Key") return pre(content.text);
    return [h("p", { class: "soft" }, content.truncated ? "Too long to be shown as JSON; this is its beginning." : "This is no JSON; it is shown as text."), pre(content.text)];
  }
  return pre(content.text);
}

function headers(record) {
  const count = record.header_count ?? record.headers.length;
  if (count === 0) return h("p", { class: "soft" }, "No headers.");
  return h("div", { class: "field" }, h("h3", null, `Headers (${whole(count)})`),
    h("dl", { class: "pairs mono" }, record.headers.map((header) => [
      h("dt", null, header.key),
      h("dd", null, header.value === null ? h("span", { class: "none" }, "null") : header.value.text ?? `0x${hexOf(bytesOf(header.value))}`),
    ])),
    count > record.headers.length && h("p", { class: "soft" }, `The first ${whole(record.headers.length)} are shown.`));
}

/** A key or value in one line of a list. */
export function preview(content) {
  if (content === null) return h("span", { class: "none" }, "null");
  if (content.size_bytes === 0) return h("span", { class: "none" }, "empty");
  if (content.text === null) return h("span", { class: "mono" }, `0x${hexOf(bytesOf(content).slice(0, 48))}`);
  return h("span", { class: "mono" }, content.text.slice(0, 300).replace(/\s+/g, " "));
}

export function bytesOf(content) {
  return Uint8Array.from(atob(content.base64), (each) => each.charCodeAt(0));
}

function shownBytes(content) {
  return Math.floor((content.base64.length * 3) / 4) - (content.base64.match(/=+$/)?.[0].length ?? 0);
}

function hexOf(bytes) {
  return Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");
}

/** As `hexdump -C` shows them, `width` bytes a line: "00000000  48 65 6c 6c 6f  |Hello|", and the length at the end. */
export function hexLines(bytes, width) {
  const lines = [];
  const shown = bytes.slice(0, HEX_BYTES);
  const hex = (number) => number.toString(16).padStart(8, "0");
  for (let from = 0; from < shown.length; from += width) {
    const line = shown.slice(from, from + width);
    const pairs = Array.from(line, (each) => each.toString(16).padStart(2, "0"));
    const halves = [pairs.slice(0, 8).join(" "), pairs.slice(8).join(" ")].filter(Boolean).join("  ");
    const plain = Array.from(line, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${hex(from)}  ${halves.padEnd(width * 3 - 1 + (width > 8 ? 1 : 0))}  |${plain}|`);
  }
  lines.push(hex(shown.length));
  if (bytes.length > HEX_BYTES) lines.push(`… ${whole(bytes.length - HEX_BYTES)} more bytes`);
  return lines.join("\n");
}

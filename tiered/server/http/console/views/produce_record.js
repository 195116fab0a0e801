// Produces one record. Owns what is checked before the broker is asked: JSON is checked here and sent as it was typed.

import { part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, pairsIn, submit } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { field, problem } from "../js/parts.js";

const KINDS = [["text", "text"], ["json", "JSON (checked before it is sent)"], ["base64", "bytes in base64"], ["none", "null: a tombstone"]];

export function produceRecord(name, clusterId, { produced }) {
  const form = { key: "", kind: "text", value: "", headers: "", partition: "", problem: null, busy: false };
  openDialog("Produce a record", (close, redraw) => {
    const set = (field) => (event) => { form[field] = event.target.value; };
    const produce = () => attempt(form, redraw, async () => {
      const report = await send("POST", `v3/clusters/${part(clusterId)}/topics/${part(name)}/records`, bodyOf(form));
      close();
      announce(`The record has offset ${report.offset} of partition ${report.partition_id}.`);
      produced(report);
    });
    return [
      field("produce-key", "Key", h("input", { id: "produce-key", value: form.key, spellcheck: "false", "data-first": true, "aria-describedby": "produce-key-hint", on: { input: set("key") } }), { hint: "Chooses the partition. Empty: no key." }),
      field("produce-kind", "Value is", h("select", { id: "produce-kind", value: form.kind, on: { change: (event) => { form.kind = event.target.value; redraw(); } } }, KINDS.map(([id, title]) => h("option", { value: id }, title)))),
      form.kind !== "none" && field("produce-value", "Value", h("textarea", { id: "produce-value", rows: "6", spellcheck: "false", value: form.value, on: { input: set("value") } })),
      field("produce-headers", "Headers", h("textarea", { id: "produce-headers", rows: "2", spellcheck: "false", value: form.headers, "aria-describedby": "produce-headers-hint", on: { input: set("headers") } }), { hint: "One name=value per line." }),
      field("produce-partition", "Partition", h("input", { id: "produce-partition", inputmode: "numeric", value: form.partition, "aria-describedby": "produce-partition-hint", on: { input: set("partition") } }), { hint: "Empty: chosen by the key, or any partition." }),
      form.problem && problem(form.problem),
      buttons(close, submit(form, ["Produce it", "Producing …"], produce)),
    ];
  });
}

function bodyOf(form) {
  const body = { value: valueOf(form) };
  if (form.key !== "") body.key = { type: "STRING", data: form.key };
  if (form.partition.trim() !== "") {
    body.partition_id = Number(form.partition);
    if (!Number.isInteger(body.partition_id) || body.partition_id < 0) throw new Error("A partition is a whole number, 0 or greater.");
  }
  body.headers = pairsIn(form.headers).map(([name, value]) => ({ name, value: base64Of(value) }));
  return body;
}

function valueOf({ kind, value }) {
  if (kind === "none") return null;
  if (kind === "base64") return { type: "BINARY", data: value.replace(/\s/g, "") };
  if (kind === "json") {
    try {
      JSON.parse(value);
    } catch (error) {
      throw new Error(`The value is not JSON: ${error.message}.`);
    }
  }
  return { type: "STRING", data: value };
}

function base64Of(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

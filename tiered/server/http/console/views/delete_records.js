// Deletes records of a topic up to an end: first which, then, with the topic's name typed, for good.
// Owns the order: what is sent is what was shown, offset by offset, and any edit asks for a new look.

import { get, part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, isTyped, typedName } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { counted, whole } from "../js/format.js";
import { action, notice, problem } from "../js/parts.js";
import { plainTable } from "../js/table.js";

const TARGETS = [["end", "all there are now: empty it"], ["offset", "those before an offset"], ["time", "those before a time"]];

export function deleteRecords(name, data, { changed }) {
  const form = { to: "end", partitions: "", offset: "0", at: "", typed: "", plan: null, problem: null, busy: false };
  const path = `api/v1/topics/${part(name)}`;

  openDialog("Delete records", (close, redraw) => {
    const set = (field) => (event) => {
      Object.assign(form, { [field]: event.target.value, plan: null, problem: null });
      redraw();
    };

    const look = () => attempt(form, redraw, async () => {
      form.plan = await planOf(path, form);
      form.busy = false;
      redraw();
      announce(`${counted(total(form.plan), "record")} would be deleted. Nothing has changed yet.`);
      document.getElementById("preview")?.focus();
    });

    const submit = () => attempt(form, redraw, async () => {
      const wanted = form.plan.filter((each) => each.before > each.start);
      for (const [done, each] of wanted.entries()) {
        try {
          await send("POST", `${path}/partitions/${each.partition}/delete-records`, { before_offset: each.before });
        } catch (error) {
          form.plan = null;
          await changed();
          throw new Error(`${counted(done, "partition")} of ${whole(wanted.length)} are done; at partition ${each.partition}: ${error.message}`);
        }
      }
      close();
      announce(`Records of ${counted(wanted.length, "partition")} were deleted.`);
      await changed();
    });

    const count = form.plan === null ? 0 : total(form.plan);
    return [
      h("p", null, "Topic ", h("strong", { class: "mono" }, name), ": what is deleted goes from both tiers and cannot be had back. Groups that have not read it go on after it."),
      h("fieldset", { class: "choices" }, h("legend", { class: "label" }, "Which records"), TARGETS.map(([id, title], place) =>
        h("label", null, h("input", { type: "radio", name: "which", value: id, checked: form.to === id, "data-first": place === 0, on: { change: set("to") } }), title))),
      form.to === "offset" && h("div", { class: "field" }, h("label", { for: "before-offset" }, "The first offset that stays"), h("input", { id: "before-offset", inputmode: "numeric", value: form.offset, on: { input: set("offset") } })),
      form.to === "time" && h("div", { class: "field" }, h("label", { for: "before-time" }, "The first time that stays, in your zone"), h("input", { id: "before-time", type: "datetime-local", step: "1", value: form.at, on: { input: set("at") } })),
      h("div", { class: "field" }, h("label", { for: "of-partitions" }, "Partitions"),
        h("input", { id: "of-partitions", value: form.partitions, placeholder: "all", "aria-describedby": "of-partitions-hint", on: { input: set("partitions") } }),
        h("p", { class: "hint", id: "of-partitions-hint" }, "Numbers with commas between them, such as 0, 3. Empty: all of them.")),
      form.plan !== null && preview(form.plan, count),
      count > 0 && typedName(form, name, "topic", redraw),
      form.problem && problem(form.problem),
      buttons(close, form.plan === null
        ? action({ type: "submit", key: "look", class: "primary", disabled: form.busy, on: { click: (event) => { event.preventDefault(); look(); } } }, form.busy ? "Asking …" : "Show what would be deleted")
        : action({ type: "submit", key: "do", class: "danger", disabled: form.busy || count === 0 || !isTyped(form, name), on: { click: (event) => { event.preventDefault(); submit(); } } }, form.busy ? "Deleting …" : `Delete ${counted(count, "record")}`)),
    ];
  });
}

/** [{ partition, start, end, before }] by what the leaders say now. Throws what is wrong with the form. */
async function planOf(path, form) {
  const { partitions } = await get(path);
  const chosen = form.partitions.trim() === "" ? null : form.partitions.split(",").map((each) => Number(each.trim() || "x"));
  const missing = chosen?.find((number) => !partitions.some((each) => each.partition === number));
  if (missing !== undefined) throw new Error("Partitions are numbers that the topic has, with commas between them, such as 0, 3.");
  const plan = [];
  for (const { partition, log_start_offset: start, high_watermark: end } of partitions) {
    if (chosen !== null && !chosen.includes(partition)) continue;
    const wanted = form.to === "end" ? end : form.to === "offset" ? offsetIn(form) : await offsetAt(path, partition, timeIn(form));
    plan.push({ partition, start, end, before: Math.max(start, Math.min(end, wanted)) });
  }
  return plan;
}

async function offsetAt(path, partition, timestampMs) {
  const page = await get(`${path}/records`, { query: { partition, timestamp_ms: timestampMs, limit: 1, field_bytes: 0 } });
  return page.records[0]?.offset ?? page.next_offset;
}

function offsetIn({ offset }) {
  const number = Number(offset);
  if (offset.trim() === "" || !Number.isSafeInteger(number) || number < 0) throw new Error("An offset is a whole number from 0 on.");
  return number;
}

function timeIn({ at }) {
  const ms = new Date(at).getTime();
  if (Number.isNaN(ms) || ms < 0) throw new Error("Give a date and a time.");
  return ms;
}

function total(plan) {
  return plan.reduce((sum, each) => sum + each.before - each.start, 0);
}

function preview(plan, count) {
  return h("div", { id: "preview", class: "stack-small", tabindex: "-1", key: "preview" },
    count === 0 ? notice("plain", "Nothing would be deleted: no record is older.") : notice("bad", `This would delete up to ${counted(count, "record")}.`),
    h("div", { class: "limited" }, plainTable("What would be deleted", [
      { name: "Partition", cell: (each) => String(each.partition) },
      { name: "Begins at", right: true, cell: (each) => whole(each.start) },
      { name: "Would begin at", right: true, cell: (each) => whole(each.before) },
      { name: "Deleted", right: true, cell: (each) => whole(each.before - each.start) },
      { name: "Stay", right: true, wide: true, cell: (each) => whole(each.end - each.before) },
    ], plan, (each) => each.partition)));
}

// Deletes records of a topic up to an end: first which, then, with the topic's name typed, for good.
// Owns the order: what is sent is what was shown, offset by offset, and any edit asks for a new look.

import { get, part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, isTyped, numbersIn, offsetIn, submit, timeIn, typedName } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { counted, whole } from "../js/format.js";
import { field, notice, problem, radios } from "../js/parts.js";
import { plainTable } from "../js/table.js";

const TARGETS = [["end", "all records: empty the topic"], ["offset", "those before an offset"], ["time", "those before a time"]];

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

    const remove = () => attempt(form, redraw, async () => {
      const wanted = form.plan.filter((each) => each.before > each.start);
      for (const [done, each] of wanted.entries()) {
        try {
          await send("POST", `${path}/partitions/${each.partition}/delete-records`, { before_offset: each.before });
        } catch (error) {
          form.plan = null;
          await changed();
          throw new Error(`Records of ${whole(done)} of ${counted(wanted.length, "partition")} are deleted. Partition ${each.partition} failed: ${error.message}`);
        }
      }
      close();
      announce(`Records of ${counted(wanted.length, "partition")} were deleted.`);
      await changed();
    });

    const count = form.plan === null ? 0 : total(form.plan);
    return [
      h("p", null, "Topic ", h("strong", { class: "mono" }, name), ": records are deleted on disks and in the object store, and cannot be restored. Groups that have not read them go on after them."),
      radios("which", TARGETS, form.to, set("to"), { legend: "Which records", choices: true }),
      form.to === "offset" && field("before-offset", "First offset to keep", h("input", { id: "before-offset", inputmode: "numeric", value: form.offset, on: { input: set("offset") } })),
      form.to === "time" && field("before-time", "Keep records from this time on (your time zone)", h("input", { id: "before-time", type: "datetime-local", step: "1", value: form.at, on: { input: set("at") } })),
      field("of-partitions", "Partitions", h("input", { id: "of-partitions", value: form.partitions, placeholder: "all", "aria-describedby": "of-partitions-hint", on: { input: set("partitions") } }),
        { hint: "Numbers with commas between them, such as 0, 3. Empty: all of them." }),
      form.plan !== null && preview(form.plan, count),
      count > 0 && typedName(form, name, "topic", redraw),
      form.problem && problem(form.problem),
      buttons(close, form.plan === null
        ? submit(form, ["Show what would be deleted", "Loading …"], look, { key: "look" })
        : submit(form, [`Delete ${counted(count, "record")}`, "Deleting …"], remove, { key: "do", class: "danger", disabled: count === 0 || !isTyped(form, name) })),
    ];
  });
}

/** [{ partition, start, end, before }] by what the leaders say now. Throws what is wrong with the form. */
async function planOf(path, form) {
  const { partitions } = await get(path);
  const chosen = numbersIn(form.partitions);
  const missing = chosen?.find((number) => !partitions.some((each) => each.partition === number));
  if (missing !== undefined) throw new Error("Partitions are numbers that the topic has, with commas between them, such as 0, 3.");
  const plan = [];
  for (const { partition, log_start_offset: start, high_watermark: end } of partitions) {
    if (chosen !== null && !chosen.includes(partition)) continue;
    const wanted = form.to === "end" ? end : form.to === "offset" ? offsetIn(form.offset) : await offsetAt(path, partition, timeIn(form.at));
    plan.push({ partition, start, end, before: Math.max(start, Math.min(end, wanted)) });
  }
  return plan;
}

async function offsetAt(path, partition, timestampMs) {
  const page = await get(`${path}/records`, { query: { partition, timestamp_ms: timestampMs, limit: 1, field_bytes: 0 } });
  return page.records[0]?.offset ?? page.next_offset;
}

function total(plan) {
  return plan.reduce((sum, each) => sum + each.before - each.start, 0);
}

function preview(plan, count) {
  return h("div", { id: "preview", class: "stack-small", tabindex: "-1", key: "preview" },
    count === 0 ? notice("plain", "Nothing would be deleted: no record is older.") : notice("bad", `This would delete up to ${counted(count, "record")}.`),
    h("div", { class: "limited" }, plainTable("What would be deleted", [
      { name: "Partition", cell: (each) => String(each.partition) },
      { name: "First offset now", right: true, cell: (each) => whole(each.start) },
      { name: "First offset then", right: true, cell: (each) => whole(each.before) },
      { name: "Deleted", right: true, cell: (each) => whole(each.before - each.start) },
      { name: "Kept", right: true, wide: true, cell: (each) => whole(each.end - each.before) },
    ], plan, (each) => each.partition)));
}

// Resets the offsets of an idle group: first what would change, then, confirmed, the change itself.
// Owns the order: nothing is sent for good that was not shown before, and any edit asks for a new look.

import { part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, numbersIn, offsetIn, submit, timeIn } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { counted, whole } from "../js/format.js";
import { field, notice, problem, radios } from "../js/parts.js";
import { plainTable } from "../js/table.js";

const TARGETS = [["earliest", "the first record"], ["latest", "the end: skip all records up to now"], ["offset", "an offset"], ["timestamp", "a time"]];

export function resetOffsets(group, data, { changed }) {
  const topics = [...new Set(data.offsets.map((each) => each.topic))].sort();
  const form = { topic: topics[0], partitions: "", to: "earliest", offset: "0", at: "", shown: null, sent: null, problem: null, busy: false };
  const path = `api/v1/groups/${part(group)}/offsets/reset`;

  openDialog("Reset offsets", (close, redraw) => {
    const set = (name) => (event) => {
      Object.assign(form, { [name]: event.target.value, shown: null, problem: null });
      redraw();
    };

    const look = () => attempt(form, redraw, async () => {
      form.sent = bodyOf(form);
      form.shown = (await send("POST", path, { ...form.sent, dry_run: true })).offsets;
      form.busy = false;
      redraw();
      announce(`${counted(moved(form.shown).length, "offset")} would change. Nothing has changed yet.`);
      document.getElementById("preview")?.focus();
    });

    const reset = () => attempt(form, redraw, async () => {
      const { offsets } = await send("POST", path, { ...form.sent, dry_run: false }).catch((error) => {
        form.shown = null;
        throw error;
      });
      close();
      announce(`${counted(moved(offsets).length, "offset")} of group ${group} were reset.`);
      await changed();
    });

    const count = form.shown === null ? 0 : moved(form.shown).length;
    return [
      h("p", null, "Group ", h("strong", { class: "mono" }, group), " has no members now. The next consumer that joins starts at the new offsets."),
      field("reset-topic", "Topic", h("select", { id: "reset-topic", value: form.topic, "data-first": true, on: { change: set("topic") } }, topics.map((each) => h("option", { value: each }, each)))),
      field("reset-partitions", "Partitions", h("input", { id: "reset-partitions", value: form.partitions, placeholder: "all", "aria-describedby": "reset-partitions-hint", on: { input: set("partitions") } }),
        { hint: "Numbers with commas between them, such as 0, 3. Empty: all of them." }),
      radios("to", TARGETS, form.to, set("to"), { legend: "Move to", choices: true }),
      form.to === "offset" && field("reset-offset", "Offset", h("input", { id: "reset-offset", inputmode: "numeric", value: form.offset, on: { input: set("offset") } })),
      form.to === "timestamp" && field("reset-at", "Time (your time zone)", h("input", { id: "reset-at", type: "datetime-local", step: "1", value: form.at, on: { input: set("at") } })),
      form.shown !== null && preview(form.shown, count),
      form.problem && problem(form.problem),
      buttons(close, form.shown === null
        ? submit(form, ["Show what would change", "Loading …"], look, { key: "look" })
        : submit(form, [`Reset ${counted(count, "offset")}`, "Resetting …"], reset, { key: "do", class: "danger", disabled: count === 0 })),
    ];
  });
}

function preview(offsets, count) {
  return h("div", { id: "preview", class: "stack-small", tabindex: "-1", key: "preview" },
    count === 0 ? notice("plain", "Nothing would change: every offset is there already.")
      : notice("warn", `This would change ${counted(count, "offset")}. ${direction(offsets)}`),
    h("div", { class: "limited" }, plainTable("What would change", [
      { name: "Partition", cell: (each) => `${each.topic} ${each.partition}` },
      { name: "Before", right: true, cell: (each) => (each.before === null ? "nothing" : whole(each.before)) },
      { name: "After", right: true, cell: (each) => whole(each.after) },
      { name: "Difference", right: true, cell: (each) => difference(each) },
    ], offsets, (each) => each.partition)));
}

function difference({ before, after }) {
  if (before === null) return "new";
  if (before === after) return "none";
  return `${after > before ? "+" : "−"}${whole(Math.abs(after - before))}`;
}

function moved(offsets) {
  return offsets.filter((each) => each.before !== each.after);
}

function direction(offsets) {
  const back = offsets.filter((each) => each.before !== null && each.after < each.before).length;
  const on = offsets.filter((each) => each.before !== null && each.after > each.before).length;
  if (back > 0 && on > 0) return `${counted(back, "offset")} back: the group reads those records again. ${counted(on, "offset")} forward: the group skips the records in between.`;
  if (back > 0) return "The group moves back and reads those records again.";
  return on > 0 ? "The group moves forward and skips the records in between." : "";
}

function bodyOf(form) {
  const body = { topic: form.topic, to: form.to };
  const partitions = numbersIn(form.partitions);
  if (partitions !== null) body.partitions = partitions;
  if (form.to === "offset") body.to = { offset: offsetIn(form.offset) };
  if (form.to === "timestamp") body.to = { timestamp_ms: timeIn(form.at) };
  return body;
}

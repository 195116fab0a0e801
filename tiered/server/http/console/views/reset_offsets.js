// Resets the offsets of an idle group: first what would change, then, confirmed, the change itself.
// Owns the order: nothing is sent for good that was not shown before, and any edit asks for a new look.

import { part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { counted, whole } from "../js/format.js";
import { action, notice, problem } from "../js/parts.js";
import { plainTable } from "../js/table.js";

const TARGETS = [["earliest", "the first record"], ["latest", "the end: skip everything there is"], ["offset", "an offset"], ["timestamp", "a time"]];

export function resetOffsets(group, data, { changed }) {
  const topics = [...new Set(data.offsets.map((each) => each.topic))].sort();
  const form = { topic: topics[0], partitions: "", to: "earliest", offset: "0", at: "", shown: null, sent: null, problem: null, busy: false };
  const path = `api/v1/groups/${part(group)}/offsets/reset`;

  openDialog("Reset offsets", (close, redraw) => {
    const set = (name) => (event) => {
      form[name] = event.target.value;
      form.shown = null;
      form.problem = null;
      redraw();
    };

    async function run(dryRun) {
      form.problem = null;
      form.busy = true;
      redraw();
      try {
        const body = dryRun ? bodyOf(form) : form.sent;
        const answer = await send("POST", path, { ...body, dry_run: dryRun });
        form.busy = false;
        if (dryRun) {
          form.shown = answer.offsets;
          form.sent = body;
          redraw();
          announce(`${counted(moved(form.shown).length, "offset")} would change. Nothing has changed yet.`);
          document.getElementById("preview")?.focus();
        } else {
          close();
          announce(`${counted(moved(answer.offsets).length, "offset")} of group ${group} were reset.`);
          await changed();
        }
      } catch (error) {
        form.busy = false;
        form.shown = null;
        form.problem = error.message;
        redraw();
      }
    }

    const count = form.shown === null ? 0 : moved(form.shown).length;
    return [
      h("p", null, "Group ", h("strong", { class: "mono" }, group), " has no members now. The next one that joins begins where this puts it."),
      h("div", { class: "field" }, h("label", { for: "reset-topic" }, "Topic"),
        h("select", { id: "reset-topic", value: form.topic, "data-first": true, on: { change: set("topic") } }, topics.map((each) => h("option", { value: each }, each)))),
      h("div", { class: "field" }, h("label", { for: "reset-partitions" }, "Partitions"),
        h("input", { id: "reset-partitions", value: form.partitions, placeholder: "all", "aria-describedby": "reset-partitions-hint", on: { input: set("partitions") } }),
        h("p", { class: "hint", id: "reset-partitions-hint" }, "Numbers with commas between them, such as 0, 3. Empty: all of them.")),
      h("fieldset", { class: "choices" }, h("legend", { class: "label" }, "Move to"), TARGETS.map(([id, name]) =>
        h("label", null, h("input", { type: "radio", name: "to", value: id, checked: form.to === id, on: { change: set("to") } }), name))),
      form.to === "offset" && h("div", { class: "field" }, h("label", { for: "reset-offset" }, "Offset"), h("input", { id: "reset-offset", inputmode: "numeric", value: form.offset, on: { input: set("offset") } })),
      form.to === "timestamp" && h("div", { class: "field" }, h("label", { for: "reset-at" }, "Time, in your zone"), h("input", { id: "reset-at", type: "datetime-local", step: "1", value: form.at, on: { input: set("at") } })),
      form.shown !== null && preview(form.shown, count),
      form.problem && problem(form.problem),
      h("div", { class: "buttons" },
        h("button", { type: "button", on: { click: close } }, "Cancel"),
        form.shown === null
          ? action({ type: "submit", key: "look", class: "primary", disabled: form.busy, on: { click: (event) => { event.preventDefault(); run(true); } } }, form.busy ? "Asking …" : "Show what would change")
          : action({ type: "submit", key: "do", class: "danger", disabled: form.busy || count === 0, on: { click: (event) => { event.preventDefault(); run(false); } } }, form.busy ? "Resetting …" : `Reset ${counted(count, "offset")}`)),
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
  if (back > 0 && on > 0) return `${whole(back)} move back, whose records are read again; ${whole(on)} move on, whose records in between are skipped.`;
  if (back > 0) return "Moving back, the group reads records again that it has read.";
  return on > 0 ? "Moving on, the group skips the records in between." : "";
}

function bodyOf(form) {
  const body = { topic: form.topic, to: form.to };
  if (form.partitions.trim() !== "") {
    body.partitions = form.partitions.split(",").map((each) => Number(each.trim() || "x"));
    if (!body.partitions.every((each) => Number.isInteger(each) && each >= 0)) throw new Error("Partitions are whole numbers with commas between them, such as 0, 3.");
  }
  if (form.to === "offset") {
    const offset = Number(form.offset);
    if (form.offset.trim() === "" || !Number.isSafeInteger(offset) || offset < 0) throw new Error("An offset is a whole number from 0 on.");
    body.to = { offset };
  }
  if (form.to === "timestamp") {
    const at = new Date(form.at).getTime();
    if (Number.isNaN(at)) throw new Error("Give a date and a time.");
    body.to = { timestamp_ms: at };
  }
  return body;
}

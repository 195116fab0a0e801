// What can be done to a topic as a whole: more partitions, fewer records, its end. Each opens a dialog that says what happens.

import { part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, isTyped, submit, typedName } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { counted, whole } from "../js/format.js";
import { action, field, notice, panel, problem } from "../js/parts.js";
import { deleteRecords } from "./delete_records.js";

export function manageTab({ name, topic, go, cluster }) {
  function draw(data) {
    if (data.internal) return notice("plain", "This is an internal topic: it cannot be changed here.");
    return [
      task("Add partitions", `There ${data.partition_count === 1 ? "is 1 partition" : `are ${whole(data.partition_count)} partitions`}. Partitions can be added, never removed. Afterwards, new records of a key may go to another partition than before.`,
        action({ on: { click: () => addPartitions(name, data, cluster.data.cluster_id, topic) } }, "Add partitions")),
      task("Delete records", "Delete all records, or those before an offset or a time. The topic and its configs stay, and offsets go on from where they are.",
        action({ on: { click: () => deleteRecords(name, data, { changed: () => topic.refresh() }) } }, "Delete records")),
      task("Delete the topic", "Delete its records, on disks and in the object store, and its configs.",
        action({ class: "danger", on: { click: () => deleteTopic(name, data, () => go(["topics"])) } }, "Delete the topic")),
    ];
  }
  return { draw, stop() {} };
}

function task(title, about, button) {
  return panel(title, {}, h("div", { class: "panel-body task" }, h("p", { class: "soft" }, about), button));
}

function addPartitions(name, data, clusterId, topic) {
  const form = { count: String(data.partition_count + 1), problem: null, busy: false };
  openDialog("Add partitions", (close, redraw) => {
    const add = () => attempt(form, redraw, async () => {
      const count = Number(form.count);
      if (!Number.isInteger(count) || count <= data.partition_count) throw new Error(`Give a whole number above ${data.partition_count}.`);
      await send("PATCH", `v3/clusters/${part(clusterId)}/topics/${part(name)}`, { partitions_count: count });
      close();
      announce(`Topic ${name} has ${counted(count, "partition")}.`);
      await topic.refresh();
    });
    return [
      h("p", null, "Topic ", h("strong", { class: "mono" }, name), ` has ${counted(data.partition_count, "partition")}. Existing records stay where they are. New records of a key may go to another partition, so a key's records are in order only within each partition.`),
      field("partition-count", "Number of partitions",
        h("input", { id: "partition-count", inputmode: "numeric", value: form.count, "data-first": true, on: { input: (event) => { form.count = event.target.value; } } })),
      form.problem && problem(form.problem),
      buttons(close, submit(form, ["Add them", "Adding …"], add)),
    ];
  });
}

function deleteTopic(name, data, gone) {
  const form = { typed: "", problem: null, busy: false };
  openDialog("Delete the topic", (close, redraw) => {
    const remove = () => isTyped(form, name) && attempt(form, redraw, async () => {
      await send("DELETE", `api/v1/topics/${part(name)}`);
      close();
      announce(`Topic ${name} is deleted.`);
      gone();
    });
    return [
      notice("bad", `This deletes up to ${counted(data.record_count, "record")} in ${counted(data.partition_count, "partition")}, and the offsets that groups have committed there. It cannot be undone.`),
      typedName(form, name, "topic", redraw),
      form.problem && problem(form.problem),
      buttons(close, submit(form, ["Delete the topic", "Deleting …"], remove, { class: "danger", disabled: !isTyped(form, name) })),
    ];
  });
}

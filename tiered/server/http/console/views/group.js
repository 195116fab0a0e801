// One group: its lag over time, its offsets, its members; and the way to reset an idle one.

import { announce } from "../js/announce.js";
import { get, part, send } from "../js/api.js";
import { attempt, buttons, isTyped, submit, typedName } from "../js/change.js";
import { lagChart } from "../js/chart.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { clock, counted, duration, whole } from "../js/format.js";
import { action, asking, figure, head, moment, named, notice, panel, problem, radios, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link, refine } from "../js/router.js";
import { makeTable, plainTable } from "../js/table.js";
import { LAG_IN_TIME, groupState, lagInTime } from "./groups.js";
import { resetOffsets } from "./reset_offsets.js";

const SPANS = [["5", "5 min"], ["15", "15 min"], ["60", "1 h"]];
const TABLE_ROWS = 60;

export function groupView({ query, changed, go }, id) {
  const path = `api/v1/groups/${part(id)}`;
  let minutes = SPANS.some(([value]) => value === query.minutes) ? query.minutes : "15";
  let cursor = null;
  const group = poll((signal) => get(path, { signal }), { everyMs: 5_000, changed });
  const lag = poll((signal) => get(`${path}/lag`, { query: { minutes }, signal }), { everyMs: 5_000, changed });
  const offsets = makeTable({
    caption: "Offsets", noun: "partitions", query, order: "-lag", changed,
    keyOf: (each) => `${each.topic}/${each.partition}`,
    words: (each) => `${each.topic} ${each.partition} ${each.member_id || ""}`,
    columns: [
      { id: "topic", name: "Topic and partition", sort: (each) => `${each.topic} ${each.partition}`, cell: (each) => h("a", { href: link(["topics", each.topic, "partitions", each.partition]), class: "breaks" }, named(`${each.topic} ${each.partition}`)) },
      { id: "committed", name: "Committed", right: true, sort: (each) => each.committed_offset ?? -1, cell: (each) => (each.committed_offset === null ? h("span", { class: "soft" }, "nothing") : whole(each.committed_offset)) },
      { id: "end", name: "End", right: true, wide: true, sort: (each) => each.high_watermark, cell: (each) => whole(each.high_watermark) },
      { id: "lag", name: "Lag", right: true, sort: (each) => each.lag ?? -1, cell: (each) => lagCell(each) },
      { id: "time", name: "Lag in time", title: LAG_IN_TIME, right: true, wide: true, sort: (each) => each.lag_ms ?? -1, cell: lagInTime },
      { id: "at", name: "Committed at", right: true, sort: (each) => each.committed_at_ms ?? -1, cell: (each) => moment(each.committed_at_ms) },
      { id: "member", name: "Assigned to", wide: true, class: "breaks", cell: (each) => (each.member_id ? h("span", { class: "mono" }, named(shortId(each.member_id))) : h("span", { class: "soft" }, "nobody")) },
    ],
    empty: () => h("p", { class: "empty soft" }, "This group has committed no offset yet, and no partition is assigned to it."),
  });

  function draw() {
    const data = group.data;
    const isIdle = data !== null && data.members.length === 0;
    const page = [head({
      crumbs: [["Groups", "#/groups"]], title: id, source: group,
      subtitle: data && `${data.kind === "consumer" ? "new protocol (KIP-848)" : "classic protocol"}${data.protocol_name ? `, ${data.protocol_name}` : ""}, generation ${whole(data.generation ?? 0)}, coordinated by broker ${data.coordinator}`,
      actions: data && [action({ id: "reset-offsets", disabled: !isIdle || data.offsets.length === 0, "aria-describedby": isIdle ? null : "why-not",
        on: { click: () => resetOffsets(id, data, { changed: () => { lag.refresh(); return group.refresh(); } }) } }, "Reset offsets"),
      action({ id: "delete-group", class: "danger", disabled: !isIdle, "aria-describedby": isIdle ? null : "why-not",
        on: { click: () => deleteGroup(id, data, () => go(["groups"])) } }, "Delete the group")],
    })];
    if (group.error?.status === 404) return [...page, notice("bad", group.error.message), h("p", null, h("a", { href: "#/groups" }, "See the groups that exist"))];
    page.push(trouble(group));
    if (data === null) return page;
    page.push(
      h("dl", { class: "figures", key: "figures" },
        figure("State", groupState(data.state)),
        figure("Lag", whole(data.lag), "", lagNote(data)),
        figure("Members", whole(data.members.length), "", isIdle ? "idle: its offsets can be reset" : null),
        figure("Last commit", moment(Math.max(-1, ...data.offsets.map((each) => each.committed_at_ms ?? -1))))),
      !isIdle && h("p", { class: "soft", id: "why-not", key: "why-not" }, "Offsets can be reset, and the group deleted, once it has no members: stop its consumers first."),
      lagPanel(),
      panel("Offsets", { end: data.offsets.length > 20 && offsets.search("Find a partition") }, offsets.draw(data.offsets, { stale: group.isStale })),
      panel("Members", {}, membersOf(data)));
    return page;
  }

  function lagPanel() {
    const choose = (event) => { minutes = event.target.value; refine({ minutes }); lag.refresh(); };
    const spans = radios("span", SPANS, minutes, choose, { legend: "How far back" });
    if (lag.data === null) return panel("Lag over time", { end: spans }, h("div", { class: "panel-body" }, asking(lag)));
    const samples = lag.data.samples.filter((each) => each.lag !== null).map((each) => [each.at_ms, each.lag]);
    const missing = lag.data.samples.length - samples.length;
    const toMs = Math.max(lag.loadedAt, samples.at(-1)?.[0] ?? 0);
    // A broker that runs for a minute has a minute to show: the rest would be an empty picture.
    const fromMs = Math.max(toMs - Number(minutes) * 60_000, (samples[0]?.[0] ?? toMs - 60_000) - lag.data.interval_ms);
    return panel("Lag over time", { end: spans, about: `records that are not committed yet, sampled every ${duration(lag.data.interval_ms)}` }, h("div", { class: "panel-body" },
      trouble(lag),
      lagChart(samples, { fromMs, toMs, intervalMs: lag.data.interval_ms, cursor, moved: (ms) => { cursor = ms; changed(); } }),
      missing > 0 && h("p", { class: "soft" }, `${counted(missing, "sample")} ${missing === 1 ? "is" : "are"} missing: SQL could not be reached.`),
      samples.length > 0 && h("details", null, h("summary", null, "The samples as a table"), h("div", { class: "limited" }, plainTable("Lag over time", [
        { name: "Time", cell: ([ms]) => clock(ms) }, { name: "Lag", right: true, cell: ([, value]) => whole(value) },
      ], thinned(samples), ([ms]) => ms)))));
  }

  return { title: () => `Group ${id}`, draw, stop() { group.stop(); lag.stop(); } };
}

function lagNote({ lag, lag_ms: ms, offsets }) {
  const records = `records in ${counted(offsets.length, "partition")}`;
  return lag > 0 && (ms ?? null) !== null ? `${records}; the oldest has waited for ${duration(ms)} at least` : records;
}

/** Deletes an idle group once its name was typed. */
function deleteGroup(id, data, gone) {
  const form = { typed: "", problem: null, busy: false };
  openDialog("Delete the group", (close, redraw) => {
    const remove = () => attempt(form, redraw, async () => {
      await send("DELETE", `api/v1/groups/${part(id)}`);
      close();
      announce(`Group ${id} is deleted.`);
      gone();
    });
    return [
      notice("bad", `This deletes ${counted(data.offsets.length, "committed offset")}. A consumer that joins this group later starts where its auto.offset.reset says. It cannot be undone.`),
      typedName(form, id, "group", redraw),
      form.problem && problem(form.problem),
      buttons(close, submit(form, ["Delete the group", "Deleting …"], remove, { class: "danger", disabled: !isTyped(form, id) })),
    ];
  });
}

function membersOf(data) {
  if (data.members.length === 0) return h("p", { class: "empty soft" }, "No members: no consumer is running in this group.");
  return plainTable("Members", [
    { name: "Member", class: "breaks", cell: (each) => [h("span", { class: "mono" }, named(shortId(each.member_id))), each.instance_id && [" ", h("span", { class: "tag" }, `static: ${each.instance_id}`)]] },
    { name: "Client", class: "breaks", cell: (each) => named(each.client_id) },
    { name: "Host", wide: true, cell: (each) => each.client_host },
    { name: "Assigned partitions", class: "breaks", cell: (each) => assigned(each.assignment) },
  ], data.members, (each) => each.member_id);
}

function assigned(assignment) {
  const entries = Object.entries(assignment);
  if (entries.length === 0) return h("span", { class: "soft" }, "none now");
  return entries.slice(0, 5).map(([topic, numbers]) => h("div", null, named(topic), ": ", h("span", { class: "number" }, inRanges(numbers))));
}

/** [0, 1, 2, 5] as "0–2, 5". */
export function inRanges(numbers) {
  const found = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = found[found.length - 1];
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.slice(0, 20).map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(", ") + (found.length > 20 ? " …" : "");
}

function lagCell(row) {
  if (row.lag === null) return h("span", { class: "soft" }, "unknown");
  if (row.committed_offset < row.log_start_offset) return h("span", { title: "The committed offset is below the first offset of the log: records were deleted before the group read them." }, whole(row.lag), " ", h("span", { class: "tag" }, "lost some"));
  return whole(row.lag);
}

function shortId(id) {
  return id.length > 44 ? `${id.slice(0, 20)}…${id.slice(-20)}` : id;
}

function thinned(samples) {
  const step = Math.ceil(samples.length / TABLE_ROWS);
  return samples.filter((_, place) => (samples.length - 1 - place) % step === 0).reverse();
}

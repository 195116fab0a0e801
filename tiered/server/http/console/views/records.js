// Records of a topic: the live tail with a filter, a page from any offset or time, a search; and one record in full.

import { awayBecause, get, part, sentence } from "../js/api.js";
import { announce } from "../js/announce.js";
import { timeIn } from "../js/change.js";
import { download } from "../js/download.js";
import { h } from "../js/dom.js";
import { counted, dateTime, exactTime, isToday, timeOfDay, whole } from "../js/format.js";
import { action, field, mark, named, notice, panel, problem, radios } from "../js/parts.js";
import { HINTS, WAYS, filterOf } from "../js/record_filter.js";
import { bestWay, preview, viewer } from "../js/record_viewer.js";
import { refine } from "../js/router.js";
import { openSearch, queryOf } from "../js/search.js";
import { MAX_RECORDS, openTail } from "../js/tail.js";
import { produceRecord } from "./produce_record.js";
import { emptySearchText, searchBar, searchFields } from "./record_search.js";
import { firstRecord } from "./topic.js";

const PAGE = 100;
const FIELD_BYTES = 16 << 10;
const MAX_TOGETHER = 100;
const MODES = [["tail", "Live tail"], ["read", "From an offset"], ["time", "From a time"], ["search", "Search"]];
const WORDS = {
  connecting: ["quiet", "Connecting"], live: ["good", "Live"], paused: ["quiet", "Paused"], waiting: ["warn", "Connection lost"], failed: ["bad", "Refused"],
};

export function recordsTab({ name, query, changed }) {
  const form = {
    mode: MODES.some(([id]) => id === query.mode) ? query.mode : "tail",
    partition: query.partition || "",
    key: query.key || "",
    match: query.match === "prefix" ? "prefix" : "exact",
    from: query.from === "earliest" || query.from === "latest" ? query.from : "newest",
    offset: query.offset || `-${PAGE}`,
    at: query.at || localTime(Date.now() - 3_600_000),
    show: "none",
    shown: "",
    way: query.way || "text",
    wanted: query.wanted || "",
    since: query.since || "",
    until: query.until || "",
  };
  let matches = null;
  let formProblem = null;
  let tail = null;
  let search = null;
  let page = { records: [], error: null, loading: false, next: null, end: null };
  let chosen = null;
  let way = null;
  let announced = null;
  let focusNext = null;

  function keepAddress() {
    const isTail = form.mode === "tail";
    const isSearch = form.mode === "search";
    const ofSearch = (value) => (isSearch ? value : null);
    refine({
      way: ofSearch(form.way), wanted: ofSearch(form.wanted), since: ofSearch(form.since), until: ofSearch(form.until),
      mode: isTail ? null : form.mode, at: form.mode === "time" ? form.at : null, partition: form.partition, key: isTail ? form.key : null, match: isTail && form.match === "prefix" ? "prefix" : null,
      from: isTail && form.from !== "newest" ? form.from : null, offset: form.mode === "read" ? form.offset : null,
    });
  }

  /** A search is begun by who asks for it, or by an address that says what is sought. */
  function start({ isAsked = false } = {}) {
    tail?.stop();
    search?.stop();
    tail = null;
    search = null;
    page = { records: [], error: null, loading: false, next: null, end: null };
    chosen = null;
    keepAddress();
    formProblem = null;
    try {
      matches = form.mode === "tail" ? filterOf(form.show, form.shown) : null;
      if (form.mode === "tail") {
        tail = openTail(name, { partition: form.partition, key: form.key, isPrefix: form.match === "prefix", from: form.from, matches, changed });
      } else if (form.mode === "search") {
        if (isAsked || form.wanted) search = openSearch(name, { query: sought(), changed, ended: announceEnd });
      } else {
        read(form.mode === "time" ? { timestamp_ms: timeIn(form.at) } : { offset: form.offset });
      }
    } catch (error) {
      formProblem = error.message;
    }
    changed();
  }

  function sought() {
    const time = (text) => (text ? timeIn(text) : null);
    return queryOf({ way: form.way, wanted: form.wanted, partition: form.partition, fromMs: time(form.since), toMs: form.until ? time(form.until) + 999 : null });
  }

  async function read(where) {
    page.loading = true;
    page.error = null;
    changed();
    const asked = page;
    try {
      const answer = await get(`api/v1/topics/${part(name)}/records`, { query: { partition: form.partition || "0", ...where, limit: PAGE, field_bytes: FIELD_BYTES } });
      if (asked !== page) return;
      const records = answer.records.map((record) => ({ ...record, partition: answer.partition }));
      page = { records, from: records[0]?.offset ?? answer.next_offset, next: answer.next_offset, start: answer.log_start_offset, end: answer.high_watermark, error: null, loading: false };
      announce(`${counted(page.records.length, "record")} read.`);
    } catch (error) {
      page = { ...page, loading: false, error };
    }
    changed();
  }

  function choose(record) {
    chosen = record;
    way = bestWay(record);
    focusNext = "viewer-title";
    changed();
  }

  function close() {
    focusNext = `show-${idOf(chosen)}`;
    chosen = null;
    changed();
  }

  /** Moves the focus once what it goes to is drawn: a slow machine draws late. */
  function moveFocus() {
    if (focusNext === null) return;
    const id = focusNext;
    focusNext = null;
    queueMicrotask(() => document.getElementById(id)?.focus({ preventScroll: true }));
  }

  function tell() {
    // Changes of the connection are said, records are not: they would never stop.
    if (!tail || tail.state === announced || tail.state === "connecting") return;
    if (announced !== null || tail.state !== "live") announce(`Tail: ${WORDS[tail.state][1]}.`);
    announced = tail.state;
  }

  function announceEnd({ state, matches: count }) {
    announce(state === "failed" || state === "refused" ? "The search was not carried out." : `${state === "cancelled" ? "Cancelled: " : "Searched: "}${counted(count, "record")} found.`);
  }

  start();

  function draw(topic, cluster) {
    tell();
    moveFocus();
    const records = shownRecords();
    return [
      h("form", { class: "bar", key: "controls", on: { submit: (event) => { event.preventDefault(); if (form.mode !== "tail") start({ isAsked: true }); } } }, controls(topic)),
      formProblem && problem(formProblem),
      statusBar(topic, cluster),
      records.length === 0 && topic.record_count === 0 && tail?.state !== "failed" && !topic.internal && firstRecord(name, cluster),
      h("div", { class: `records${chosen ? " with-viewer" : ""}${way === "hex" ? " with-hex" : ""}`, key: "records" },
        list(records, topic),
        chosen && viewer(chosen, { way, close, wide: isWideForHex(), choose: (next) => { way = next; changed(); } })),
    ];
  }

  function shownRecords() {
    return (form.mode === "tail" ? tail?.records : form.mode === "search" ? search?.records : page.records) ?? [];
  }

  function statusBar(topic, cluster) {
    if (form.mode === "tail") return tail && tailBar(topic, cluster);
    if (form.mode === "search") return searchBar(search, search && saveButton(search.records));
    return pageBar(topic, cluster);
  }

  function controls(topic) {
    const hasAll = form.mode === "tail" || form.mode === "search";
    const set = (field) => (event) => { form[field] = event.target.value; };
    const setAndStart = (field) => (event) => { form[field] = event.target.value; start(); };
    return [
      radios("mode", MODES, form.mode, setAndStart("mode"), { legend: "How to read" }),
      field("partition", "Partition", topic.partition_count <= MAX_TOGETHER
        ? h("select", { id: "partition", value: form.partition || (hasAll ? "" : "0"), on: { change: setAndStart("partition") } },
          hasAll && h("option", { value: "" }, "all"), topic.partitions.map((each) => h("option", { value: String(each.partition) }, String(each.partition))))
        : h("input", { id: "partition", value: form.partition, placeholder: hasAll ? "0, 1, 2" : "0", "aria-describedby": hasAll ? "partition-hint" : null, on: { change: (event) => { form.partition = event.target.value.replaceAll(" ", ""); start(); } } }),
      { hint: hasAll && topic.partition_count > MAX_TOGETHER && `Up to ${MAX_TOGETHER}, with commas.` }),
      form.mode === "tail" ? [
        field("from", "Begin", h("select", { id: "from", value: form.from, on: { change: setAndStart("from") } }, h("option", { value: "newest" }, "with the newest records"), h("option", { value: "latest" }, "now"), h("option", { value: "earliest" }, "at the first record"))),
        field("match", "Key", h("select", { id: "match", value: form.match, on: { change: (event) => { form.match = event.target.value; if (form.key) start(); } } },
          h("option", { value: "exact" }, "is"), h("option", { value: "prefix" }, "begins with"))),
        field("key", "Only records with this key",
          h("input", { id: "key", type: "search", value: form.key, placeholder: "any key", spellcheck: "false", "data-search": true, on: { input: set("key"), change: () => start() } }), { grow: true }),
        field("show", "Show", h("select", { id: "show", value: form.show, on: { change: (event) => { form.show = event.target.value; if (form.show === "none" || form.shown) start(); else changed(); } } },
          WAYS.map(([id, title]) => h("option", { value: id }, title)))),
        form.show !== "none" && field("shown", "What to look for",
          h("input", { id: "shown", type: "search", value: form.shown, spellcheck: "false", title: HINTS[form.show], placeholder: HINTS[form.show], on: { input: set("shown"), change: () => start() } }), { grow: true }),
      ] : form.mode === "search" ? searchFields(form, set, changed) : form.mode === "time"
        ? field("at", "Time, in your zone", h("input", { id: "at", type: "datetime-local", step: "1", value: form.at, on: { input: set("at") } }))
        : field("offset", "Offset", h("input", { id: "offset", value: form.offset, spellcheck: "false", "aria-describedby": "offset-hint", on: { input: set("offset") } }),
          { hint: "A number, earliest, latest, or -100 for the last 100." }),
      form.mode !== "tail" && action({ type: "submit", class: "primary" }, form.mode === "search" ? "Search" : "Read"),
    ];
  }

  function tailBar(topic, cluster) {
    const [kind, word] = WORDS[tail.state];
    const resumes = tail.state === "waiting" || tail.state === "failed";
    return h("div", { key: "status", class: "tail-status" },
      h("div", { class: "bar centered" },
        mark(kind, word),
        h("span", { class: "soft" }, `${counted(tail.received, "record")} received`, matches && `, ${whole(tail.matched)} shown`, tail.dropped > 0 && `, the newest ${whole(tail.records.length)} are kept`),
        h("span", { class: "end" },
          tail.state === "paused" || tail.state === "failed"
            ? action({ id: "resume", on: { click: () => tail.resume() } }, "Resume")
            : h("button", { type: "button", id: "pause", on: { click: () => tail.pause() } }, "Pause"),
          produceButton(topic, cluster),
          saveButton(tail.records),
          h("button", { type: "button", on: { click: () => { chosen = null; tail.clear(); } } }, "Clear"))),
      resumes && tail.error && awayBecause() === null && notice(tail.state === "failed" ? "bad" : "warn", tail.error.message, tail.state === "waiting" && " Trying again; nothing is lost, the tail goes on where it stopped."),
      tail.state === "paused" && tail.lastEventId && notice("plain", "Paused. Resuming goes on at these offsets, so that nothing is missed: ", h("code", { class: "breaks" }, named(positionsText(tail.lastEventId)))),
      tail.problems.length > 0 && notice("warn", problemsText(tail.problems)),
      tail.behind && notice("warn", `Behind since ${dateTime(tail.behind.atMs)}: ${sentence(tail.behind.message)}`));
  }

  function pageBar(topic, cluster) {
    return h("div", { key: "status", class: "tail-status" },
      page.error && problem(page.error.message),
      h("div", { class: "bar centered" },
        h("span", { class: "soft" }, page.loading ? "Reading …" : page.next === null ? "" : `${counted(page.records.length, "record")}; the partition has offsets ${whole(page.start)} to ${whole(page.end - 1)}`),
        h("span", { class: "end" },
          produceButton(topic, cluster),
          saveButton(page.records),
          action({ disabled: page.loading || page.next === null || page.from <= page.start, on: { click: () => go(Math.max(page.start, page.from - PAGE)) } }, "Older"),
          action({ disabled: page.loading || page.next === null || page.next >= page.end, on: { click: () => go(page.next) } }, "Newer"))));
  }

  function produceButton(topic, cluster) {
    const produced = () => form.mode !== "tail" && start();
    return !topic.internal && cluster && action({ on: { click: () => produceRecord(name, cluster.cluster_id, { produced }) } }, "Produce a record");
  }

  function saveButton(records) {
    return action({ disabled: records.length === 0, on: { click: () => save(records) } }, "Download");
  }

  async function save(records) {
    formProblem = null;
    try {
      await download(name, records);
      announce(`${counted(records.length, "record")} are saved.`);
    } catch (error) {
      formProblem = error.message;
    }
    changed();
  }

  function go(offset) {
    form.offset = String(offset);
    keepAddress();
    chosen = null;
    form.mode = "read";
    keepAddress();
    read({ offset: form.offset });
  }

  function list(records, topic) {
    const isOfToday = records.every((record) => record.timestamp_ms === -1 || isToday(record.timestamp_ms));
    const columns = [["c-offset", "Offset"], ["c-partition wide", "Partition"], [`${isOfToday ? "c-time" : "c-date"} wide`, "Time"], ["c-key", "Key"], ["", "Value"]];
    return panel("Records", { about: form.mode === "tail" ? `newest first, ${MAX_RECORDS} at most` : "oldest first" }, records.length === 0
      ? h("p", { class: "empty soft" }, waitingText(topic))
      : h("div", { class: "record-list scroll", tabindex: "0", role: "region", "aria-label": "Records, table" },
        h("table", null, h("caption", { class: "unseen" }, "Records"),
          h("thead", null, h("tr", null, columns.map(([style, title]) => h("th", { scope: "col", class: style || null }, title)))),
          h("tbody", null, records.map(row)))));
  }

  function row(record) {
    const id = idOf(record);
    const isChosen = chosen !== null && idOf(chosen) === id;
    return h("tr", { key: id, class: isChosen ? "chosen" : null },
      h("th", { scope: "row" }, h("button", { type: "button", class: "plain number", id: `show-${id}`, "aria-expanded": isChosen ? "true" : "false",
        "aria-label": `Show offset ${record.offset} of partition ${record.partition}`, on: { click: () => choose(record) } }, whole(record.offset)),
        h("div", { class: "narrow" }, timeOf(record))),
      h("td", { class: "number wide" }, String(record.partition)),
      h("td", { class: "wide" }, timeOf(record)),
      h("td", null, preview(record.key)),
      h("td", null, preview(record.value)));
  }

  function waitingText(topic) {
    if (form.mode === "search") return emptySearchText(search);
    if (form.mode !== "tail") return page.loading ? "Reading …" : "No records here.";
    if (tail?.state === "failed") return "Nothing is shown.";
    if (matches) return "Waiting for a record that is to be shown.";
    if (form.key) return `Waiting for a record whose key ${form.match === "prefix" ? "begins with" : "is"} “${form.key}”.`;
    if (topic.record_count === 0) return "Waiting for the first record.";
    return form.from === "latest" ? "Waiting for new records. To see those that are there already, begin with the newest or at the first record." : "Waiting for new records: none of the newest offsets has one that can be shown.";
  }

  return { draw, stop() { tail?.stop(); search?.stop(); } };
}

/** As a field for a time wants it: in the reader's zone, to the second. */
function localTime(ms) {
  return dateTime(ms).replace(" ", "T");
}

/** The time of day in the reader's zone; the day and UTC are its tooltip, and stand in the opened record. */
function timeOf({ timestamp_ms: ms }) {
  if (ms === -1) return h("span", { class: "none" }, "none");
  const at = new Date(ms);
  return h("time", { datetime: Number.isNaN(at.getTime()) ? null : at.toISOString(), title: exactTime(ms), class: "number" }, timeOfDay(ms));
}

/** Whether the viewer has room for 16 bytes a line: as a sheet below the list, or beside it on a wide screen. */
function isWideForHex() {
  return innerWidth >= 1_200 || (innerWidth > 700 && innerWidth < 1_024);
}

function problemsText(problems) {
  const [{ partition, message }] = problems;
  return `Not all of the newest records can be shown. Partition ${partition}: ${sentence(message)}${problems.length > 1 ? ` ${counted(problems.length - 1, "other partition")} lack some too.` : ""}`;
}

function idOf(record) {
  return record === null ? null : `${record.partition}-${record.offset}`;
}

function positionsText(lastEventId) {
  const positions = lastEventId.split(",");
  const shown = positions.slice(0, 8).map((each) => each.replace(":", " at "));
  return `partition ${shown.join(", ")}${positions.length > 8 ? ` and ${positions.length - 8} more` : ""}`;
}

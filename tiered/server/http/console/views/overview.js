// The overview: is it well, what flows, what is held where, who is behind.

import { get } from "../js/api.js";
import { spark } from "../js/chart.js";
import { h } from "../js/dom.js";
import { counted, duration, size, sizeParts, whole } from "../js/format.js";
import { ON_DISK, ON_DISK_MEANS, asking, command, figure, head, named, panel, sizeFigure, sized, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link } from "../js/router.js";
import { legend, topicStrip } from "../js/strip.js";
import { plainTable } from "../js/table.js";
import { brokersPanel, healthPanel } from "./brokers.js";

const MAX_RATES = 120;
const SHOWN = 8;

export function overviewView({ cluster, changed }) {
  const topics = poll((signal) => get("api/v1/topics", { query: { partitions: "false" }, signal }), { everyMs: 10_000, changed });
  const groups = poll((signal) => get("api/v1/groups", { signal }), { everyMs: 10_000, changed });
  const rates = makeRates();

  function draw() {
    const page = [head({ title: "Overview", subtitle: subtitle(cluster.data), source: cluster }), trouble(cluster)];
    if (cluster.data === null) return page;
    rates.take(cluster);
    const { totals } = cluster.data;
    page.push(
      h("dl", { class: "figures", key: "figures" },
        figure("Topics", whole(totals.topics), "", counted(totals.partitions, "partition")),
        figure("Groups", whole(totals.groups), "", counted(totals.connections_open, "open connection")),
        sizeFigure(cluster.data.brokers.length > 1 ? "On disks, all replicas" : "On this broker's disk", totals.local_bytes, `hot: the newest records${without(cluster.data)}`),
        sizeFigure("In the object store", totals.cold_bytes, `cold; some of it is on disks too${without(cluster.data)}`),
        rateFigure("Produced", rates.produced, totals.produced_bytes),
        rateFigure("Fetched", rates.fetched, totals.fetched_bytes)),
      h("div", { class: "two", key: "two" },
        h("div", { class: "stack" }, largest(topics), lagging(groups)),
        h("div", { class: "stack side-by-side" }, healthPanel(cluster.data), brokersPanel(cluster.data))));
    return page;
  }

  return { title: () => "Overview", draw, stop() { topics.stop(); groups.stop(); } };
}

function subtitle(data) {
  if (data === null) return null;
  const up = `up ${duration(data.totals.uptime_ms)}`;
  return data.brokers.length === 1 ? `1 broker, ${up}` : `${counted(data.brokers.length, "broker")}; this page comes from broker ${data.answered_by}, ${up}`;
}

/** " without broker 3", where sums lack what a broker has. */
function without({ brokers }) {
  const unheard = brokers.filter(({ totals }) => totals === null).map(({ broker_id: id }) => id);
  return unheard.length === 0 ? "" : `, without broker ${unheard.join(", ")}`;
}

/** Bytes a second between answers, as long as this page is open. */
function makeRates() {
  let last = null;
  const rates = {
    produced: [],
    fetched: [],
    take(source) {
      const { totals } = source.data;
      // Who told: a broker that comes, goes or was started anew changes the sums by all that it has counted.
      const told = source.data.brokers.filter((each) => each.totals !== null);
      const now = { atMs: source.loadedAt, uptime: totals.uptime_ms, produced: totals.produced_bytes, fetched: totals.fetched_bytes, told };
      if (last?.atMs === now.atMs) return;
      if (last !== null && now.uptime > last.uptime && areTheSame(last.told, told)) {
        for (const name of ["produced", "fetched"]) {
          rates[name].push(((now[name] - last[name]) * 1000) / (now.uptime - last.uptime));
          if (rates[name].length > MAX_RATES) rates[name].shift();
        }
      }
      last = now;
    },
  };
  return rates;
}

function areTheSame(before, after) {
  return before.length === after.length && after.every((each, place) =>
    each.broker_id === before[place].broker_id && each.totals.uptime_ms >= before[place].totals.uptime_ms);
}

function rateFigure(name, values, total) {
  const note = [`${size(total)} since brokers started`, spark(values)];
  if (values.length === 0) return figure(name, "…", "", note);
  const [amount, unit] = sizeParts(values[values.length - 1]);
  return figure(name, amount, `${unit}/s`, note);
}

function largest(topics) {
  const held = (each) => each.local_bytes + each.cold_bytes;
  const found = (topics.data?.topics || []).filter((each) => !each.internal).sort((a, b) => held(b) - held(a));
  const end = h("a", { href: "#/topics" }, topics.data ? `All ${whole(found.length)}` : "All topics");
  if (topics.data === null) return panel("Largest topics", { end }, h("div", { class: "panel-body" }, asking(topics)));
  if (found.length === 0) {
    return panel("Largest topics", { end }, h("div", { class: "empty" }, h("p", null, "There is no topic yet. Create one, then produce the first record:"),
      command("tiered topics create orders --partitions 3"), h("a", { class: "button primary", href: "#/topics?new=1" }, "Create a topic")));
  }
  return panel("Largest topics", { end }, trouble(topics), plainTable("Largest topics", [
    { name: "Topic", cell: (each) => h("a", { href: link(["topics", each.topic]), class: "breaks" }, named(each.topic)) },
    { name: ON_DISK, title: ON_DISK_MEANS, right: true, cell: (each) => sized(each.local_bytes) },
    { name: "Object store", right: true, cell: (each) => sized(each.cold_bytes) },
    { name: "Where its records are", wide: true, class: "strip-cell", cell: topicStrip },
  ], found.slice(0, SHOWN), (each) => each.topic), h("div", { class: "pager wide" }, legend(["hot", "both", "cold", "overdue"])));
}

function lagging(groups) {
  const end = h("a", { href: "#/groups" }, "All groups");
  if (groups.data === null) return panel("Groups with the most lag", { end }, h("div", { class: "panel-body" }, asking(groups)));
  const found = [...groups.data.groups].sort((a, b) => (b.lag ?? -1) - (a.lag ?? -1)).slice(0, SHOWN);
  if (found.length === 0) {
    return panel("Groups with the most lag", { end }, h("div", { class: "empty" }, h("p", null, "No consumer group has committed an offset yet. Start one with:"),
      command(`kcat -b ${location.hostname}:9092 -G my-group my-topic`)));
  }
  return panel("Groups with the most lag", { end }, trouble(groups), plainTable("Groups with the most lag", [
    { name: "Group", cell: (each) => h("a", { href: link(["groups", each.group_id]), class: "breaks" }, named(each.group_id)) },
    { name: "State", cell: (each) => each.state },
    { name: "Members", right: true, wide: true, cell: (each) => whole(memberCount(each)) },
    { name: "Lag", right: true, cell: (each) => whole(each.lag) },
  ], found, (each) => each.group_id));
}

export function memberCount(group) {
  return Array.isArray(group.members) ? group.members.length : group.members;
}

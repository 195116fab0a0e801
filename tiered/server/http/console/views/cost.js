// What each topic takes of both tiers, and what that costs at the broker's prices.

import { get } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, dollars, whole } from "../js/format.js";
import { figure, head, named, panel, sizeFigure, sized, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link } from "../js/router.js";
import { makeTable, plainTable } from "../js/table.js";

const PRICES = {
  cold_usd_per_gib_month: "Object store, per GiB and month",
  local_usd_per_gib_month: "Brokers' disks, per GiB and month",
  upload_usd_per_1000: "Object store, per 1,000 PUT requests",
};

export function costView({ query, changed }) {
  const cost = poll((signal) => get("api/v1/cost", { signal }), { everyMs: 15_000, changed });
  const table = makeTable({
    caption: "Cost by topic", noun: "topics", query, order: "-total", changed,
    keyOf: (each) => each.topic_id || each.topic,
    words: (each) => each.topic,
    columns: [
      { id: "topic", name: "Topic", sort: (each) => each.topic, cell: (each) => (each.deleted
        ? [h("span", { class: "breaks" }, named(each.topic)), " ", h("span", { class: "tag" }, "deleted")]
        : h("a", { href: link(["topics", each.topic]), class: "breaks" }, named(each.topic))) },
      { id: "store", name: "Object store", right: true, sort: (each) => each.cold_bytes, cell: (each) => sized(each.cold_bytes) },
      { id: "objects", name: "Objects", right: true, wide: true, sort: (each) => each.cold_objects, cell: (each) => whole(each.cold_objects) },
      { id: "retired", name: "Waiting to be deleted", right: true, wide: true, sort: (each) => each.retired_bytes, cell: (each) => sized(each.retired_bytes) },
      { id: "disk", name: "On disks, all replicas", right: true, wide: true, sort: (each) => each.local_bytes, cell: (each) => sized(each.local_bytes) },
      { id: "storecost", name: "Store, per month", right: true, wide: true, sort: (each) => each.storage_usd_per_month, cell: (each) => dollars(each.storage_usd_per_month) },
      { id: "diskcost", name: "Disks, per month", right: true, wide: true, sort: (each) => each.local_usd_per_month, cell: (each) => dollars(each.local_usd_per_month) },
      { id: "total", name: "Total per month", right: true, sort: (each) => each.total_usd_per_month, cell: (each) => h("strong", null, dollars(each.total_usd_per_month)) },
    ],
    empty: () => h("p", { class: "empty soft" }, "There is no topic yet, so there is no cost."),
  });

  function draw() {
    const page = [head({ title: "Cost", source: cost, subtitle: "What the stored data costs a month, at the prices in this broker's settings. Requests and network traffic are not included." }), trouble(cost)];
    if (cost.data === null) return page;
    const { topics, prices, total_usd_per_month: total } = cost.data;
    const sum = (name) => topics.reduce((all, each) => all + each[name], 0);
    page.push(
      h("dl", { class: "figures", key: "figures" },
        figure("Total per month", dollars(total), "", counted(topics.length, "topic")),
        sizeFigure("In the object store", sum("cold_bytes"), counted(sum("cold_objects"), "object")),
        sizeFigure("Waiting to be deleted", sum("retired_bytes"), "no longer in the topics; paid for until tiered.purge.grace.ms is over"),
        sizeFigure("On disks, all replicas", sum("local_bytes"), "each replica costs as much")),
      topics.length > 10 && h("div", { class: "bar", key: "bar" }, table.search("Find a topic")),
      panel("By topic", {}, table.draw(topics, { stale: cost.isStale })),
      panel("Prices", { about: "settings of the broker" }, plainTable("Prices", [
        { name: "Price", class: "breaks", cell: ([name]) => PRICES[name] || h("code", null, name) },
        { name: "US dollars", right: true, cell: ([, price]) => String(price) },
      ], Object.entries(prices), ([name]) => name)));
    return page;
  }
  return { title: () => "Cost", draw, stop: () => cost.stop() };
}

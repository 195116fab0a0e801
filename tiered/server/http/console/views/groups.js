// All consumer groups: state, members, lag.

import { get } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, duration, whole } from "../js/format.js";
import { command, head, named, notice, panel, state, trouble, unknown } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link } from "../js/router.js";
import { makeTable } from "../js/table.js";
import { memberCount } from "./overview.js";

const STATES = { stable: "good", empty: "quiet", dead: "quiet" };

export const LAG_IN_TIME = "For how long at least the oldest record that the group has not committed has been in the log";

export function lagInTime({ lag, lag_ms: ms }) {
  if (lag === null) return null;
  if ((ms ?? null) === null) return unknown("the broker has not watched the log for long enough");
  return lag === 0 ? h("span", { class: "soft" }, "none") : h("span", { class: "number" }, duration(ms));
}

export function groupState(name) {
  return state(STATES[name.toLowerCase()] || "warn", name);
}

export function groupsView({ query, changed, cluster }) {
  const groups = poll((signal) => get("api/v1/groups", { signal }), { everyMs: 5_000, changed });
  const table = makeTable({
    caption: "Consumer groups", noun: "groups", query, order: "group", changed,
    keyOf: (each) => each.group_id,
    words: (each) => `${each.group_id} ${each.topics.join(" ")}`,
    columns: [
      { id: "group", name: "Group", sort: (each) => each.group_id, cell: (each) => h("a", { href: link(["groups", each.group_id]), class: "breaks" }, named(each.group_id)) },
      { id: "state", name: "State", sort: (each) => each.state, cell: (each) => groupState(each.state) },
      { id: "kind", name: "Protocol", wide: true, sort: (each) => each.kind, cell: (each) => (each.kind === "consumer" ? "consumer (KIP-848)" : each.kind) },
      { id: "members", name: "Members", right: true, sort: memberCount, cell: (each) => whole(memberCount(each)) },
      { id: "lag", name: "Lag", right: true, sort: (each) => each.lag ?? -1, cell: (each) => (each.lag === null ? h("span", { class: "soft" }, "nothing committed") : whole(each.lag)) },
      { id: "time", name: "Lag in time", title: LAG_IN_TIME, right: true, wide: true, sort: (each) => each.lag_ms ?? -1, cell: lagInTime },
      { id: "topics", name: "Topics", wide: true, cell: (each) => topicsOf(each) },
    ],
    empty: () => h("div", { class: "empty" }, h("h3", null, "There is no consumer group yet"),
      h("p", null, "A group exists as soon as a consumer joins it or commits an offset. With kcat:"),
      command(`kcat -b ${cluster.data ? `${cluster.data.brokers[0].host}:${cluster.data.brokers[0].port}` : "127.0.0.1:9092"} -G my-group my-topic`)),
  });

  function draw() {
    const found = groups.data?.groups;
    return [
      head({ title: "Consumer groups", source: groups, subtitle: found && counted(found.length, "group") }),
      trouble(groups),
      groups.data?.silent_brokers.length > 0 && notice("warn", `The groups that broker ${groups.data.silent_brokers.join(", ")} coordinates are missing: it did not answer.`),
      found && found.length > 0 && h("div", { class: "bar", key: "bar" }, table.search("Find a group by its name or a topic")),
      found && panel("All groups", {}, table.draw(found, { stale: groups.isStale })),
    ];
  }
  return { title: () => "Groups", draw, stop: () => groups.stop() };
}

function topicsOf(group) {
  const shown = group.topics.slice(0, 4);
  if (shown.length === 0) return h("span", { class: "soft" }, "none");
  return [shown.map((each, place) => [place > 0 && ", ", h("a", { href: link(["topics", each]), class: "breaks" }, named(each))]),
    group.topics.length > 4 && ` and ${group.topics.length - 4} more`];
}

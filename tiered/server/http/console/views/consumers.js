// Which groups read a topic, and how far each of them is behind in it.

import { h } from "../js/dom.js";
import { whole } from "../js/format.js";
import { asking, command, moment, named, notice, panel, trouble } from "../js/parts.js";
import { link } from "../js/router.js";
import { plainTable } from "../js/table.js";

export function consumersTab({ name, followers }) {
  function draw(_topic, cluster) {
    if (followers.data === null) return asking(followers);
    const rows = followers.data.groups.map((group) => inTopic(group, name));
    const broker = cluster?.brokers[0];
    return [
      trouble(followers),
      followers.data.left > 0 && notice("warn", `${whole(followers.data.left)} more groups read this topic; `, h("a", { href: "#/groups" }, "all groups"), " lists them."),
      panel("Consumer groups of this topic", {}, rows.length === 0
        ? h("div", { class: "empty" }, h("p", null, "No group has committed an offset in this topic. Start one that reads it with:"),
          command(`kcat -b ${broker ? `${broker.host}:${broker.port}` : "127.0.0.1:9092"} -G my-group ${name}`))
        : plainTable("Consumer groups of this topic", [
          { name: "Group", cell: (each) => h("a", { href: link(["groups", each.id]), class: "breaks" }, named(each.id)) },
          { name: "State", cell: (each) => each.state },
          { name: "Partitions", right: true, wide: true, cell: (each) => whole(each.partitions) },
          { name: "Lag in this topic", right: true, cell: (each) => whole(each.lag) },
          { name: "Last commit", right: true, cell: (each) => moment(each.atMs) },
        ], rows, (each) => each.id)),
    ];
  }
  return { draw, stop() {} };
}

function inTopic(group, topic) {
  const offsets = group.offsets.filter((each) => each.topic === topic && each.committed_offset !== null);
  return {
    id: group.group_id,
    state: group.state,
    partitions: offsets.length,
    lag: offsets.reduce((sum, each) => sum + (each.lag ?? 0), 0),
    atMs: offsets.reduce((latest, each) => Math.max(latest, each.committed_at_ms ?? -1), -1),
  };
}

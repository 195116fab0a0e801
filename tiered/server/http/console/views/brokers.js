// The brokers: who is in service, who controls, what each leads and holds, and how the cluster is.

import { h } from "../js/dom.js";
import { counted, duration, whole } from "../js/format.js";
import { brokerState, checksOf } from "../js/health.js";
import { head, named, panel, sized, state, trouble } from "../js/parts.js";
import { link } from "../js/router.js";
import { plainTable } from "../js/table.js";

const NAMES = 5;

export function brokersView({ cluster }) {
  function draw() {
    const data = cluster.data;
    const page = [head({ title: "Brokers", source: cluster, subtitle: data && subtitle(data) }), trouble(cluster)];
    if (data === null) return page;
    return [...page,
      panel("All brokers", {}, table("Brokers", data.brokers)),
      healthPanel(data),
      h("p", { key: "findings" }, h("a", { href: "#/brokers/findings" }, "What disk, metadata store and object store disagree about"))];
  }
  return { title: () => "Brokers", draw, stop() {} };
}

function subtitle({ brokers, controller_id: controller, answered_by: told }) {
  const live = brokers.filter((each) => each.state === "live").length;
  return `${whole(live)} of ${counted(brokers.length, "broker")} in service, ${controller < 0 ? "no controller" : `controller ${controller}`}, as broker ${told} sees it`;
}

function table(caption, brokers) {
  return plainTable(caption, [
    { name: "Broker", cell: (each) => [String(each.broker_id), each.is_controller && [" ", h("span", { class: "tag" }, "controller")]] },
    { name: "State", cell: (each) => state(...brokerState(each)) },
    { name: "In sync", cell: (each) => inSync(each) },
    { name: "Rack", cell: (each) => each.rack || h("span", { class: "soft" }, "none") },
    { name: "Kafka", wide: true, cell: (each) => h("span", { class: "mono" }, `${each.host}:${each.port}`) },
    { name: "Leads", right: true, cell: (each) => whole(each.leader_count) },
    { name: "On disk", right: true, wide: true, cell: (each) => (each.totals ? sized(each.totals.local_bytes) : h("span", { class: "soft" }, "unknown")) },
    { name: "Up", right: true, wide: true, cell: (each) => (each.totals ? duration(each.totals.uptime_ms) : h("span", { class: "soft" }, "unknown")) },
  ], brokers, (each) => each.broker_id);
}

/** How many of the broker's replicas have what their leaders have. */
function inSync({ replica_count: all, not_in_sync: behind }) {
  return state(behind === 0 ? "good" : "warn", `${whole(all - behind)} of ${whole(all)}`);
}

/** A few columns of the same, for the overview. */
export function brokersPanel({ brokers }) {
  const end = h("a", { href: "#/brokers" }, "All brokers");
  return panel("Brokers", { end }, plainTable("Brokers", [
    { name: "Broker", cell: (each) => [String(each.broker_id), each.is_controller && [" ", h("span", { class: "tag" }, "controller")]] },
    { name: "Kafka", cell: (each) => h("span", { class: "mono breaks" }, named(`${each.host}:${each.port}`)) },
    { name: "Rack", wide: true, cell: (each) => each.rack || h("span", { class: "soft" }, "none") },
    { name: "Leads", right: true, wide: true, cell: (each) => whole(each.leader_count) },
    { name: "State", cell: (each) => state(...brokerState(each)) },
  ], brokers, (each) => each.broker_id));
}

/** What an operator looks at, each as a state and a sentence. */
export function healthPanel(data) {
  return panel("Health", {}, h("ul", { class: "checks" }, checksOf(data).map(([name, found, text, names = []]) =>
    h("li", { key: name }, h("div", null, h("h3", null, name), state(...found)),
      h("p", null, text, names.length > 0 && [" ", links(names)])))));
}

/** Links to the first of these partitions. */
function links(names) {
  const shown = names.slice(0, NAMES).map((name, place) => {
    const at = name.lastIndexOf("-");
    return [place > 0 && ", ", h("a", { href: link(["topics", name.slice(0, at), "partitions", name.slice(at + 1)]), class: "breaks" }, named(name))];
  });
  return [shown, names.length > NAMES && ", …"];
}

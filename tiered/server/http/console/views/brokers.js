// The brokers: who is in service, who controls, what each leads and holds, and how the cluster is.

import { h } from "../js/dom.js";
import { ago, counted, duration, size, whole } from "../js/format.js";
import { brokerState, checksOf, heartbeat } from "../js/health.js";
import { before, head, named, panel, state, trouble } from "../js/parts.js";
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

function subtitle({ brokers, controller_id: controller, answered_by: here }) {
  const inService = brokers.filter((broker) => broker.state !== "fenced").length;
  return `${whole(inService)} of ${counted(brokers.length, "broker")} in service, ${controller < 0 ? "no controller" : `controller ${controller}`}${brokers.length > 1 ? `; this page comes from broker ${here}` : ""}`;
}

function table(caption, brokers) {
  return plainTable(caption, [
    { name: "Broker", cell: name },
    { name: "State", cell: (broker) => state(...brokerState(broker)) },
    { name: "In sync", cell: (broker) => inSync(broker) },
    { name: "Rack", wide: true, cell: (broker) => broker.rack || h("span", { class: "soft" }, "none") },
    { name: "Kafka", wide: true, cell: (broker) => h("span", { class: "mono" }, `${broker.host}:${broker.port}`) },
    { name: "Leads", right: true, cell: (broker) => whole(broker.leader_count) },
    { name: "On its disk", right: true, wide: true, cell: (broker) => ofItsOwn(broker, (totals) => size(totals.local_bytes)) },
    { name: "Up", right: true, wide: true, cell: (broker) => ofItsOwn(broker, (totals) => duration(totals.uptime_ms)) },
    { name: "Heartbeat", right: true, wide: true, cell: (broker) => (broker.heartbeatAtMs === null ? h("span", { class: "soft" }, "—") : heartbeat(broker)) },
    { name: "Version", right: true, wide: true, cell: (broker) => broker.version ?? broker.last?.version ?? h("span", { class: "soft" }, "unknown") },
  ], brokers, (broker) => broker.broker_id);
}

function name(broker) {
  return [h("a", { href: link(["brokers", broker.broker_id]), "aria-label": `Broker ${broker.broker_id}` }, String(broker.broker_id)), broker.is_controller && [" ", h("span", { class: "tag" }, "controller")]];
}

/** A figure that only the broker itself knows; the last one, and how old it is, while it does not answer. */
function ofItsOwn({ totals, last }, shown) {
  if (totals !== null) return h("span", { class: "number" }, shown(totals));
  return h("span", { class: "soft" }, last ? `${shown(last.totals)}, ${ago(last.atMs)}` : "unknown");
}

/** How many of the broker's replicas have what their leaders have. */
function inSync({ replica_count: all, not_in_sync: behind }) {
  return state(behind === 0 ? "good" : "warn", `${whole(all - behind)} of ${whole(all)}`);
}

/** A few columns of the same, for the overview. */
export function brokersPanel({ brokers }) {
  const end = h("a", { href: "#/brokers" }, "All brokers");
  return panel("Brokers", { end }, plainTable("Brokers", [
    { name: "Broker", cell: name },
    { name: "Kafka", cell: (each) => h("span", { class: "mono breaks" }, named(`${each.host}:${each.port}`)) },
    { name: "Rack", wide: true, cell: (each) => each.rack || h("span", { class: "soft" }, "none") },
    { name: "Leads", right: true, wide: true, cell: (each) => whole(each.leader_count) },
    { name: "State", cell: (each) => state(...brokerState(each)) },
  ], brokers, (each) => each.broker_id));
}

/** What an operator looks at, each as a state and a sentence. */
export function healthPanel(data) {
  return panel("Health", {}, checkList(checksOf(data)));
}

/** The same as a list. What a broker said before it stopped answering has no mark of now. */
export function checkList(checks, { isOld = false } = {}) {
  return h("ul", { class: "checks" }, checks.map(([title, [kind, word], text, names = []]) =>
    h("li", { key: title }, h("div", null, h("h3", null, title), isOld ? before(word) : state(kind, word)),
      h("p", null, text, names.length > 0 && [" ", links(names)]))));
}

/** Links to the first of these partitions. */
function links(names) {
  const shown = names.slice(0, NAMES).map((name, place) => {
    const at = name.lastIndexOf("-");
    return [place > 0 && ", ", h("a", { href: link(["topics", name.slice(0, at), "partitions", name.slice(at + 1)]), class: "breaks" }, named(name))];
  });
  return [shown, names.length > NAMES && ", …"];
}

// One broker: what it does now, how it is, where it is reached, and which partitions it leads and follows.

import { get, part } from "../js/api.js";
import { spark } from "../js/chart.js";
import { h } from "../js/dom.js";
import { counted, dateTime, duration, size, sizeParts, whole } from "../js/format.js";
import { brokerState, checksOf, heartbeat, whatIsWrong, whatToDo } from "../js/health.js";
import { withHeartbeat } from "../js/last_known.js";
import { action, asking, figure, head, named, notice, panel, radios, sizeFigure, state, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link, refine } from "../js/router.js";
import { plainTable } from "../js/table.js";
import { checkList } from "./brokers.js";

const MAX_RATES = 120;
const PAGE_ROWS = 100;
const SHOWN = [["", "All"], ["leader", "Leads"], ["follower", "Follows"], ["lacking", "Not in sync"]];

export function brokerView({ query, cluster, changed }, id) {
  const path = `api/v1/brokers/${part(id)}`;
  const rates = makeRates();
  let known = null;
  const broker = poll(async (signal) => {
    const answer = withHeartbeat(await get(path, { signal }));
    if (answer.activity !== null) {
      known = { ...answer, atMs: Date.now() };
      rates.take(answer.activity, known.atMs);
    }
    return answer;
  }, { everyMs: 3_000, changed });
  const partitions = partitionsPanel(path, query, changed);

  function draw() {
    const data = broker.data;
    const page = [head({ crumbs: [["Brokers", "#/brokers"]], title: `Broker ${id}`, source: broker, subtitle: data && subtitle(data) })];
    if (broker.error?.status === 404 || broker.error?.status === 400) return [...page, notice("bad", broker.error.message), h("p", null, h("a", { href: "#/brokers" }, "See the brokers that there are"))];
    page.push(trouble(broker));
    if (data === null) return page;
    const shown = data.activity === null && known !== null ? { ...data, version: known.version, totals: known.totals, health: known.health, activity: known.activity } : data;
    const oldMs = data.activity === null && known !== null ? Date.now() - known.atMs : null;
    page.push(
      whatIsWrong(data) !== null && notice(brokerState(data)[0] === "bad" ? "bad" : "warn", `${whatToDo(data)} ${
        oldMs !== null ? `Its own figures below are from ${duration(oldMs)} ago.` : "Its own figures are unknown; what the metadata store has of it is shown."}`),
      figures(shown, data, rates, oldMs === null ? null : `${duration(oldMs)} ago`),
      h("div", { class: "two", key: "two" }, partitions.draw(data), h("div", { class: "stack" }, healthPanel(shown, oldMs), factsPanel(shown, cluster.data))));
    return page;
  }

  return { title: () => `Broker ${id}`, draw, stop() { broker.stop(); partitions.stop(); } };
}

function subtitle({ host, port, rack, is_controller: isController }) {
  return [`${host}:${port}`, rack === null ? "no rack" : `rack ${rack}`, isController && "the controller"].filter(Boolean).join(", ");
}

function figures(shown, data, rates, old) {
  const { activity, totals, version } = shown;
  const list = [figure("State", state(...brokerState(data)), "", data.heartbeatAtMs === null ? null : `heartbeat ${heartbeat(data)}`)];
  if (activity !== null) {
    const used = activity.disk_total_bytes - activity.disk_free_bytes;
    list.push(
      figure("Version", version, "", old),
      figure("Up", duration(activity.uptime_ms), "", `since ${dateTime(activity.started_at_ms)}`),
      rateFigure("CPU", rates.cpu, (share) => [whole(Math.round(share * 100)), "%"], "of one core", old),
      sizeFigure("Memory", activity.resident_bytes, old),
      sizeFigure("Disk", used, `used of ${size(activity.disk_total_bytes)}; ${size(activity.disk_free_bytes)} free; its logs take ${size(totals.local_bytes)}`),
      rateFigure("Bytes in", rates.received, perSecond, `${size(activity.produced_bytes + activity.replicated_in_bytes)} since the start`, old),
      rateFigure("Bytes out", rates.sent, perSecond, `${size(activity.fetched_bytes + activity.replicated_out_bytes)} since the start`, old),
      rateFigure("Requests", rates.requests, (rate) => [whole(Math.round(rate)), "/s"], `${whole(activity.requests + activity.http_requests)} since the start`, old),
      figure("Connections", whole(totals.connections_open), "", "of Kafka clients and brokers"));
  }
  list.push(
    figure("Leads", whole(data.leader_count), "", `${data.leader_count === 1 ? "partition" : "partitions"}, and follows ${whole(data.replica_count - data.leader_count)}`),
    figure("Not in sync", whole(data.not_in_sync), "", `of its ${counted(data.replica_count, "replica")}`));
  return h("dl", { class: "figures", key: "figures" }, list);
}

function perSecond(bytes) {
  const [amount, unit] = sizeParts(bytes);
  return [amount, `${unit}/s`];
}

function rateFigure(name, values, shown, note, old) {
  const [amount, unit] = values.length === 0 ? ["…", ""] : shown(values[values.length - 1]);
  return figure(name, amount, unit, [note, old && `, ${old}`, spark(values)]);
}

/** What a broker does in a second, between two of its answers. A broker that was started anew begins anew. */
function makeRates() {
  const rates = { cpu: [], received: [], sent: [], requests: [], take };
  let last = null;
  function take(activity) {
    const now = {
      uptime: activity.uptime_ms, cpu: activity.cpu_s,
      received: activity.produced_bytes + activity.replicated_in_bytes, sent: activity.fetched_bytes + activity.replicated_out_bytes,
      requests: activity.requests + activity.http_requests,
    };
    const passed = last === null ? 0 : (now.uptime - last.uptime) / 1000;
    if (passed < 0) for (const name of Object.keys(rates)) if (name !== "take") rates[name].length = 0;
    if (passed > 0) {
      for (const name of ["cpu", "received", "sent", "requests"]) {
        rates[name].push(Math.max(0, (now[name] - last[name]) / passed));
        if (rates[name].length > MAX_RATES) rates[name].shift();
      }
    }
    last = now;
  }
  return rates;
}

/** The checks that are about this broker alone. */
function healthPanel(shown, oldMs) {
  if (shown.health === null) return panel("Health", {}, h("p", { class: "empty soft" }, "Unknown: the broker does not answer."));
  return panel("Health", { about: oldMs === null ? null : `${duration(oldMs)} ago` }, checkList(checksOf({ brokers: [{ ...shown, state: "live" }], health: shown.health }), { isOld: oldMs !== null }));
}

function factsPanel(shown, cluster) {
  const { activity } = shown;
  const address = (host, port) => h("span", { class: "mono breaks" }, named(`${host}:${port}`));
  const listeners = shown.listeners.length > 0 ? shown.listeners : [{ name: "Kafka", protocol: "", host: shown.host, port: shown.port }];
  return panel("About this broker", {}, h("div", { class: "panel-body" }, h("dl", { class: "pairs" },
    listeners.map((listener) => [h("dt", null, listener.protocol && listener.protocol !== listener.name ? `${listener.name} (${listener.protocol})` : listener.name), h("dd", null, address(listener.host, listener.port))]),
    h("dt", null, "HTTP"), h("dd", null, shown.http_port === null ? h("span", { class: "soft" }, "not registered") : address(shown.http_host, shown.http_port)),
    h("dt", null, "Rack"), h("dd", null, shown.rack ?? h("span", { class: "soft" }, "none")),
    h("dt", null, "Registration"), h("dd", null, `epoch ${whole(shown.broker_epoch)}`),
    h("dt", null, "Controller"), h("dd", null, shown.is_controller ? "this broker" : cluster && cluster.controller_id >= 0 ? h("a", { href: link(["brokers", cluster.controller_id]) }, `broker ${cluster.controller_id}`) : h("span", { class: "soft" }, "none")),
    activity && [
      h("dt", null, "Open files"), h("dd", null, `${whole(activity.open_files)} of ${whole(activity.max_open_files)}, sockets included`),
      h("dt", null, "Threads"), h("dd", null, whole(activity.threads)),
      h("dt", null, "Bytes in"), h("dd", null, `${size(activity.produced_bytes)} from producers, ${size(activity.replicated_in_bytes)} from leaders`),
      h("dt", null, "Bytes out"), h("dd", null, `${size(activity.fetched_bytes)} to consumers, ${size(activity.replicated_out_bytes)} to followers`),
      h("dt", null, "Requests"), h("dd", null, `${whole(activity.requests)} of Kafka's protocol, ${whole(activity.http_requests)} over HTTP`)])));
}

/** The broker's replicas, a page at a time: a broker may have more than any page can show. */
function partitionsPanel(path, query, changed) {
  let shown = SHOWN.some(([value]) => value === query.shown) ? query.shown : "";
  const pages = [null];
  const source = poll((signal) => get(`${path}/partitions`, { signal, query: {
    limit: PAGE_ROWS, role: shown === "lacking" ? null : shown, in_sync: shown === "lacking" ? "false" : null,
    after_topic: pages.at(-1)?.topic, after_partition: pages.at(-1)?.partition,
  } }), { everyMs: 5_000, changed });

  function choose(event) {
    shown = event.target.value;
    pages.length = 1;
    refine({ shown });
    source.refresh();
  }

  function move(to) {
    if (to === null) pages.pop();
    else pages.push(to);
    source.refresh();
  }

  function draw(data) {
    const end = radios("shown", SHOWN, shown, choose, { legend: "Which partitions" });
    if (source.data === null) return panel("Partitions", { end }, h("div", { class: "panel-body" }, asking(source)));
    const rows = source.data.partitions;
    return panel("Partitions", { end, about: counted(data.replica_count, "replica") }, trouble(source),
      rows.length === 0 ? h("p", { class: "empty soft" }, shown === "lacking" ? "None: every replica here has what its leader has." : "None.") : table(rows),
      (pages.length > 1 || !source.data.is_end) && h("nav", { class: "pager", "aria-label": "Pages of Partitions", key: "pager" },
        h("span", { class: "number" }, `page ${whole(pages.length)}`),
        h("div", { class: "end" },
          action({ disabled: pages.length === 1, on: { click: () => move(null) } }, "Previous"),
          action({ disabled: source.data.is_end, on: { click: () => move(rows.at(-1)) } }, "Next"))));
  }

  return { draw, stop: () => source.stop() };
}

function table(rows) {
  return plainTable("Partitions", [
    { name: "Partition", cell: (replica) => h("a", { href: link(["topics", replica.topic, "partitions", replica.partition]), class: "breaks" }, named(`${replica.topic} ${replica.partition}`)) },
    { name: "Role", cell: (replica) => (replica.role === "leader" ? "leader" : replica.leader < 0 ? state("bad", "no leader") : ["follows ", h("a", { href: link(["brokers", replica.leader]) }, `broker ${replica.leader}`)]) },
    { name: "This replica", cell: (replica) => (replica.in_sync ? state("good", "in sync") : state("warn", "not in sync")) },
    { name: "In sync", wide: true, right: true, cell: (replica) => `${replica.isr.length} of ${replica.replicas.length}` },
  ], rows, (replica) => `${replica.topic}/${replica.partition}`);
}

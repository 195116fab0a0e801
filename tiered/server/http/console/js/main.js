// Starts the console: which address shows what, the frame around it, and when it is drawn again.
// Owns the page's head and foot and the one view that is open. Views own their data.

import { announce } from "./announce.js";
import { awayBecause, get } from "./api.js";
import { closeDialog, redrawDialog } from "./dialog.js";
import { h, render } from "./dom.js";
import { duration, whole } from "./format.js";
import { healthWord, missingBrokers, toLookAt } from "./health.js";
import { makeLastKnown } from "./last_known.js";
import { mark, notice } from "./parts.js";
import { poll } from "./poll.js";
import { watchBroker } from "./pulse.js";
import { link, parse } from "./router.js";
import { stripDefs } from "./strip.js";
import { applyTheme, themeSwitch } from "./theme.js";
import { accessView } from "../views/access.js";
import { brokerView } from "../views/broker.js";
import { brokersView } from "../views/brokers.js";
import { costView } from "../views/cost.js";
import { findingsView } from "../views/findings.js";
import { groupView } from "../views/group.js";
import { groupsView } from "../views/groups.js";
import { overviewView } from "../views/overview.js";
import { partitionView } from "../views/partition.js";
import { topicView } from "../views/topic.js";
import { topicsView } from "../views/topics.js";
import { transactionsView } from "../views/transactions.js";

const TICK_MS = 1_000;
const DRAW_MS = 120;
const PAUSE_TIMES = 4;
const FINDINGS = "brokers/findings";
const SECTIONS = [["", "Overview"], ["topics", "Topics"], ["groups", "Groups"], ["transactions", "Transactions"], ["brokers", "Brokers"], [FINDINGS, "Findings"], ["cost", "Cost"], ["access", "Access"]];

let view = null;
let route = { path: [], query: {} };
let drawTimer = null;
let lastDrawMs = 0;
let drawingMs = 0;
let wasAway = false;

const withLastKnown = makeLastKnown();
const cluster = poll(async (signal) => withLastKnown(await get("api/v1/cluster", { signal })), { everyMs: 3_000, changed });

/** Draws soon: many changes at once are one drawing. A flood of them takes a fifth of the time at most, so that
    clicks and keys are heard on a slow machine too. */
function changed() {
  if (drawTimer !== null) return;
  const pauseMs = Math.max(DRAW_MS, drawingMs * PAUSE_TIMES);
  drawTimer = setTimeout(draw, Math.max(0, lastDrawMs + pauseMs - performance.now()));
}

function draw() {
  clearTimeout(drawTimer);
  drawTimer = null;
  const startedMs = performance.now();
  render(document.getElementById("top"), top());
  const away = awayBecause();
  const main = document.getElementById("main");
  main.classList.toggle("away", away !== null);
  render(main, [stripDefs(), banner(away), view.draw()]);
  render(document.getElementById("bottom"), bottom());
  document.title = `${view.title()} · Tiered`;
  if (wasAway !== (away !== null)) {
    wasAway = away !== null;
    redrawDialog();
    announce(away ?? "The broker answers again.");
  }
  lastDrawMs = performance.now();
  drawingMs = lastDrawMs - startedMs;
}

function open() {
  const before = view;
  const next = parse(location.hash);
  const isSamePage = before !== null && next.path.join("/") === route.path.join("/");
  route = next;
  before?.stop();
  closeDialog();
  const context = { query: route.query, cluster, changed, go: (path, query) => { location.hash = link(path, query); } };
  view = viewOf(route.path, context);
  const main = document.getElementById("main");
  render(main, []);
  draw();
  if (before !== null && !isSamePage) {
    scrollTo(0, 0);
    document.getElementById("title")?.focus({ preventScroll: true });
  }
}

function viewOf([section, ...rest], context) {
  if (section === undefined) return overviewView(context);
  if (section === "topics" && rest.length === 0) return topicsView(context);
  if (section === "topics" && rest[1] === "partitions" && rest.length === 3) return partitionView(context, rest[0], rest[2]);
  if (section === "topics" && rest.length <= 2) return topicView(context, rest[0], rest[1] || "partitions");
  if (section === "groups" && rest.length === 0) return groupsView(context);
  if (section === "groups" && rest.length === 1) return groupView(context, rest[0]);
  if (section === "transactions" && rest.length === 0) return transactionsView(context);
  if (section === "brokers" && rest.length === 0) return brokersView(context);
  if (section === "brokers" && rest.length === 1 && rest[0] === "findings") return findingsView(context);
  if (section === "brokers" && rest.length === 1) return brokerView(context, rest[0]);
  if (section === "access" && rest.length === 0) return accessView(context);
  if (section === "cost" && rest.length === 0) return costView(context);
  return {
    title: () => "Not found",
    draw: () => [h("h1", { tabindex: "-1", id: "title" }, "There is no page at this address"), h("p", null, h("a", { href: "#/" }, "Go to the overview"))],
    stop() {},
  };
}

function top() {
  return [
    h("a", { class: "brand", href: "#/", "aria-label": "Tiered, overview" },
      h("svg", { viewBox: "0 0 26 20", "aria-hidden": "true" },
        h("rect", { class: "upper", x: "11", y: "1", width: "15", height: "8", rx: "1.5" }),
        h("rect", { class: "lower", x: "0", y: "11", width: "18", height: "8", rx: "1.5" })),
      "Tiered"),
    h("nav", { "aria-label": "Sections" },
      h("ul", { class: "nav" }, SECTIONS.map(([path, name]) =>
        h("li", null, h("a", { href: `#/${path}`, "aria-current": sectionOf(route.path) === path ? "page" : null }, name, badge(path)))))),
    h("div", { class: "end" }, h("a", { href: "#/brokers", class: "health", "aria-label": `Cluster: ${health()[1]}` }, mark(...health())), themeSwitch()),
  ];
}

function sectionOf(path) {
  return path.slice(0, 2).join("/") === FINDINGS ? FINDINGS : path[0] || "";
}

/** How much there is to look at in a section, as far as the brokers that answer say. */
function badge(path) {
  const [count, meaning] = toLookAt(cluster.data, path === "transactions" ? "held back" : path === FINDINGS ? "findings" : "");
  return count > 0 && [" ", h("span", { class: "badge", title: meaning }, whole(count), h("span", { class: "unseen" }, ` (${meaning})`))];
}

function health() {
  if (awayBecause() !== null) return ["bad", "No answer"];
  if (cluster.error?.status === 401 || cluster.error?.status === 403) return ["quiet", "Not shown to you"];
  if (cluster.error) return ["bad", cluster.error.status === 0 ? "No answer" : "Unknown"];
  return cluster.data === null ? ["quiet", "Loading"] : healthWord(cluster.data);
}

/** Who is away, once for the whole page: all of them, or some of the cluster's brokers. */
function banner(away) {
  const missing = missingBrokers(cluster.data);
  if (away === null && missing === null) return null;
  return h("div", { class: "banner", key: "banner" }, away !== null
    ? notice("bad", `${away} This page shows what was last known, and nothing can be changed. It tries again every few seconds.`)
    : notice("warn", `${missing} `, h("a", { href: "#/brokers" }, "See Brokers"), "."));
}

function bottom() {
  if (cluster.data === null) return [h("span", null, "Tiered")];
  const { version, cluster_id: id, totals, brokers, answered_by: here } = cluster.data;
  return [
    h("span", null, `Tiered ${version}`),
    h("span", { class: "breaks" }, `cluster ${id}`),
    h("span", null, `${brokers.length > 1 ? `broker ${here} ` : ""}up ${duration(totals.uptime_ms)}`),
    h("a", { href: "openapi.json" }, "OpenAPI"),
    h("a", { href: "metrics" }, "Metrics"),
  ];
}

/** `/` goes to the search field of the page, as in other tools; never while something is typed. */
function shortcut(event) {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  const field = document.querySelector("[data-search]");
  if (field) {
    event.preventDefault();
    field.focus();
  }
}

// The skip link would change the address, which is the route.
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
addEventListener("hashchange", open);
addEventListener("keydown", shortcut);
setInterval(() => { if (!document.hidden) changed(); }, TICK_MS);
applyTheme();
open();
watchBroker(changed);

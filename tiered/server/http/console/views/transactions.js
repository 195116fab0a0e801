// Open transactions: whose they are, since when, when they time out; and the button that aborts one.

import { announce } from "../js/announce.js";
import { get, part, send } from "../js/api.js";
import { attempt, buttons, isTyped, submit, typedName } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { counted, duration, whole } from "../js/format.js";
import { action, head, moment, named, notice, panel, problem, state, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { link } from "../js/router.js";
import { makeTable, plainTable } from "../js/table.js";

const NOTICED_MS = 3_000;

/** What is open in the whole cluster. */
export function openTransactions(changed) {
  return poll((signal) => get("api/v1/transactions?open_for_ms=0", { signal }), { everyMs: 5_000, changed });
}

export function transactionsView({ query, changed }) {
  const open = openTransactions(changed);
  const table = makeTable({
    caption: "Open transactions", noun: "transactions", query, order: "since", changed,
    keyOf: (each) => each.transactional_id,
    words: (each) => `${each.transactional_id} ${each.producer_id}`,
    columns: [
      { id: "id", name: "Transactional id", class: "anywhere", sort: (each) => each.transactional_id, cell: (each) => named(each.transactional_id) },
      { id: "state", name: "State", sort: (each) => each.state, class: "wraps-left", cell: (each) => [stateOf(each), h("div", { class: "narrow soft" }, "open since ", moment(each.started_at_ms))] },
      { id: "since", name: "Open since", right: true, wide: true, sort: (each) => each.started_at_ms, cell: (each) => moment(each.started_at_ms) },
      { id: "timeout", name: "Timeout", right: true, wide: true, sort: (each) => each.timeout_ms, cell: (each) => duration(each.timeout_ms) },
      { id: "partitions", name: "Partitions", right: true, wide: true, sort: (each) => each.partitions, cell: (each) => whole(each.partitions) },
      { id: "producer", name: "Producer", right: true, wide: true, sort: (each) => each.producer_id, cell: (each) => h("span", { class: "number" }, `${each.producer_id}, epoch ${each.producer_epoch}`) },
      { id: "coordinator", name: "Coordinator", right: true, wide: true, sort: (each) => each.coordinator, cell: (each) => String(each.coordinator) },
      { id: "abort", name: "Abort", cell: (each) => each.state === "Ongoing" && action({ "aria-label": `Abort the transaction of ${each.transactional_id}`, on: { click: () => abort(each, open) } }, "Abort") },
    ],
    empty: () => h("p", { class: "empty" }, "No transaction is open."),
  });

  function draw() {
    const found = open.data?.transactions;
    return [
      head({ title: "Open transactions", source: open, subtitle: found && counted(found.length, "transaction") }),
      trouble(open),
      open.data?.silent_brokers.length > 0 && notice("warn", `The transactions that broker ${open.data.silent_brokers.join(", ")} coordinates are missing: it did not answer.`),
      found && found.length > 0 && h("div", { class: "bar", key: "bar" }, table.search("Find a transaction by its id or producer")),
      found && panel("All open transactions", { about: "consumers with isolation.level=read_committed wait for them to end" }, table.draw(found, { stale: open.isStale })),
    ];
  }
  return { title: () => "Open transactions", draw, stop: () => open.stop() };
}

function stateOf({ state: name, started_at_ms: sinceMs, timeout_ms: timeoutMs, partitions }) {
  if (name !== "Ongoing") return state("warn", name === "PrepareCommit" ? "being committed" : "being aborted");
  if (Date.now() - sinceMs > timeoutMs) return state("bad", "ongoing, beyond its timeout");
  return isLong(sinceMs) && partitions > 0 ? state("warn", "ongoing, holds readers back") : state("quiet", "ongoing");
}

/** Whether something has been open for longer than transactions usually are. */
export function isLong(sinceMs) {
  return (sinceMs ?? null) !== null && Date.now() - sinceMs > NOTICED_MS;
}

function abort({ transactional_id: id }, open) {
  const form = { typed: "", problem: null, busy: false };
  openDialog("Abort the transaction", (close, redraw) => {
    const run = () => isTyped(form, id) && attempt(form, redraw, async () => {
      await send("POST", `api/v1/transactions/${part(id)}/abort`);
      close();
      announce(`The transaction of ${id} is aborted.`);
      await open.refresh();
    });
    return [
      notice("bad", "Consumers will never see what this transaction has written. The broker refuses its producer from now on: the application must start a new one."),
      typedName(form, id, "transactional id", redraw),
      form.problem && problem(form.problem),
      buttons(close, submit(form, ["Abort it", "Aborting …"], run, { class: "danger", disabled: !isTyped(form, id) })),
    ];
  });
}

/** Partitions where readers of committed records have waited for longer than transactions usually take. */
export function heldBack(partitions) {
  return partitions.filter(({ held_back_by: holder }) => holder && (holder.since_ms === null || isLong(holder.since_ms)));
}

export function heldBackPanel(held, open) {
  const idOf = (each) => open.data?.transactions.find((one) => one.producer_id === each.held_back_by.producer_id)?.transactional_id;
  return panel("Held back", { about: "consumers with isolation.level=read_committed wait here until a transaction ends" }, plainTable("Held back", [
    { name: "Partition", cell: (each) => String(each.partition) },
    { name: "Since", cell: (each) => moment(each.held_back_by.since_ms) },
    { name: "From offset", right: true, wide: true, cell: (each) => whole(each.last_stable_offset) },
    { name: "Records", right: true, cell: (each) => whole(each.high_watermark - each.last_stable_offset) },
    { name: "Transaction of", cell: (each) => owner(each, idOf(each)) },
  ], held, (each) => each.partition));
}

function owner({ held_back_by: holder }, id) {
  if (id !== undefined) return h("a", { href: link(["transactions"], { q: id }), class: "breaks" }, named(id));
  return h("span", { class: "soft" }, `producer ${holder.producer_id}`);
}

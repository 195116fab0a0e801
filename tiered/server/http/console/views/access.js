// Who may do what, who can log in, and how much each may use: to look at, with the commands that change it.

import { get } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, size, whole } from "../js/format.js";
import { asking, command, head, named, notice, panel, state, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { makeTable } from "../js/table.js";

const PARTS = { user: "user", client_id: "client id", ip: "address" };

export function accessView({ query, changed }) {
  const ask = (what) => poll((signal) => get(`api/v1/${what}`, { signal }), { everyMs: 15_000, changed });
  const [acls, users, quotas] = ["acls", "users", "quotas"].map(ask);
  const rules = makeTable({
    caption: "Access control lists", noun: "rules", query, order: "resource", changed, prefix: "acl-",
    keyOf: (each) => Object.values(each).join(" "),
    words: (each) => Object.values(each).join(" "),
    columns: [
      { id: "resource", name: "Resource", sort: (each) => `${each.resource_type} ${each.resource_name}`, cell: (each) => [
        h("span", { class: "soft" }, `${word(each.resource_type)} `), h("span", { class: "breaks" }, named(each.resource_name)), each.pattern_type === "PREFIXED" && [" ", h("span", { class: "tag" }, "prefix")]] },
      { id: "principal", name: "Principal", sort: (each) => each.principal, class: "breaks", cell: (each) => named(each.principal) },
      { id: "operation", name: "Operation", sort: (each) => each.operation, cell: (each) => word(each.operation) },
      { id: "permission", name: "Permission", sort: (each) => each.permission, cell: (each) => state(each.permission === "DENY" ? "bad" : "good", word(each.permission)) },
      { id: "host", name: "From", wide: true, sort: (each) => each.host, cell: (each) => (each.host === "*" ? "anywhere" : named(each.host)) },
    ],
    empty: () => nothing("There are no rules. One is made with:", "tiered acls add --principal User:ann --consumer --topic orders --group billing"),
  });
  const people = makeTable({
    caption: "Users", noun: "users", query, order: "name", changed, prefix: "user-",
    keyOf: (each) => each.name,
    words: (each) => each.name,
    columns: [
      { id: "name", name: "User", sort: (each) => each.name, cell: (each) => named(each.name) },
      { id: "mechanism", name: "Passwords", cell: (each) => each.credentials.map(({ mechanism, iterations }) => h("div", null, mechanism, h("span", { class: "soft" }, `, ${whole(iterations)} iterations`))) },
    ],
    empty: () => nothing("Nobody has a password here. One is given with:", "tiered users create ann"),
  });
  const limits = makeTable({
    caption: "Quotas", noun: "quotas", query, order: "entity", changed, prefix: "quota-",
    keyOf: (each) => entityOf(each),
    words: entityOf,
    columns: [
      { id: "entity", name: "Of whom", sort: entityOf, cell: (each) => named(entityOf(each)) },
      { id: "values", name: "At the most", cell: (each) => Object.entries(each.values).map(([name, value]) => h("div", null, h("code", null, named(name)), " ", amountOf(name, value))) },
    ],
    empty: () => nothing("Nobody has a quota. One is set with:", "tiered quotas set --user ann producer_byte_rate=1048576"),
  });

  function draw() {
    return [
      head({ title: "Access", source: acls, subtitle: acls.data && subtitle(acls.data) }),
      section("Access control lists", acls, rules, acls.data?.acls, acls.data && !acls.data.is_on && notice("plain", "No authorizer is on (tiered.authorizer): nobody is asked for rights, and no rule counts.")),
      section("Users", users, people, users.data?.users),
      section("Quotas", quotas, limits, quotas.data?.quotas),
    ];
  }
  return { title: () => "Access", draw, stop() { acls.stop(); users.stop(); quotas.stop(); } };
}

function section(title, source, table, rows, about = null) {
  if (!rows) return panel(title, {}, h("div", { class: "panel-body" }, asking(source)));
  return panel(title, { end: rows.length > 10 && table.search(`Find in ${title.toLowerCase()}`) }, about, trouble(source), table.draw(rows, { stale: source.isStale }));
}

function nothing(text, example) {
  return h("div", { class: "empty" }, h("p", null, text), command(example));
}

function subtitle({ acls, super_users: users }) {
  return `${counted(acls.length, "rule")}; ${users.length === 0 ? "no super users" : `super users: ${users.join(", ")}`}`;
}

/** "ALTER_CONFIGS" as "alter configs". */
function word(name) {
  return name.toLowerCase().replaceAll("_", " ");
}

function entityOf({ entity }) {
  return Object.entries(entity).map(([part, name]) => (name === null ? `every other ${PARTS[part]}` : `${PARTS[part]} ${name}`)).join(", ");
}

function amountOf(name, value) {
  if (name.endsWith("byte_rate")) return `${size(value)}/s`;
  return name === "request_percentage" ? `${whole(value)} %` : `${whole(value)}/s`;
}

// Who may do what, who can log in, and how much each may use; and the ways to change it for who may.

import { get } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, size, whole } from "../js/format.js";
import { action, asking, command, head, named, notice, panel, state, trouble } from "../js/parts.js";
import { poll } from "../js/poll.js";
import { makeTable } from "../js/table.js";
import { addRules } from "./add_rules.js";
import { deleteUser } from "./delete_user.js";
import { removeRules } from "./remove_rules.js";
import { ruleWords, word } from "./rule_words.js";
import { setQuota } from "./set_quota.js";
import { createUser, setPassword } from "./user_password.js";

const PARTS = { user: "user", client_id: "client id", ip: "address" };
const FEW_ROWS = 10;

export function accessView({ query, changed }) {
  const ask = (what) => poll((signal) => get(`api/v1/${what}`, { signal }), { everyMs: 15_000, changed });
  const [acls, users, quotas] = ["acls", "users", "quotas"].map(ask);
  const refreshAll = () => Promise.all([acls, users, quotas].map((source) => source.refresh()));
  const you = () => acls.data?.principal ?? null;
  const mayChange = (source) => source.data !== null && !isRefused(source) && source.data.missing_right === null;
  const mayChangeRules = () => mayChange(acls) && acls.data.is_on;
  const mayGivePasswords = () => mayChange(users) && users.data.password_refusal === null;

  const rules = makeTable({
    caption: "Access control lists", noun: "rules", query, order: "resource", changed, prefix: "acl-",
    keyOf: (rule) => Object.values(rule).join(" "),
    words: (rule) => `${Object.values(rule).join(" ")} ${ruleWords(rule)}`,
    columns: [
      { id: "resource", name: "Resource", sort: (rule) => `${rule.resource_type} ${rule.resource_name}`, cell: (rule) => [
        h("span", { class: "soft" }, `${word(rule.resource_type)} `), h("span", { class: "breaks" }, named(rule.resource_name)), rule.pattern_type === "PREFIXED" && [" ", h("span", { class: "tag" }, "prefix")]] },
      { id: "principal", name: "Principal", sort: (rule) => rule.principal, class: "breaks", cell: (rule) => named(rule.principal) },
      { id: "operation", name: "Operation", class: "wraps", sort: (rule) => `${rule.permission} ${rule.operation}`, cell: (rule) => state(rule.permission === "DENY" ? "bad" : "good", `${word(rule.permission)} ${word(rule.operation)}`) },
      { id: "host", name: "From", wide: true, sort: (rule) => rule.host, cell: (rule) => (rule.host === "*" ? "anywhere" : named(rule.host)) },
      { id: "remove", name: "Remove", head: h("span", { class: "unseen" }, "Remove"), right: true, cell: (rule) => mayChangeRules() && action({
        class: "plain", "aria-label": `Remove: ${ruleWords(rule)}`,
        on: { click: () => removeRules(rule, { rules: acls.data.acls, you: you(), changed: refreshAll }) },
      }, h("span", { class: "wide" }, "Remove"), h("span", { class: "narrow boxed", "aria-hidden": "true" }, "✕")) },
    ],
    empty: () => nothing("There are no rules. One is made with:", "tiered acls add --principal User:ann --consumer --topic orders --group billing"),
  });
  const people = makeTable({
    caption: "Users", noun: "users", query, order: "name", changed, prefix: "user-",
    keyOf: (user) => user.name,
    words: (user) => user.name,
    columns: [
      { id: "name", name: "User", sort: (user) => user.name, class: "breaks", cell: (user) => [named(user.name), you() === `User:${user.name}` && [" ", h("span", { class: "tag" }, "you")], user.is_of_brokers && [" ", h("span", { class: "tag" }, "the brokers")]] },
      { id: "mechanism", name: "Passwords", cell: (user) => user.credentials.map(({ mechanism, iterations }) => h("div", null, mechanism, h("span", { class: "soft wide" }, `, ${whole(iterations)} iterations`))) },
      { id: "change", name: "Change", head: h("span", { class: "unseen" }, "Change"), right: true, cell: userActions },
    ],
    empty: () => nothing("Nobody has a password here. One is given with:", "tiered users create ann"),
  });
  const limits = makeTable({
    caption: "Quotas", noun: "quotas", query, order: "entity", changed, prefix: "quota-",
    keyOf: entityOf,
    words: entityOf,
    columns: [
      { id: "entity", name: "Of whom", sort: entityOf, class: "breaks", cell: (quota) => named(entityOf(quota)) },
      { id: "values", name: "At the most", cell: (quota) => Object.entries(quota.values).map(([name, value]) => h("div", null, h("code", null, named(name)), " ", amountOf(name, value))) },
      { id: "change", name: "Change", head: h("span", { class: "unseen" }, "Change"), right: true, cell: (quota) => mayChange(quotas) && action({
        class: "plain", "aria-label": `Change the quota of ${entityOf(quota)}`, on: { click: () => setQuota(quota, { nameOf: entityOf, changed: () => quotas.refresh() }) },
      }, "Change") },
    ],
    empty: () => nothing("Nobody has a quota. One is set with:", "tiered quotas set --user ann producer_byte_rate=1048576"),
  });

  function userActions({ name, is_of_brokers: isOfBrokers }) {
    const isYou = you() === `User:${name}`;
    if (name === "." || name === "..") return h("span", { class: "soft" }, "Only by ", h("code", null, "tiered users")); // A browser takes such a name out of the path.
    return mayChange(users) && h("div", { class: "row-actions" },
      mayGivePasswords() && action({ class: "plain", "aria-label": `Set a password of ${name}`, on: { click: () => setPassword(name, { isYou, isOfBrokers, changed: () => users.refresh() }) } }, "Set a password"),
      action({ class: "plain", "aria-label": `Delete user ${name}`, on: { click: () => deleteUser(name, {
        rules: acls.data?.acls.filter(({ principal }) => principal === `User:${name}`) ?? null,
        quotas: quotas.data?.quotas.filter(({ entity }) => entity.user === name).length ?? 0,
        isYou, isOfBrokers, isSuperUser: Boolean(acls.data?.super_users.includes(`User:${name}`)), mayRemove: mayChangeRules(), changed: refreshAll,
      }) } }, "Delete"));
  }

  function draw() {
    const add = mayChangeRules() && action({ id: "add-rules", on: { click: () => addRules({ users: users.data?.users.map(({ name }) => name) ?? [], you: you(), changed: refreshAll }) } }, "Add rules");
    const create = mayGivePasswords() && action({ id: "create-user", on: { click: () => createUser({ changed: () => users.refresh() }) } }, "Create a user");
    const limit = mayChange(quotas) && action({ id: "set-quota", on: { click: () => setQuota(null, { nameOf: entityOf, changed: () => quotas.refresh() }) } }, "Set a quota");
    return [
      head({ title: "Access", source: acls, subtitle: acls.data && !isRefused(acls) && subtitle(acls.data) }),
      acls.data && !isRefused(acls) && onlyLooking("rules and users", acls.data.missing_right),
      section("Access control lists", acls, rules, acls.data?.acls, add, acls.data && !acls.data.is_on && notice("plain", "No authorizer is on (tiered.authorizer): nobody is asked for rights, and no rule counts.")),
      section("Users", users, people, users.data?.users, create, mayChange(users) && users.data.password_refusal && notice("plain", `No password can be set here: ${users.data.password_refusal}.`)),
      section("Quotas", quotas, limits, quotas.data?.quotas, limit, quotas.data && onlyLooking("quotas", quotas.data.missing_right)),
    ];
  }
  return { title: () => "Access", draw, stop() { acls.stop(); users.stop(); quotas.stop(); } };
}

function section(title, source, table, rows, button, about) {
  if (isRefused(source)) return panel(title, {}, notice("plain", withCode(source.error.message)));
  if (!rows) return panel(title, {}, h("div", { class: "panel-body" }, asking(source)));
  const search = rows.length > FEW_ROWS && h("div", { class: "panel-body", key: "search" }, table.search(`Find in ${title.toLowerCase()}`));
  return panel(title, { end: button }, about, trouble(source), search, table.draw(rows, { stale: source.isStale }));
}

/** The right to see it is missing, now at least: what was known before is not shown any more. */
function isRefused(source) {
  return source.error?.status === 403;
}

/** Why nothing can be changed here, and what an administrator may do about it. */
function onlyLooking(what, missing) {
  return missing && h("div", { class: "notice stack-small", key: `missing ${what}` },
    h("p", null, `You can see ${what} and not change them: ${missing.sentence}.${missing.command ? " An administrator can give it with:" : ""}`),
    missing.command && command(missing.command));
}

/** A sentence of the broker's, its command set as code. */
function withCode(sentence) {
  const [before, code, after] = sentence.split(/`(.*)`/s);
  return code === undefined ? sentence : [before, h("code", { class: "breaks" }, code), after];
}

function nothing(text, example) {
  return h("div", { class: "empty" }, h("p", null, text), command(example));
}

function subtitle({ acls, super_users: users, principal }) {
  return `${counted(acls.length, "rule")}; ${users.length === 0 ? "no super users" : `super users: ${users.join(", ")}`}; you are ${principal}`;
}

function entityOf({ entity }) {
  return Object.entries(entity).map(([part, name]) => (name === null ? `every other ${PARTS[part]}` : `${PARTS[part]} ${name}`)).join(", ");
}

function amountOf(name, value) {
  if (name.endsWith("byte_rate")) return `${size(value)}/s`;
  return name === "request_percentage" ? `${whole(value)} %` : `${whole(value)}/s`;
}

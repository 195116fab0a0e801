// The form for new rules: what is needed most often in one step, and any other rule. Owns the order: what is added was
// shown as sentences, and whoever would shut itself out confirms that.

import { get, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, isTyped, submit, typedName } from "../js/change.js";
import { openDialog, redrawDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { counted } from "../js/format.js";
import { field, notice, problem, radios } from "../js/parts.js";
import { CLUSTER_NAME, EVERYBODY, KINDS, lostWords, ruleWords, word } from "./rule_words.js";

const PURPOSES = [["read", "reading a topic with a consumer group"], ["write", "writing to a topic"], ["other", "something else"]];
const PATTERNS = [["LITERAL", "whole names"], ["PREFIXED", "the beginnings of names"]];
const PERMISSIONS = [["ALLOW", "allow"], ["DENY", "deny"]];
const SHOWN_NAMES = 50;

/** Opens the form; `users` are suggested, `you` is the principal of this page. `changed()` once the rules are there. */
export function addRules({ users, you, changed }) {
  const form = {
    purpose: "read", principal: "User:", topic: "", group: "", transactional: "", pattern: "LITERAL", host: "",
    type: "TOPIC", name: "", operations: [], permission: "ALLOW", lost: [], typed: "", problem: null, busy: false,
  };
  let topics = [];
  suggestTopics().then((names) => { topics = names; redrawDialog(); });
  openDialog("Add rules", (close, redraw) => {
    const set = (name) => (event) => {
      Object.assign(form, { [name]: event.target.value, lost: [], problem: null });
      redraw();
    };
    const choose = (event) => {
      const rest = form.operations.filter((name) => name !== event.target.value);
      Object.assign(form, { operations: event.target.checked ? [...rest, event.target.value] : rest, lost: [] });
      redraw();
    };

    const add = () => attempt(form, redraw, async () => {
      const wrong = objection(form);
      if (wrong) throw new Error(wrong);
      const acls = rulesOf(form);
      if (form.lost.length === 0) {
        form.lost = (await send("POST", "api/v1/acls", { acls, validate_only: true })).own_rights_lost;
        if (form.lost.length > 0) {
          form.busy = false;
          redraw();
          document.getElementById("typed-name")?.focus();
          return;
        }
      }
      await send("POST", "api/v1/acls", { acls });
      close();
      announce(`${counted(acls.length, "rule")} ${acls.length === 1 ? "is" : "are"} added.`);
      await changed();
    });

    const text = (name, label, options = {}) => field(`rule-${name}`, label, h("input", {
      id: `rule-${name}`, value: form[name], spellcheck: "false", autocapitalize: "off", list: options.list, placeholder: options.placeholder,
      "aria-describedby": options.hint ? `rule-${name}-hint` : null, on: { input: set(name) },
    }), { hint: options.hint });
    const isWarned = form.lost.length > 0;
    const rules = objection(form) === null ? rulesOf(form) : [];
    return [
      radios("purpose", PURPOSES, form.purpose, set("purpose"), { legend: "What for", choices: true }),
      suggestions("known-users", [...users.map((name) => `User:${name}`), EVERYBODY], form.principal),
      suggestions("known-topics", topics, form.purpose === "other" ? form.name : form.topic),
      text("principal", "Who", { list: "known-users", hint: "A user as rules name it, such as User:ann. User:* is everybody." }),
      form.purpose === "other" ? anyRule(form, { set, choose, text }) : [
        text("topic", "Topic", { list: "known-topics", hint: "* is every topic." }),
        form.purpose === "read" && text("group", "Consumer group", { hint: "* is every group." }),
        form.purpose === "write" && text("transactional", "Transactional id", { hint: "Empty, unless the producer writes in transactions." }),
      ],
      (form.purpose !== "other" || form.type !== "CLUSTER") && radios("pattern", PATTERNS, form.pattern, set("pattern"), { legend: "What is given above are", choices: true }),
      text("host", "From the address", { placeholder: "anywhere", hint: "An IP address. Empty: anywhere." }),
      rules.length > 0 && shownRules(rules, `${counted(rules.length, "rule")} would be added`),
      isDeny(form) && notice("warn", "A rule that denies wins over all rules that allow. Only super users may do it all the same."),
      isWarned && notice("bad", lostWords(you, form.lost)),
      isWarned && typedName(form, you, "principal", redraw),
      form.problem && problem(form.problem),
      buttons(close, submit(form, [isWarned ? `Add ${rules.length === 1 ? "it" : "them"} all the same` : rules.length === 1 ? "Add the rule" : "Add the rules", "Adding …"], add,
        isWarned ? { class: "danger", disabled: !isTyped(form, you) } : {})),
    ];
  });
}

/** The rules in words, each a sentence. */
export function shownRules(rules, title) {
  return h("div", { class: "stack-small", key: "rules" },
    h("p", { class: "label", id: "rules-title" }, title),
    h("ul", { class: "limited sentences", tabindex: "0", "aria-labelledby": "rules-title" }, rules.map((rule) => h("li", { class: "breaks" }, ruleWords(rule)))));
}

function anyRule(form, { set, choose, text }) {
  const operations = ["ALL", ...KINDS.find(([id]) => id === form.type)[2]];
  return [
    radios("permission", PERMISSIONS, form.permission, set("permission"), { legend: "Permission", choices: true }),
    field("rule-type", "What kind of resource", h("select", { id: "rule-type", value: form.type, on: { change: (event) => { form.operations = []; set("type")(event); } } },
      KINDS.map(([id, name]) => h("option", { value: id }, name)))),
    form.type !== "CLUSTER" && text("name", "Its name", { list: form.type === "TOPIC" ? "known-topics" : null, hint: "* is every one." }),
    h("fieldset", { class: "choices", key: "operations" }, h("legend", { class: "label" }, "Operations"),
      h("div", { class: "several" }, operations.map((name) => h("label", { key: name },
        h("input", { type: "checkbox", value: name, checked: form.operations.includes(name), on: { change: choose } }), name === "ALL" ? "everything" : word(name))))),
  ];
}

function isDeny(form) {
  return form.purpose === "other" && form.permission === "DENY";
}

/** What is still missing, as a sentence; null when the form is complete. The broker has the last word. */
function objection(form) {
  if (!/^[^:]+:./.test(form.principal.trim())) return "Say who: User: and a name, such as User:ann.";
  if (form.purpose !== "other" && form.topic.trim() === "") return "Name the topic.";
  if (form.purpose === "read" && form.group.trim() === "") return "Name the consumer group.";
  if (form.purpose !== "other") return null;
  if (form.type !== "CLUSTER" && form.name.trim() === "") return "Give the name of the resource; * is every one.";
  return form.operations.length === 0 ? "Choose at least one operation." : null;
}

/** As `tiered acls add --consumer` and `--producer` make them, or as the form says. */
function rulesOf(form) {
  const rules = (type, name, operations) => operations.map((operation) => ({
    resource_type: type, resource_name: name.trim(), pattern_type: type === "CLUSTER" ? "LITERAL" : form.pattern, principal: form.principal.trim(),
    host: form.host.trim() || "*", operation, permission: isDeny(form) ? "DENY" : "ALLOW",
  }));
  if (form.purpose === "read") return [...rules("TOPIC", form.topic, ["READ", "DESCRIBE"]), ...rules("GROUP", form.group, ["READ"])];
  if (form.purpose === "other") return rules(form.type, form.type === "CLUSTER" ? CLUSTER_NAME : form.name, form.operations);
  const ids = form.transactional.trim() === "" ? [] : rules("TRANSACTIONAL_ID", form.transactional, ["WRITE", "DESCRIBE"]);
  return [...rules("TOPIC", form.topic, ["WRITE", "DESCRIBE", "CREATE"]), ...ids];
}

function suggestions(id, names, typed) {
  return h("datalist", { id, key: id }, names.filter((name) => name.includes(typed)).slice(0, SHOWN_NAMES).map((name) => h("option", { value: name, key: name })));
}

/** Names of topics to choose from; none where they cannot be had, for they can be typed. */
async function suggestTopics() {
  try {
    const { topics } = await get("api/v1/topics", { query: { partitions: "false" } });
    return topics.map(({ topic }) => topic);
  } catch {
    return [];
  }
}

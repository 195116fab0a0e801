// Sets and removes the quotas of one entity: a user, a client id, an address, or all others of a kind.

import { send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, submit } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { size } from "../js/format.js";
import { field, problem } from "../js/parts.js";

const KINDS = [["user", "one user"], ["user-rest", "every other user"], ["client_id", "one client id"], ["client_id-rest", "every other client id"], ["ip", "one address"], ["ip-rest", "every other address"]];
const OF_CLIENTS = [
  ["producer_byte_rate", "Written, in bytes a second"], ["consumer_byte_rate", "Read, in bytes a second"],
  ["request_percentage", "Time of the brokers' threads, in percent"], ["controller_mutation_rate", "Partitions created and deleted, a second"],
];
const OF_ADDRESSES = [["connection_creation_rate", "New connections a second"]];

/** Opens the form for `quota` (its entity and values), or for a new one. `nameOf` says an entity in words. */
export function setQuota(quota, { nameOf, changed }) {
  const before = quota?.values ?? {};
  const form = { kind: "user", name: "", values: Object.fromEntries(Object.entries(before).map(([name, value]) => [name, String(value)])), problem: null, busy: false };
  openDialog(quota ? "Change the quota" : "Set a quota", (close, redraw) => {
    const set = (name) => (event) => { Object.assign(form, { [name]: event.target.value, problem: null }); redraw(); };
    const run = (body, text) => attempt(form, redraw, async () => {
      const entity = quota?.entity ?? entityOf(form);
      await send("PATCH", "api/v1/quotas", { entity, ...body(entity) });
      close();
      document.getElementById("set-quota")?.focus(); // The button that opened this may go with its quota.
      announce(text);
      await changed();
    });
    const change = () => run((entity) => changesOf(form, before, entity), "The quota is set.");
    const remove = () => run(() => ({ reset: Object.keys(before) }), "The quota is removed.");
    const isOne = !form.kind.endsWith("-rest");
    const isAddress = quota ? "ip" in quota.entity : form.kind.startsWith("ip");
    return [
      h("p", { class: "soft", key: "counts" }, "A quota counts at once, and on each broker by itself. Where a field is empty, the next wider quota counts, if there is one."),
      quota ? h("p", { key: "whose" }, "Of ", h("strong", { class: "breaks" }, nameOf(quota)), ".") : [
        field("quota-kind", "Of whom", h("select", { id: "quota-kind", value: form.kind, "data-first": true, on: { change: set("kind") } }, KINDS.map(([id, title]) => h("option", { value: id }, title)))),
        isOne && field("quota-name", isAddress ? "The address" : "The name", h("input", { id: "quota-name", value: form.name, spellcheck: "false", autocapitalize: "off", on: { input: set("name") } })),
      ],
      (isAddress ? OF_ADDRESSES : OF_CLIENTS).map(([name, title]) => {
        const bytes = name.endsWith("byte_rate") && Number(form.values[name]) >= 1024 && `: ${size(Number(form.values[name]))} a second`;
        return field(`quota-${name}`, title, h("input", { id: `quota-${name}`, inputmode: "decimal", value: form.values[name] ?? "", placeholder: "no limit", "aria-describedby": `quota-${name}-hint`,
          on: { input: (event) => { form.values[name] = event.target.value; redraw(); } } }), { hint: [h("code", null, name), bytes] });
      }),
      form.problem && problem(form.problem),
      buttons(close, quota && h("button", { type: "button", class: "danger", disabled: form.busy, key: "remove", on: { click: remove } }, "Remove the quota"),
        submit(form, [quota ? "Change the quota" : "Set the quota", "Setting …"], change, { key: "set" })),
    ];
  });
}

function entityOf({ kind, name }) {
  const [part, rest] = kind.split("-");
  if (rest) return { [part]: null };
  if (name.trim() === "") throw new Error(part === "ip" ? "Give the address." : "Give the name.");
  return { [part]: name.trim() };
}

/** What differs from before. Throws what is wrong with the form. */
function changesOf({ values }, before, entity) {
  const changes = { set: {}, reset: [] };
  for (const [name] of "ip" in entity ? OF_ADDRESSES : OF_CLIENTS) {
    const text = (values[name] ?? "").trim();
    if (text === "" && name in before) changes.reset.push(name);
    if (text === "" || Number(text) === before[name]) continue;
    if (!(Number(text) > 0)) throw new Error(`${name} is a number above 0; leave it empty for none.`);
    changes.set[name] = Number(text);
  }
  if (changes.reset.length === 0 && Object.keys(changes.set).length === 0) throw new Error("Nothing differs: give a number, or cancel.");
  return changes;
}

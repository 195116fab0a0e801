// The form that changes one config of a topic: what it means, what holds, what would hold.

import { part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, submit } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { action, field, problem } from "../js/parts.js";
import { meaning, ownOf, valueOf } from "./configs.js";

export function changeConfig(topic, config, { changed }) {
  const form = { value: config.is_sensitive ? "" : config.value ?? "", problem: null, busy: false };

  openDialog(`Change ${config.name}`, (close, redraw) => {
    const apply = (body, done) => attempt(form, redraw, async () => {
      await send("PATCH", `api/v1/topics/${part(topic)}/configs`, body);
      close();
      announce(done);
      await changed();
    });
    const set = (event) => { form.value = event.target.value; redraw(); };
    const choices = choicesOf(config);
    const isChanged = form.value !== (config.value ?? "");

    return [
      h("p", null, config.documentation),
      h("dl", { class: "pairs" },
        h("dt", null, "Topic"), h("dd", { class: "mono" }, topic),
        h("dt", null, "Current value"), h("dd", { class: "mono" }, valueOf(config), meaning(config)),
        h("dt", null, "Source"), h("dd", null, ownOf(config) ? "set for this topic" : "the broker's value")),
      field("config-value", "New value", choices
        ? h("select", { id: "config-value", value: form.value, "data-first": true, "aria-describedby": "config-value-hint", on: { change: set } }, choices.map((each) => h("option", { value: each }, each)))
        : h("input", { id: "config-value", value: form.value, spellcheck: "false", "data-first": true, "aria-describedby": "config-value-hint", "aria-invalid": form.problem ? "true" : null, on: { input: set } }),
      { hint: isChanged
        ? ["From ", h("span", { class: "mono" }, valueOf(config)), " to ", h("span", { class: "mono" }, form.value || "(empty)"), meaning({ ...config, value: form.value }), "."]
        : ["Nothing has changed yet."] }),
      form.problem && problem(form.problem),
      h("div", { class: "buttons" },
        ownOf(config) && action({ class: "start", disabled: form.busy,
          on: { click: () => apply({ reset: [config.name] }, `${config.name} has the broker's value again.`) } }, "Back to the broker's value"),
        h("button", { type: "button", on: { click: close } }, "Cancel"),
        submit(form, ["Change it", "Changing …"], () => apply({ set: { [config.name]: form.value } }, `${config.name} is now ${form.value}.`), { disabled: !isChanged })),
    ];
  });
}

/** The values that there are, where they can be counted; what holds now is one of them in any case. */
function choicesOf({ type, value, allowed = [] }) {
  if (type === "BOOLEAN") return ["true", "false"];
  if (allowed.length === 0) return null;
  // Of a list, each subset: cleanup.policy has two members.
  const values = type === "LIST" ? allowed.reduce((found, each) => [...found, ...found.map((some) => (some ? `${some},${each}` : each))], [""]).filter(Boolean) : allowed;
  return values.includes(value) ? values : [value ?? "", ...values];
}

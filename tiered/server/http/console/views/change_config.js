// The form that changes one config of a topic: what it means, what holds, what would hold.

import { part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { action, problem } from "../js/parts.js";
import { meaning, ownOf, valueOf } from "./configs.js";

export function changeConfig(topic, config, { changed }) {
  const form = { value: config.is_sensitive ? "" : config.value ?? "", problem: null, busy: false };

  openDialog(`Change ${config.name}`, (close, redraw) => {
    async function apply(body, done) {
      form.problem = null;
      form.busy = true;
      redraw();
      try {
        await send("PATCH", `api/v1/topics/${part(topic)}/configs`, body);
        close();
        announce(done);
        await changed();
      } catch (error) {
        form.problem = error.message;
        form.busy = false;
        redraw();
      }
    }
    const choices = choicesOf(config);
    const isChanged = form.value !== (config.value ?? "");

    return [
      h("p", null, config.documentation),
      h("dl", { class: "pairs" },
        h("dt", null, "Topic"), h("dd", { class: "mono" }, topic),
        h("dt", null, "Now"), h("dd", { class: "mono" }, valueOf(config), meaning(config)),
        h("dt", null, "Set"), h("dd", null, ownOf(config) ? "for this topic" : "not here: the value is the broker's")),
      h("div", { class: "field" },
        h("label", { for: "config-value" }, "New value"),
        choices
          ? h("select", { id: "config-value", value: form.value, "data-first": true, "aria-describedby": "config-meaning", on: { change: (event) => { form.value = event.target.value; redraw(); } } },
            choices.map((each) => h("option", { value: each }, each)))
          : h("input", { id: "config-value", value: form.value, spellcheck: "false", "data-first": true, "aria-describedby": "config-meaning",
            "aria-invalid": form.problem ? "true" : null, on: { input: (event) => { form.value = event.target.value; redraw(); } } }),
        h("p", { class: "hint", id: "config-meaning" }, isChanged
          ? ["From ", h("span", { class: "mono" }, valueOf(config)), " to ", h("span", { class: "mono" }, form.value || "(empty)"), meaning({ ...config, value: form.value }), "."]
          : ["Nothing is changed yet."])),
      form.problem && problem(form.problem),
      h("div", { class: "buttons" },
        ownOf(config) && action({ class: "start", disabled: form.busy,
          on: { click: () => apply({ reset: [config.name] }, `${config.name} is the broker's again.`) } }, "Back to the broker's value"),
        h("button", { type: "button", on: { click: close } }, "Cancel"),
        action({ type: "submit", class: "primary", disabled: form.busy || !isChanged,
          on: { click: (event) => { event.preventDefault(); apply({ set: { [config.name]: form.value } }, `${config.name} is now ${form.value}.`); } } },
        form.busy ? "Changing …" : "Change it")),
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

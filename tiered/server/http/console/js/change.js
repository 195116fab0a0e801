// How a dialog carries out a change: what goes wrong stands in the form, and what cannot be taken back is done once its
// name was typed.

import { h } from "./dom.js";

/** Runs `change` of a form with `busy` and `problem`. */
export async function attempt(form, redraw, change) {
  form.problem = null;
  form.busy = true;
  redraw();
  try {
    await change();
  } catch (error) {
    form.problem = error.message;
    form.busy = false;
    redraw();
  }
}

/** The field that asks for `name`; `form.typed` is what was typed so far. */
export function typedName(form, name, what, redraw) {
  return h("div", { class: "field", key: "typed" },
    h("label", { for: "typed-name" }, `Type the name of the ${what} to confirm: `, h("span", { class: "mono" }, name)),
    h("input", { id: "typed-name", value: form.typed, spellcheck: "false", autocapitalize: "off", on: { input: (event) => { form.typed = event.target.value; redraw(); } } }));
}

export function isTyped(form, name) {
  return form.typed === name;
}

export function buttons(close, ...others) {
  return h("div", { class: "buttons" }, h("button", { type: "button", on: { click: close } }, "Cancel"), others);
}

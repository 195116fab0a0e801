// How a dialog carries out a change: what goes wrong stands in the form, and what cannot be taken back is done once its
// name was typed.

import { h } from "./dom.js";
import { action, field } from "./parts.js";

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
  return field("typed-name", [`Type the name of the ${what} to confirm: `, h("span", { class: "mono" }, name)],
    h("input", { id: "typed-name", value: form.typed, spellcheck: "false", autocapitalize: "off", on: { input: (event) => { form.typed = event.target.value; redraw(); } } }));
}

export function isTyped(form, name) {
  return form.typed === name;
}

export function buttons(close, ...others) {
  return h("div", { class: "buttons" }, h("button", { type: "button", on: { click: close } }, "Cancel"), others);
}

/** The button that carries the form out: `words` are its name, and what it says meanwhile. */
export function submit(form, words, run, { disabled = false, ...props } = {}) {
  return action({ type: "submit", class: "primary", ...props, disabled: form.busy || disabled,
    on: { click: (event) => { event.preventDefault(); run(); } } }, words[form.busy ? 1 : 0]);
}

/** The numbers in "0, 3"; null for nothing, which means all. Throws what is wrong with them. */
export function numbersIn(text) {
  if (text.trim() === "") return null;
  const found = text.split(",").map((each) => Number(each.trim() || "x"));
  if (!found.every((each) => Number.isInteger(each) && each >= 0)) throw new Error("Partitions are whole numbers with commas between them, such as 0, 3.");
  return found;
}

export function offsetIn(text) {
  const number = Number(text);
  if (text.trim() === "" || !Number.isSafeInteger(number) || number < 0) throw new Error("An offset is a whole number, 0 or greater.");
  return number;
}

export function timeIn(text) {
  const ms = new Date(text).getTime();
  if (Number.isNaN(ms) || ms < 0) throw new Error("Give a date and a time.");
  return ms;
}

/** [name, value] of each line. Throws for one without both. */
export function pairsIn(text) {
  return text.split("\n").filter((line) => line.trim() !== "").map((line) => {
    const equals = line.indexOf("=");
    if (equals < 1) throw new Error(`“${line.trim().slice(0, 60)}” is not of the form name=value.`);
    return [line.slice(0, equals).trim(), line.slice(equals + 1)];
  });
}

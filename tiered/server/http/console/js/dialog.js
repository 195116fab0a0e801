// Dialogs: one at a time, modal, with the focus inside and given back afterwards. Owns the element.

import { h, render } from "./dom.js";

let current = null;

/** Opens a dialog that `draw(close, redraw)` fills. `close()` gives the focus back to where it was. */
export function openDialog(title, draw) {
  closeDialog();
  const before = document.activeElement;
  const element = document.createElement("dialog");
  element.setAttribute("aria-labelledby", "dialog-title");
  document.body.append(element);
  const redraw = () => {
    if (current?.element !== element) return;
    render(element, [h("form", { novalidate: true, autocomplete: "off", on: { submit: (event) => event.preventDefault() } },
      h("h2", { id: "dialog-title" }, title), draw(closeDialog, redraw))]);
  };
  current = { element, before, redraw };
  element.addEventListener("close", closeDialog);
  redraw();
  element.showModal();
  element.querySelector("[data-first]")?.focus();
}

/** Draws the open dialog again, if there is one: something that it shows has changed elsewhere. */
export function redrawDialog() {
  current?.redraw();
}

export function closeDialog() {
  if (current === null) return;
  const { element, before } = current;
  current = null;
  if (element.open) element.close();
  element.remove();
  if (before?.isConnected) before.focus();
}

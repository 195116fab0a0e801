// Light, dark, or as the system has it. Owns the choice and where it is kept: in this browser.

import { h } from "./dom.js";

const KEPT_AS = "tiered.theme";
const CHOICES = [["system", "System"], ["light", "Light"], ["dark", "Dark"]];

export function chosenTheme() {
  try {
    const kept = localStorage.getItem(KEPT_AS);
    return CHOICES.some(([value]) => value === kept) ? kept : "system";
  } catch {
    return "system";
  }
}

export function applyTheme(choice = chosenTheme()) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
}

export function themeSwitch() {
  const chosen = chosenTheme();
  return h("label", { class: "theme-label" },
    h("span", { class: "unseen" }, "Colours"),
    h("select", { class: "theme", id: "theme", value: chosen, on: { change: (event) => choose(event.target.value) } },
      CHOICES.map(([value, name]) => h("option", { value }, name))));
}

function choose(choice) {
  try {
    localStorage.setItem(KEPT_AS, choice);
  } catch {
    // A browser that keeps nothing still shows what was chosen until the page is left.
  }
  applyTheme(choice);
}

// The form for a new topic. Owns what is checked before the broker is asked; the broker has the last word.

import { send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { action, fieldProblem, problem } from "../js/parts.js";

const NAME = /^[a-zA-Z0-9._-]{1,249}$/;

/** Opens the form; `created(name)` once the topic is there. Replicas are asked for where there are several brokers. */
export function createTopic({ created, brokers = 1 }) {
  const form = { name: "", partitions: "", replicas: "", retention: "", configs: "", problems: {}, busy: false };

  openDialog("Create a topic", (close, redraw) => {
    const set = (name) => (event) => { form[name] = event.target.value; };

    async function submit() {
      form.problems = {};
      const body = bodyOf(form);
      if (Object.keys(form.problems).length > 0) {
        redraw();
        document.querySelector("dialog [aria-invalid]")?.focus();
        return;
      }
      form.busy = true;
      redraw();
      try {
        await send("POST", "api/v1/topics", body);
        close();
        announce(`Topic ${body.name} is created.`);
        created(body.name);
      } catch (error) {
        form.problems = { whole: error.message };
        form.busy = false;
        redraw();
      }
    }

    return [
      entry("name", "Name", form, set, { hint: "Letters, digits, dots, underscores and hyphens.", first: true }),
      entry("partitions", "Partitions", form, set, { hint: "How many consumers of one group can share the work. Empty: the broker's default.", mode: "numeric" }),
      brokers > 1 && entry("replicas", "Replicas", form, set, { hint: "How many brokers hold each partition. Empty: the broker's default.", mode: "numeric" }),
      entry("retention", "Keep records for (days)", form, set, { hint: "Over both tiers. Empty: the broker's default.", mode: "decimal" }),
      h("div", { class: "field" },
        h("label", { for: "new-configs" }, "Other configs"),
        h("textarea", { id: "new-configs", rows: "3", spellcheck: "false", placeholder: "local.retention.ms=3600000", value: form.configs,
          "aria-describedby": "new-configs-hint", "aria-invalid": form.problems.configs ? "true" : null, on: { input: set("configs") } }),
        h("p", { class: "hint", id: "new-configs-hint" }, "One name=value a line."),
        form.problems.configs && fieldProblem(form.problems.configs)),
      form.problems.whole && problem(form.problems.whole),
      h("div", { class: "buttons" },
        h("button", { type: "button", on: { click: close } }, "Cancel"),
        action({ type: "submit", class: "primary", disabled: form.busy, on: { click: (event) => { event.preventDefault(); submit(); } } },
          form.busy ? "Creating …" : "Create the topic")),
    ];
  });
}

function entry(id, name, form, set, { hint, mode = null, first = false }) {
  const found = form.problems[id];
  return h("div", { class: "field" },
    h("label", { for: `new-${id}` }, name),
    h("input", { id: `new-${id}`, value: form[id], inputmode: mode, spellcheck: "false", "data-first": first,
      "aria-describedby": `new-${id}-hint`, "aria-invalid": found ? "true" : null, on: { input: set(id) } }),
    h("p", { class: "hint", id: `new-${id}-hint` }, hint),
    found && fieldProblem(found));
}

function bodyOf(form) {
  const body = { name: form.name.trim(), configs: {} };
  if (!NAME.test(body.name)) form.problems.name = "A name has 1 to 249 letters, digits, dots, underscores or hyphens.";
  if (form.partitions.trim() !== "") {
    body.partitions = Number(form.partitions);
    if (!Number.isInteger(body.partitions) || body.partitions < 1) form.problems.partitions = "Give a whole number from 1 on.";
  }
  if (form.replicas.trim() !== "") {
    body.replication_factor = Number(form.replicas);
    if (!Number.isInteger(body.replication_factor) || body.replication_factor < 1) form.problems.replicas = "Give a whole number from 1 on.";
  }
  if (form.retention.trim() !== "") {
    const days = Number(form.retention);
    if (!(days > 0)) form.problems.retention = "Give a number of days above 0.";
    body.configs["retention.ms"] = String(Math.round(days * 86_400_000));
  }
  for (const line of form.configs.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const equals = line.indexOf("=");
    if (equals < 1) form.problems.configs = `“${line.slice(0, 60)}” has no name=value.`;
    else body.configs[line.slice(0, equals).trim()] = line.slice(equals + 1).trim();
  }
  return body;
}

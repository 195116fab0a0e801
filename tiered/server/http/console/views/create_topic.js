// The form for a new topic. Owns what is checked before the broker is asked; the broker has the last word.

import { send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, pairsIn, submit } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { field, problem } from "../js/parts.js";

const NAME = /^[a-zA-Z0-9._-]{1,249}$/;

/** Opens the form; `created(name)` once the topic is there. Replicas are asked for where there are several brokers. */
export function createTopic({ created, brokers = 1 }) {
  const form = { name: "", partitions: "", replicas: "", retention: "", configs: "", problems: {}, problem: null, busy: false };

  openDialog("Create a topic", (close, redraw) => {
    const set = (name) => (event) => { form[name] = event.target.value; };

    function create() {
      form.problems = {};
      const body = bodyOf(form);
      if (Object.keys(form.problems).length > 0) {
        redraw();
        document.querySelector("dialog [aria-invalid]")?.focus();
        return;
      }
      attempt(form, redraw, async () => {
        await send("POST", "api/v1/topics", body);
        close();
        announce(`Topic ${body.name} is created.`);
        created(body.name);
      });
    }

    return [
      entry("name", "Name", form, set, { hint: "Letters, digits, dots, underscores and hyphens.", first: true }),
      entry("partitions", "Partitions", form, set, { hint: "How many consumers of one group can share the work. Empty: the broker's default.", mode: "numeric" }),
      brokers > 1 && entry("replicas", "Replicas", form, set, { hint: "How many brokers hold each partition. Empty: the broker's default.", mode: "numeric" }),
      entry("retention", "Keep records for (days)", form, set, { hint: "On disks and in the object store together. Empty: the broker's default.", mode: "decimal" }),
      field("new-configs", "Other configs", h("textarea", { id: "new-configs", rows: "3", spellcheck: "false", placeholder: "local.retention.ms=3600000", value: form.configs,
        "aria-describedby": "new-configs-hint", "aria-invalid": form.problems.configs ? "true" : null, on: { input: set("configs") } }),
      { hint: "One name=value per line.", wrong: form.problems.configs }),
      form.problem && problem(form.problem),
      buttons(close, submit(form, ["Create the topic", "Creating …"], create)),
    ];
  });
}

function entry(id, name, form, set, { hint, mode = null, first = false }) {
  const wrong = form.problems[id];
  return field(`new-${id}`, name, h("input", { id: `new-${id}`, value: form[id], inputmode: mode, spellcheck: "false", "data-first": first,
    "aria-describedby": `new-${id}-hint`, "aria-invalid": wrong ? "true" : null, on: { input: set(id) } }), { hint, wrong });
}

function bodyOf(form) {
  const body = { name: form.name.trim(), configs: {} };
  if (!NAME.test(body.name)) form.problems.name = "A name has 1 to 249 letters, digits, dots, underscores or hyphens.";
  for (const [id, name] of [["partitions", "partitions"], ["replicas", "replication_factor"]]) {
    if (form[id].trim() === "") continue;
    body[name] = Number(form[id]);
    if (!Number.isInteger(body[name]) || body[name] < 1) form.problems[id] = "Give a whole number, 1 or greater.";
  }
  if (form.retention.trim() !== "") {
    const days = Number(form.retention);
    if (!(days > 0)) form.problems.retention = "Give a number of days above 0.";
    body.configs["retention.ms"] = String(Math.round(days * 86_400_000));
  }
  try {
    for (const [name, value] of pairsIn(form.configs)) body.configs[name] = value.trim();
  } catch (error) {
    form.problems.configs = error.message;
  }
  return body;
}

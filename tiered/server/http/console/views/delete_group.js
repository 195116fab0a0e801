// Deletes an idle group once its name was typed.

import { part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, isTyped, typedName } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { counted } from "../js/format.js";
import { action, notice, problem } from "../js/parts.js";

export function deleteGroup(id, data, gone) {
  const form = { typed: "", problem: null, busy: false };
  openDialog("Delete the group", (close, redraw) => {
    const submit = () => attempt(form, redraw, async () => {
      await send("DELETE", `api/v1/groups/${part(id)}`);
      close();
      announce(`Group ${id} is deleted.`);
      gone();
    });
    return [
      notice("bad", `This forgets ${counted(data.offsets.length, "committed offset")}. A consumer that joins under this name begins where its auto.offset.reset says. It cannot be undone.`),
      typedName(form, id, "group", redraw),
      form.problem && problem(form.problem),
      buttons(close, action({ type: "submit", class: "danger", disabled: form.busy || !isTyped(form, id), on: { click: (event) => { event.preventDefault(); submit(); } } }, form.busy ? "Deleting …" : "Delete the group")),
    ];
  });
}

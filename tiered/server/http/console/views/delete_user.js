// Deletes a user once its name was typed, and says what of it stays.

import { part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, isTyped, submit, typedName } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { counted } from "../js/format.js";
import { notice, problem } from "../js/parts.js";
import { shownRules } from "./add_rules.js";
import { BROKERS_OWN } from "./user_password.js";
import { MOST_RULES } from "./remove_rules.js";
import { wordsOf } from "./rule_words.js";

/** `rules` are those about the user, null where they cannot be seen; `quotas` is how many it has. Who deletes itself can
 * remove nothing afterwards, and may need its rules to do so. */
export function deleteUser(name, { rules, quotas, isYou, isOfBrokers, isSuperUser, mayRemove, changed }) {
  const form = { withRules: false, typed: "", problem: null, busy: false };
  openDialog("Delete the user", (close, redraw) => {
    const remove = () => isTyped(form, name) && attempt(form, redraw, async () => {
      await send("DELETE", `api/v1/users/${part(name)}`);
      let text = `User ${name} is deleted.`;
      if (form.withRules) {
        try {
          const { acls } = await send("POST", "api/v1/acls/remove", { acls: rules.slice(0, MOST_RULES).map(wordsOf) });
          text = `User ${name} is deleted, and ${counted(acls.length, "rule")} with it.`;
        } catch (error) {
          await changed();
          throw new Error(`The user is deleted, and its rules are still there. ${error.message}`);
        }
      }
      close();
      document.getElementById("create-user")?.focus(); // The button that opened this goes with its user.
      announce(text);
      await changed();
    });
    return [
      notice("bad", "The user cannot log in any more, and its open connections end. Its password cannot be had back."),
      isYou && notice("bad", "You are this user: this page cannot be opened with its name any more."),
      isOfBrokers && notice("bad", BROKERS_OWN),
      isSuperUser && notice("warn", "Its name stands in super.users: whoever gets a user of this name again may do everything."),
      rules !== null && rules.length > 0 && shownRules(rules, `${counted(rules.length, "rule")} about it would stay, and count for a new user of this name`),
      rules !== null && rules.length > 0 && mayRemove && !isYou && h("label", { class: "check", key: "rules-too" }, h("input", { type: "checkbox", checked: form.withRules, on: { change: (event) => { form.withRules = event.target.checked; } } }),
        rules.length > MOST_RULES ? `Remove the first ${MOST_RULES} of them too` : rules.length === 1 ? "Remove this rule too" : "Remove these rules too"),
      isYou && rules !== null && rules.length > 0 && h("p", { key: "others" }, "Another administrator has to remove them: once your user is deleted you cannot log in here."),
      rules === null && h("p", { key: "unknown" }, "Rules about it stay; you may not see which there are."),
      quotas > 0 && h("p", { key: "quotas" }, `${counted(quotas, "quota")} of it would stay.`),
      typedName(form, name, "user", redraw),
      form.problem && problem(form.problem),
      buttons(close, submit(form, ["Delete the user", "Deleting …"], remove, { class: "danger", disabled: !isTyped(form, name) })),
    ];
  });
}

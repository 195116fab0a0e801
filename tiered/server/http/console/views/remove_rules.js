// Removes one rule, or all of its principal. Owns the order: what is removed was shown, and whoever would shut itself out
// confirms that.

import { send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, isTyped, submit, typedName } from "../js/change.js";
import { openDialog, redrawDialog } from "../js/dialog.js";
import { counted } from "../js/format.js";
import { notice, problem, radios } from "../js/parts.js";
import { shownRules } from "./add_rules.js";
import { lostWords, wordsOf } from "./rule_words.js";

/** As many as the broker removes at once. */
export const MOST_RULES = 100;

function ruleKey(rule) {
  return JSON.stringify(wordsOf(rule));
}

/** Opens the dialog for `rule`, which is one of `rules`. `you` is the principal of this page. */
export function removeRules(rule, { rules, you, changed }) {
  const others = rules.filter((other) => other.principal === rule.principal && ruleKey(other) !== ruleKey(rule));
  const ofPrincipal = [rule, ...others].slice(0, MOST_RULES);
  const isCut = others.length >= MOST_RULES;
  const form = { which: "one", lost: null, typed: "", problem: null, busy: false };
  const chosen = () => (form.which === "one" ? [rule] : ofPrincipal).map(wordsOf);
  const look = () => attempt(form, redrawDialog, async () => {
    form.lost = null;
    const which = form.which;
    const { own_rights_lost: lost } = await send("POST", "api/v1/acls/remove", { acls: chosen(), validate_only: true });
    if (form.which !== which) return;
    Object.assign(form, { lost, busy: false });
    redrawDialog();
  });
  openDialog("Remove rules", (close, redraw) => {
    const remove = () => attempt(form, redraw, async () => {
      const { acls } = await send("POST", "api/v1/acls/remove", { acls: chosen() });
      close();
      document.getElementById("add-rules")?.focus(); // The button that opened this goes with its rule.
      announce(`${counted(acls.length, "rule")} ${acls.length === 1 ? "is" : "are"} removed.`);
      await changed();
    });
    const choices = [["one", "this rule"], ["all", isCut ? `${MOST_RULES} of the ${counted(others.length + 1, "rule")} of ${rule.principal}, this one among them` : `all ${counted(ofPrincipal.length, "rule")} of ${rule.principal}`]];
    const acls = chosen();
    const isWarned = form.lost !== null && form.lost.length > 0;
    return [
      ofPrincipal.length > 1 && radios("which", choices, form.which, (event) => { form.which = event.target.value; look(); }, { legend: "Which", choices: true }),
      shownRules(acls, `${counted(acls.length, "rule")} would go`),
      acls.some(({ permission }) => permission === "DENY") && notice("warn", "Of these some deny: without them it is allowed again, where another rule allows it."),
      rule.principal === you && !isWarned && notice("warn", `You are ${you}: this is about yourself.`),
      isWarned && notice("bad", lostWords(you, form.lost)),
      isWarned && typedName(form, you, "principal", redraw),
      form.problem && problem(form.problem),
      buttons(close, submit(form, [acls.length === 1 ? "Remove the rule" : "Remove the rules", form.lost === null ? "Asking …" : "Removing …"], remove,
        { class: "danger", disabled: form.lost === null || (isWarned && !isTyped(form, you)) })),
    ];
  });
  look();
}

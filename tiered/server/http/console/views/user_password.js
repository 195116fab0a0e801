// Creates a user, or gives one a new password: typed twice, or made here and shown once. Owns the password while the
// dialog is open: it goes into the body of one request, and stands in no address and no message.

import { part, send } from "../js/api.js";
import { announce } from "../js/announce.js";
import { attempt, buttons, isTyped, submit, typedName } from "../js/change.js";
import { openDialog } from "../js/dialog.js";
import { h } from "../js/dom.js";
import { copy, field, notice, problem, radios } from "../js/parts.js";

const SOURCES = [["made", "made by this page, and shown once"], ["typed", "typed by me"]];
const MECHANISMS = [["SCRAM-SHA-512", "SCRAM-SHA-512"], ["SCRAM-SHA-256", "SCRAM-SHA-256"], ["both", "both"]];
/** Without those that look alike. */
const LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const MADE_CHARS = 24;
const MAX_BYTES = 1024;
export const BROKERS_OWN = "The brokers log in to each other as this user (tiered.sasl.inter.broker.username). After this change replication ends, until the user and the password in the settings of every broker are right again.";

export function createUser({ changed }) {
  open("Create a user", { name: null, button: ["Create the user", "Creating …"], changed,
    about: "The user can log in at every broker, and may do nothing before a rule says so, where an authorizer is on.",
    done: (name) => `User ${name} is created.`,
    run: (name, body) => send("POST", "api/v1/users", { name, ...body }) });
}

/** `isYou`: this page is logged in as this user; `isOfBrokers`: the brokers log in to each other as this user. */
export function setPassword(name, { isYou, isOfBrokers, changed }) {
  open("Set a password", { name, isYou, isOfBrokers, button: ["Set the password", "Setting …"], changed,
    about: ["User ", h("strong", { class: "mono breaks" }, name), ": the former password no longer works, and open connections of the user end."],
    done: () => `User ${name} has a new password.`,
    run: (_, body) => send("PUT", `api/v1/users/${part(name)}/password`, body) });
}

function open(title, { name, about, button, done, run, changed, isYou = false, isOfBrokers = false }) {
  const form = { typed: "", name: name ?? "", source: "made", password: "", again: "", mechanism: MECHANISMS[0][0], shown: null, problem: null, busy: false };
  openDialog(title, (close, redraw) => {
    const set = (id) => (event) => { Object.assign(form, { [id]: event.target.value, problem: null }); redraw(); };
    const give = () => attempt(form, redraw, async () => {
      if (name === null) form.name = form.name.trim();
      if (form.name === "") throw new Error("Give the user a name.");
      const password = form.source === "made" ? madePassword() : checked(form);
      const mechanisms = form.mechanism === "both" ? MECHANISMS.slice(0, 2).map(([id]) => id) : [form.mechanism];
      await run(form.name, name === null ? { password, mechanisms } : { password });
      Object.assign(form, { password: "", again: "", busy: false });
      announce(done(form.name));
      if (form.source === "made") {
        form.shown = password;
        redraw();
        document.getElementById("made-password")?.focus();
      } else close();
      await changed();
    });
    if (form.shown !== null) return madeOnce(form, done(form.name), close);
    return [
      h("p", { key: "about" }, about),
      isOfBrokers && notice("bad", BROKERS_OWN),
      isYou && notice("warn", "You are this user: your browser asks for the new password with the next request."),
      name === null && field("user-name", "Name", h("input", { id: "user-name", value: form.name, maxlength: 255, spellcheck: "false", autocapitalize: "off", "data-first": true,
        "aria-describedby": "user-name-hint", on: { input: set("name") } }), { hint: "Rules name it User: and this name." }),
      radios("source", SOURCES, form.source, set("source"), { legend: "The password is", choices: true }),
      form.source === "typed" && [
        field("user-password", "Password", passwordInput("user-password", form.password, set("password"))),
        field("user-again", "The same again", passwordInput("user-again", form.again, set("again"))),
      ],
      name === null && radios("mechanism", MECHANISMS, form.mechanism, set("mechanism"), { legend: "It logs in by", choices: true }),
      name === null && h("p", { class: "soft", key: "plain" }, "A login by PLAIN, or over HTTP, works with either."),
      isOfBrokers && typedName(form, name, "user", redraw),
      form.problem && problem(form.problem),
      buttons(close, submit(form, button, give, isOfBrokers ? { class: "danger", disabled: !isTyped(form, name) } : {})),
    ];
  });
}

function madeOnce(form, done, close) {
  return [
    notice("plain", `${done} Its password is shown here once, and kept nowhere: copy it now.`),
    field("made-password", "Password", h("input", { id: "made-password", class: "mono", readonly: true, value: form.shown, autocomplete: "off", on: { focus: (event) => event.target.select() } })),
    h("div", { class: "buttons", key: "end" },
      h("button", { type: "button", on: { click: () => copy(form.shown) } }, "Copy the password"),
      h("button", { type: "button", class: "primary", on: { click: close } }, "Done")),
  ];
}

function passwordInput(id, value, change) {
  return h("input", { id, type: "password", autocomplete: "new-password", value, on: { input: change } });
}

/** The password that was typed. Throws what is wrong with it, and nothing of it. */
function checked({ password, again }) {
  const bytes = new TextEncoder().encode(password).length;
  if (bytes === 0) throw new Error("Type the password.");
  if (bytes > MAX_BYTES) throw new Error(`A password has ${MAX_BYTES} bytes at the most.`);
  if (password !== again) throw new Error("The two passwords differ: type them again.");
  return password;
}

/** 139 random bits. Bytes beyond the last whole multiple are thrown away, so that all letters are equally likely. */
function madePassword() {
  let password = "";
  while (password.length < MADE_CHARS) {
    for (const byte of crypto.getRandomValues(new Uint8Array(MADE_CHARS))) {
      if (byte < 256 - (256 % LETTERS.length) && password.length < MADE_CHARS) password += LETTERS[byte % LETTERS.length];
    }
  }
  return password;
}

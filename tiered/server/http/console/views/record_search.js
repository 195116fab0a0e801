// The search of a topic's records: what to look for and where, how far it is, and going on. Owns its words.

import { awayBecause, sentence } from "../js/api.js";
import { h } from "../js/dom.js";
import { counted, size, whole } from "../js/format.js";
import { action, field, mark, notice, problem } from "../js/parts.js";
import { HINTS } from "../js/record_filter.js";
import { WAYS, hasMore } from "../js/search.js";
import { plainTable } from "../js/table.js";

const ENDS = {
  running: ["quiet", "Searching"], cancelled: ["quiet", "Cancelled"], failed: ["bad", "Broken off"],
  done: ["good", "Searched to the end"], limit: ["quiet", "Stopped at as many as one search gives"], bounds: ["quiet", "Stopped at what one search reads"],
  time: ["good", "Searched up to the first records of a later time"],
  trouble: ["warn", "Not everything could be read"], refused: ["bad", "Refused"], topic_deleted: ["bad", "The topic was deleted"], shutting_down: ["warn", "The broker stops"],
};

/** The fields of the form; `set(name)` notes what is typed. */
export function searchFields(form, set, changed) {
  return [
    field("way", "Look for", h("select", { id: "way", value: form.way, on: { change: (event) => { form.way = event.target.value; changed(); } } },
      WAYS.map(([id, title]) => h("option", { value: id }, title)))),
    form.way !== "none" && field("wanted", "What to look for",
      h("input", { id: "wanted", type: "search", value: form.wanted, spellcheck: "false", "data-search": true, title: HINTS[form.way] ?? null, placeholder: HINTS[form.way] ?? "", on: { input: set("wanted") } }), { grow: true }),
    h("div", { class: "bar", key: "times" }, [["since", "From"], ["until", "To"]].map(([name, title]) =>
      field(name, `${title}, in your zone`, h("input", { id: name, type: "datetime-local", step: "1", value: form[name], on: { input: set(name) } })))),
  ];
}

/** How far it is, in words and as a bar, and what can be done; `buttons` stand beside. */
export function searchBar(search, buttons) {
  if (search === null) return h("p", { class: "soft", key: "status" }, "The broker looks through all partitions, in both tiers, and says how far it is.");
  const [kind, word] = ENDS[search.state === "ended" ? search.reason : search.state] ?? ["quiet", search.reason];
  const all = search.places.reduce((sum, place) => sum + place.all, 0);
  const looked = search.places.reduce((sum, place) => sum + place.looked, 0);
  return h("div", { key: "status", class: "tail-status" },
    h("div", { class: "bar centered" },
      mark(kind, word),
      search.state !== "refused" && h("progress", { max: "1", value: String(all === 0 ? Number(search.reason === "done") : looked / all), "aria-label": "How far the search is" }),
      search.state !== "refused" && h("span", { class: "soft" }, `${counted(search.matches, "record")} found${search.matches > search.records.length ? `, the newest ${whole(search.records.length)} are kept` : ""}; ${whole(looked)} of ${counted(all, "offset")} looked at: ${counted(search.looked, "record")}, ${size(search.bytes)} read`),
      h("span", { class: "end" },
        search.state === "running" && h("button", { type: "button", id: "cancel", on: { click: () => search.cancel() } }, "Cancel"),
        hasMore(search) && action({ id: "go-on", on: { click: () => search.goOn() } }, "Go on from here"),
        buttons)),
    search.error && awayBecause() === null && problem(search.error.message),
    search.troubles.map(({ partition, message }) => notice("warn", `Partition ${partition}: ${sentence(message)}`)),
    search.places.length > 1 && h("details", { key: "by-partition" }, h("summary", null, "By partition"),
      h("div", { class: "limited" }, plainTable("Looked at, by partition", [
        { name: "Partition", cell: (place) => String(place.partition) },
        { name: "Offsets looked at", right: true, cell: (place) => whole(place.looked) },
        { name: "Of", right: true, cell: (place) => whole(place.all) },
      ], search.places, (place) => place.partition))));
}

export function emptySearchText(search) {
  if (search === null) return "Nothing was looked for yet.";
  if (search.state === "running") return "Nothing was found so far.";
  if (search.state === "refused") return "Nothing was looked for.";
  return hasMore(search) ? "Nothing was found so far: go on from here, or look for something else." : "No record is like that.";
}

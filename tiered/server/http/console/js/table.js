// Tables of any length: searched, sorted and shown a page at a time, so that thousands of rows stay quick.
// Owns search, order and page, and keeps them in the address. Rows are values; columns say how to show them.

import { h } from "./dom.js";
import { whole } from "./format.js";
import { refine } from "./router.js";

const PAGE_ROWS = 100;

/** Column: { id, name, cell(row), sort?(row), right?, wide?, head?, title?, class? }. `words(row)` is what the search looks at. */
export function makeTable({ caption, columns, keyOf, words = null, query = {}, order, changed, empty, noun = "rows", prefix = "" }) {
  const view = {
    search: query[`${prefix}q`] || "",
    order: query[`${prefix}sort`] || order,
    page: Math.max(1, Number.parseInt(query[`${prefix}page`], 10) || 1),
  };

  function move(changes) {
    Object.assign(view, changes);
    refine({
      [`${prefix}q`]: view.search,
      [`${prefix}sort`]: view.order === order ? null : view.order,
      [`${prefix}page`]: view.page === 1 ? null : view.page,
    });
    changed();
  }

  function arranged(rows) {
    const wanted = view.search.trim().toLowerCase();
    const found = wanted && words ? rows.filter((row) => words(row).toLowerCase().includes(wanted)) : [...rows];
    const falling = view.order.startsWith("-");
    const column = columns.find((each) => each.id === view.order.replace(/^-/, ""));
    if (column?.sort) {
      found.sort((a, b) => compare(column.sort(a), column.sort(b)) * (falling ? -1 : 1));
    }
    return found;
  }

  return {
    /** The search field, where there is one. */
    search(label) {
      return h("div", { class: "field grow" },
        h("label", { for: `${prefix}search` }, label),
        h("input", { id: `${prefix}search`, type: "search", autocomplete: "off", spellcheck: "false", value: view.search, "data-search": true, placeholder: "Press / to search",
          on: { input: (event) => move({ search: event.target.value, page: 1 }) } }));
    },

    draw(rows, { stale = false } = {}) {
      if (rows.length === 0) return empty();
      const found = arranged(rows);
      const pages = Math.max(1, Math.ceil(found.length / PAGE_ROWS));
      const page = Math.min(view.page, pages);
      const shown = found.slice((page - 1) * PAGE_ROWS, page * PAGE_ROWS);
      if (found.length === 0) {
        return h("div", { class: "empty" },
          h("p", null, `None of the ${whole(rows.length)} ${noun} contains “${view.search}”.`),
          h("button", { type: "button", on: { click: () => move({ search: "", page: 1 }) } }, "Show all"));
      }
      return [
        drawn(caption, columns.map(header), columns, shown, keyOf, stale),
        found.length > PAGE_ROWS && h("nav", { class: "pager", "aria-label": `Pages of ${caption}`, key: "pager" },
          h("span", { class: "number" },
            `${whole((page - 1) * PAGE_ROWS + 1)}–${whole(Math.min(page * PAGE_ROWS, found.length))} of ${whole(found.length)}`),
          h("div", { class: "end" },
            h("button", { type: "button", disabled: page === 1, on: { click: () => move({ page: page - 1 }) } }, "Previous"),
            h("button", { type: "button", disabled: page === pages, on: { click: () => move({ page: page + 1 }) } }, "Next"))),
      ];
    },
  };

  function header(column) {
    const sorted = view.order.replace(/^-/, "") === column.id;
    const falling = view.order.startsWith("-");
    if (!column.sort) return h("th", { scope: "col", class: classes(column), title: column.title }, column.head || column.name);
    return h("th", { scope: "col", class: classes(column), title: column.title, "aria-sort": sorted ? (falling ? "descending" : "ascending") : null },
      h("button", { type: "button", on: { click: () => move({ order: sorted && !falling ? `-${column.id}` : column.id, page: 1 }) } },
        column.name, h("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (falling ? "↓" : "↑") : "")));
  }
}

/** A short table without search or order. */
export function plainTable(caption, columns, rows, keyOf) {
  return drawn(caption, columns.map((column) => h("th", { scope: "col", class: classes(column), title: column.title }, column.name)), columns, rows, keyOf);
}

function drawn(caption, headers, columns, rows, keyOf, stale = false) {
  return h("div", { class: `scroll${stale ? " stale-data" : ""}`, tabindex: "0", role: "region", "aria-label": `${caption}, table`, key: "scroll" },
    h("table", null,
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, headers)),
      h("tbody", null, rows.map((row) => h("tr", { key: keyOf(row) },
        columns.map((column, place) =>
          h(place === 0 ? "th" : "td", { scope: place === 0 ? "row" : null, class: classes(column) }, column.cell(row))))))));
}

function classes(column) {
  return [column.right && "right", column.wide && "wide", column.class].filter(Boolean).join(" ") || null;
}

function compare(a, b) {
  if (typeof a === "string" && typeof b === "string") return a.localeCompare(b, "en", { numeric: true });
  return (a ?? -Infinity) - (b ?? -Infinity);
}

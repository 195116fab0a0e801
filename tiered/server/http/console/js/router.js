// The address after #, and what it means. Owns its form: every view, page, search and order can be linked.

/** `#/topics/a%2Fb/records?from=latest` as { path: ["topics", "a/b", "records"], query: { from: "latest" } }. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const pieces = path.split("/").filter((piece) => piece !== "");
  return { path: pieces.map(decoded), query: Object.fromEntries(new URLSearchParams(query)) };
}

/** The other way round; empty and null values are left out. */
export function link(path, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(wanted).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Changes the query of the present address without a step in the history. */
export function refine(changes) {
  const { path, query } = parse(location.hash);
  history.replaceState(null, "", link(path, { ...query, ...changes }));
}

function decoded(piece) {
  try {
    return decodeURIComponent(piece);
  } catch {
    return piece;
  }
}

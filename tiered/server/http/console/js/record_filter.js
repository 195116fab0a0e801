// Which records of a live tail are shown: by value or header, as text, regular expression or field of JSON. Pure. Records
// that lie in the log already are sought by the broker (search.js).

export const WAYS = [["none", "all records"], ["text", "value has text"], ["regex", "value matches"], ["json", "JSON field"], ["header", "header"]];
export const HINTS = {
  text: "Letters count as they are written.",
  regex: "A regular expression, such as ^ERR(OR)?\\b.",
  json: "A field, or a field and its value, such as items.0.sku = a1.",
  header: "A header, or a header and its value, such as source = web.",
};

/** A function that says whether a record is shown; null for all of them. Throws what is wrong with `wanted`. */
export function filterOf(way, wanted) {
  if (way === "none" || wanted.trim() === "") return null;
  if (way === "text") return (record) => record.value?.text?.includes(wanted) ?? false;
  if (way === "regex") {
    const expression = expressionOf(wanted);
    return (record) => expression.test(record.value?.text ?? "");
  }
  const [name, value] = pairOf(wanted);
  if (way === "header") return (record) => record.headers.some((each) => each.key === name && (value === null || each.value?.text === value));
  return (record) => hasField(record.value?.text, name.split("."), value);
}

function expressionOf(wanted) {
  try {
    return new RegExp(wanted, "u");
  } catch (error) {
    throw new Error(`This is no regular expression: ${error.message}.`);
  }
}

/** [name, value] of "name = value"; the value is null where there is none. */
export function pairOf(wanted) {
  const equals = wanted.indexOf("=");
  return equals < 0 ? [wanted.trim(), null] : [wanted.slice(0, equals).trim(), wanted.slice(equals + 1).trim()];
}

function hasField(text, path, value) {
  let found;
  try {
    // Numbers as they were written, where the browser tells: they may have more digits than JavaScript keeps.
    found = JSON.parse(text ?? "", (_, each, context) => (typeof each === "number" && context?.source ? context.source : each));
  } catch {
    return false;
  }
  for (const step of path) {
    if (found === null || typeof found !== "object" || !Object.hasOwn(found, step)) return false;
    found = found[step];
  }
  return value === null || (typeof found === "object" && found !== null ? JSON.stringify(found) : String(found)) === value;
}

// JSON indented without being read into numbers, so that every digit is shown as it was sent. Pure.

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]/g;

/** [{ kind, text }] of `text`, indented; null when it is no JSON. Kinds: string, name, number, word, mark. */
export function jsonTokens(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const found = [];
  let depth = 0;
  const tokens = text.match(TOKEN) || [];
  const newline = () => found.push({ kind: "mark", text: `\n${"  ".repeat(depth)}` });
  tokens.forEach((token, place) => {
    const next = tokens[place + 1];
    const before = tokens[place - 1];
    if (token === "{" || token === "[") {
      found.push({ kind: "mark", text: token });
      depth += 1;
      if (next !== "}" && next !== "]") newline();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") newline();
      found.push({ kind: "mark", text: token });
    } else if (token === ",") {
      found.push({ kind: "mark", text: token });
      newline();
    } else if (token === ":") {
      found.push({ kind: "mark", text: ": " });
    } else {
      found.push({ kind: kindOf(token, next), text: token });
    }
  });
  return found;
}

function kindOf(token, next) {
  if (token.startsWith('"')) return next === ":" ? "name" : "string";
  return /^[-\d]/.test(token) ? "number" : "word";
}

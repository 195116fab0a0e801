// A rule of an access control list as a sentence, and the kinds of resources that there are. Pure.

export const KINDS = [
  ["TOPIC", "topic", ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]],
  ["GROUP", "consumer group", ["READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]],
  ["CLUSTER", "cluster", ["CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"]],
  ["TRANSACTIONAL_ID", "transactional id", ["WRITE", "DESCRIBE", "TWO_PHASE_COMMIT"]],
  ["DELEGATION_TOKEN", "delegation token", ["DESCRIBE"]],
  ["USER", "user", ["CREATE_TOKENS", "DESCRIBE_TOKENS"]],
];
const VERBS = {
  ALL: "do everything to", WRITE: "write to", DESCRIBE_CONFIGS: "see the configs of", ALTER_CONFIGS: "change the configs of", CLUSTER_ACTION: "act as a broker of",
  IDEMPOTENT_WRITE: "write idempotently to", CREATE_TOKENS: "create tokens of", DESCRIBE_TOKENS: "see tokens of", TWO_PHASE_COMMIT: "commit in two phases with",
  "GROUP READ": "read with", "TRANSACTIONAL_ID WRITE": "write with", "CLUSTER CREATE": "create topics in",
};
export const CLUSTER_NAME = "kafka-cluster";
export const EVERYBODY = "User:*";

/** "ALTER_CONFIGS" as "alter configs". */
export function word(name) {
  return name.toLowerCase().replaceAll("_", " ");
}

/** "User:ann may read every topic that begins with logs-, from 10.0.0.7". */
export function ruleWords(rule) {
  const who = rule.principal === EVERYBODY ? "Everybody" : rule.principal;
  const verb = VERBS[`${rule.resource_type} ${rule.operation}`] ?? VERBS[rule.operation] ?? word(rule.operation);
  const from = rule.host === "*" ? "" : `, from ${rule.host}`;
  return `${who} ${rule.permission === "DENY" ? "may not" : "may"} ${verb} ${resourceWords(rule)}${from}`;
}

/** What the reader of the page, who is `you`, could no longer do. */
export function lostWords(you, operations) {
  const end = operations.includes("ALTER") ? " You could not take this back." : "";
  return `After this, you (${you}) may no longer do this to the cluster: ${operations.map(word).join(", ")}.${end}`;
}

function resourceWords({ resource_type: type, resource_name: name, pattern_type: pattern }) {
  const kind = KINDS.find(([id]) => id === type)?.[1] ?? word(type);
  if (type === "CLUSTER") return "the cluster";
  if (pattern === "PREFIXED") return `every ${kind} that begins with ${name}`;
  return name === "*" ? `every ${kind}` : `${kind} ${name}`;
}

/** The seven words by which the broker knows a rule. */
export function wordsOf({ resource_type, resource_name, pattern_type, principal, host, operation, permission }) {
  return { resource_type, resource_name, pattern_type, principal, host, operation, permission };
}

// How the cluster is, in one word and in sentences, from what /api/v1/cluster says. Pure. Owns what counts as trouble.

import { ago, counted, duration, size, whole } from "./format.js";

const LATE_UPLOAD_MS = 10 * 60_000;
const HANGING_MS = 60_000;
const MANY = 5;
const COLD_WAITS = "Records on disk are served; those that are only in the store cannot be read, and uploads wait on disk.";
// Each word of `store_trouble`: what to show, and what to do.
const STORE_TROUBLE = {
  away: ["No answer", `${COLD_WAITS} Look at the store and at the network to it.`],
  slow: ["Slow", "It asks for fewer requests, and reads and uploads take longer. Lower tiered.upload.concurrency if this lasts."],
  expired: ["Session expired", `${COLD_WAITS} Renew the credentials where they come from; no restart is needed.`],
  credentials: ["Wrong credentials", `${COLD_WAITS} Correct the credentials where they come from; no restart is needed.`],
  skewed: ["Clock is off", `${COLD_WAITS} Set the broker's clock: it is too far off for signed requests.`],
  denied: ["Refuses", `${COLD_WAITS} Check the bucket's name and what these credentials may do.`],
  locked: ["Object locked", "A lock or a retention rule of the bucket keeps an object that is to be deleted. Wait for its end, or lift it."],
  archived: ["Object archived", "A rule of the bucket has moved an object to an archive, and it cannot be read. Restore it, and end that rule."],
  full: ["Full", "It takes no more objects, and uploads wait on disk. Free room in it, or raise its quota."],
  no_bucket: ["No bucket", `${COLD_WAITS} Create the bucket, or name another one with --store.`],
};
const KINDS = ["good", "quiet", "warn", "bad"];
// Findings of these kinds mean that records cannot be read, or are on disks alone for good. The others can wait.
export const GRAVE = new Set(["missing", "wrong-size", "damaged", "catalogue", "stuck-upload"]);

/** [kind, word] for the head of the page: that of the worst check. */
export function healthWord(data) {
  const checks = checksOf(data);
  const [, [serving]] = checks[0];
  if (serving === "bad") return ["bad", "Not serving"];
  const worst = Math.max(...checks.map(([, [kind]]) => KINDS.indexOf(kind)));
  if (KINDS[worst] === "bad") return ["bad", "Trouble"];
  return KINDS[worst] === "warn" ? ["warn", "Degraded"] : ["good", "Healthy"];
}

/** [count, meaning] of findings, or of partitions that are held back. */
export function toLookAt(data, what) {
  const reports = (data?.brokers || []).map((broker) => broker.health).filter(Boolean);
  const sum = (read) => reports.reduce((total, report) => total + read(report), 0);
  if (what === "findings") {
    const count = sum((report) => Object.values(report.findings || {}).reduce((total, number) => total + number, 0));
    return [count, counted(count, "finding")];
  }
  const count = what === "held back" ? sum((report) => report.held_back_partitions || 0) : 0;
  return [count, `readers are held back in ${counted(count, "partition")}`];
}

/** A sentence on the brokers that are out of service or do not answer; null where there are none. */
export function missingBrokers(data) {
  const missing = (data?.brokers || []).filter(isMissing);
  if (missing.length === 0) return null;
  const lacking = whatLacks(missing.filter((broker) => broker.health === null));
  if (missing.length === 1) return `Broker ${missing[0].broker_id} ${whatIsWrong(missing[0])}.${lacking}`;
  return `Out of service or without an answer: broker ${missing.map(shown).join(", ")}.${lacking}`;
}

/** What pages miss of brokers that were not heard, and how old what they show of them is. */
function whatLacks(unheard) {
  if (unheard.length === 0) return "";
  const known = unheard.filter((broker) => broker.last);
  const oldest = known.length === 0 ? "" : `, or ${known.length === 1 ? "" : "up to "}${duration(Date.now() - Math.min(...known.map((broker) => broker.last.atMs)))} old`;
  return ` What ${unheard.length === 1 ? "it alone knows" : "they alone know"} is missing here${oldest}.`;
}

function isMissing(broker) {
  return broker.state !== "live";
}

function shown(broker) {
  return `${broker.broker_id} (${brokerState(broker)[1]})`;
}

/** [kind, word] of one broker. */
export function brokerState(broker) {
  if (broker.state === "fenced") return ["bad", "fenced"];
  if (broker.state === "silent") return broker.heartbeat_is_late ? ["bad", "no answer"] : ["warn", "no answer over HTTP"];
  if (broker.health === null) return ["warn", "slow to answer"];
  return broker.serving ? ["good", "live"] : ["bad", "not serving"];
}

/** When a broker's newest heartbeat was; while the broker is in service, as of the answer that says so. */
export function heartbeat({ state, heartbeat_age_ms: ageMs, heartbeatAtMs: atMs }) {
  return state === "live" ? ago(0, ageMs) : ago(atMs);
}

/** What is wrong with a broker, to stand behind its name; null where it answers. */
export function whatIsWrong(broker) {
  const { heartbeatAtMs: atMs } = broker;
  if (broker.state === "fenced") return `is fenced: out of service${atMs === null ? "" : `, with its last heartbeat ${ago(atMs)}`}`;
  if (broker.state === "silent" && broker.heartbeat_is_late) return `does not answer: its last heartbeat was ${ago(atMs)}, and two questions over HTTP had no answer`;
  if (broker.state === "silent") return `is in service${atMs === null ? "" : `, with a heartbeat ${ago(atMs)}`}, but two questions over HTTP had no answer`;
  return broker.health === null ? "lives, but answers slowly" : null;
}

/** What to do about it. */
export function whatToDo(broker) {
  if (broker.state === "fenced") return "Its partitions are led by others where a replica in sync is left. Start it, or look at its log.";
  if (broker.state === "silent" && broker.heartbeat_is_late) return "Its process hangs, or its machine or network is down. Others take over its partitions once its session has ended (broker.session.timeout.ms).";
  if (broker.state === "silent") return "Kafka clients may well be served. Check that the other brokers reach its --http address.";
  return "Its machine may be overloaded. The next answer may be in time.";
}

/** What an operator looks at: [name, [kind, word], sentence, names of partitions]. */
export function checksOf(data) {
  const summary = combined(data);
  const several = data.brokers.length > 1;
  const checks = [["Serving", ...serving(summary, several)]];
  if (several) checks.push(["Brokers", ...brokers(summary, data)], ["Replicas", ...replicas(summary)]);
  const answers = [
    ["Disk", summary.full.length ? ["bad", "Almost full"] : ["good", "Has room"], summary.full.length ? `Producing is refused${byBrokers(summary.full, several)} until there is room: free space, or lower local.retention.bytes.` : "Producing is accepted."],
    ["Partitions", ...partitions(summary)],
    ["Uploads", ...uploads(summary)],
    ["Transactions", ...transactions(summary)],
    ["Findings", ...findings(summary)],
    ["Checkpoints", summary.stale ? ["quiet", `${whole(summary.stale)} to write`] : ["good", "Up to date"], summary.stale ? "The bucket does not describe the newest state yet; it is written every few seconds." : "The bucket alone says what is in it."]];
  // What the others say is not all: a mark of "good" would be too much.
  checks.push(...answers.map(([name, [kind, word], text]) => (kind === "good" && summary.isPartial
    ? [name, ["quiet", word], `Of the brokers that answer: ${text}`] : [name, [kind, word], text])));
  checks.push(["Metadata store", ...metadata(summary, several)], ["Object store", ...objectStore(summary)]);
  return checks;
}

/** What all brokers that answered say, as one. */
function combined({ brokers, health }) {
  const answers = brokers.map((broker) => broker.health).filter(Boolean);
  const several = brokers.length > 1;
  const sum = (name) => answers.reduce((total, answer) => total + (answer[name] || 0), 0);
  const where = (holds) => answers.filter(holds).map((answer) => answer.broker);
  return {
    ...health,
    missing: brokers.filter(isMissing),
    isPartial: answers.length < brokers.length,
    answering: answers.length,
    idle: where((answer) => !answer.serving || answer.fenced),
    failed: answers.flatMap((answer) => answer.failed_partitions.map((name) => (several ? `${name} on broker ${answer.broker}` : name))),
    full: where((answer) => answer.disk_full),
    waiting: sum("upload_backlog_bytes"),
    waitingMs: Math.max(0, ...answers.map((answer) => answer.upload_backlog_age_ms || 0)),
    diskOnlyMs: Math.max(0, ...answers.map((answer) => answer.disk_only_age_ms || 0)),
    heldBack: sum("held_back_partitions"),
    heldBackMs: Math.max(0, ...answers.map((answer) => answer.held_back_ms || 0)),
    stale: sum("stale_checkpoints"),
    findings: answers.flatMap((answer) => Object.entries(answer.findings || {})).filter(([, count]) => count > 0),
    withoutSql: where((answer) => answer.sql_away),
    wentBack: answers.some((answer) => answer.metadata_went_back),
    storeTrouble: answers.map((answer) => answer.store_trouble).find(Boolean),
    withoutStore: where((answer) => answer.store_trouble),
    foreign: answers.map((answer) => answer.store_belongs_to).find(Boolean) || "",
  };
}

/** " by broker 2", where there are others. */
function byBrokers(numbers, several) {
  return several ? ` by broker ${numbers.join(", ")}` : "";
}

function serving({ idle, wentBack, answering }, several) {
  if (wentBack) return [["bad", "No"], "Clients are refused: the metadata store has lost commits, see below."];
  if (idle.length === 0) return [["good", "Yes"], "Produce and fetch are answered."];
  const subject = !several ? "The broker refuses" : idle.length === 1 ? `Broker ${idle[0]} refuses` : `Brokers ${idle.join(", ")} refuse`;
  return [idle.length < answering ? ["warn", "In part"] : ["bad", "No"], `${subject} clients: it starts, stops, is fenced, or has lost its disk. Its log says which.`];
}

function metadata({ wentBack, withoutSql, answering }, several) {
  if (wentBack) return [["bad", "Lost commits"], "It no longer has what brokers have seen in it, so nothing is served. The log of a broker says what to do."];
  if (withoutSql.length === 0) return [["good", "Reachable"], "Topics, offsets and segments are recorded."];
  const all = withoutSql.length === answering;
  return [["bad", all ? "No answer" : `No answer to broker ${withoutSql.join(", ")}`], `Produce and fetch go on; topics cannot be changed${several ? ", nobody can be elected" : ""}, and offset commits fail until it answers. Look at the database and at the network to it.`];
}

function objectStore({ foreign, storeTrouble, withoutStore, answering }) {
  if (foreign) return [["bad", "Another cluster's"], `It belongs to cluster ${foreign}: nothing is uploaded, and disks fill. The log says what to do.`];
  if (!storeTrouble) return [["good", "Reachable"], "Uploads and cold reads work."];
  const [word, text] = STORE_TROUBLE[storeTrouble] || ["Trouble", `${COLD_WAITS} The broker's log says what to do.`];
  return [["warn", word], withoutStore.length === answering ? text : `At broker ${withoutStore.join(", ")}: ${text}`];
}

function brokers({ missing, controller_id: controllerId }, data) {
  const controller = controllerId < 0 ? " There is no controller now: nobody can be elected. A broker that reaches the metadata store becomes it within seconds." : "";
  const word = `${data.brokers.length - missing.length} of ${data.brokers.length}`;
  if (missing.length === 0) return [[controller ? "warn" : "good", word], `All are in service.${controller}`];
  const sentences = missing.slice(0, MANY).map((broker) => `Broker ${broker.broker_id} ${whatIsWrong(broker)}. ${whatToDo(broker)}`);
  const more = missing.length > MANY ? ` So it is with ${missing.length - MANY} more.` : "";
  return [["warn", word], `${sentences.join(" ")}${more}${controller}`];
}

function replicas(summary) {
  if (summary.offline_partitions) return [["bad", `${whole(summary.offline_partitions)} offline`], "Partitions without a leader: no replica that has every acknowledged record is alive. Bring back a broker that has one.", summary.offline];
  if (summary.under_min_isr_partitions) return [["bad", `${whole(summary.under_min_isr_partitions)} below minimum`], "Partitions with fewer replicas in sync than min.insync.replicas: acks=all is refused there. Bring back a broker that has a replica.", summary.under_min_isr];
  if (summary.under_replicated_partitions) return [["warn", `${whole(summary.under_replicated_partitions)} under-replicated`], "Partitions with a replica on a broker that is out of service, or that catches up. Clients are served; bring that broker back, or wait.", summary.under_replicated];
  return [["good", "All in sync"], summary.reassigning_partitions ? `${counted(summary.reassigning_partitions, "partition is", "partitions are")} on the move.` : "Each replica has what its leader has."];
}

function partitions({ failed }) {
  if (failed.length === 0) return [["good", "All writable"], "No log has failed."];
  const names = failed.slice(0, MANY).join(", ");
  return [["bad", `${failed.length} failed`], `These take no more records: ${names}${failed.length > MANY ? ", …" : ""}. The broker's log says why. Repair that, which is mostly the disk, then restart the broker.`];
}

function transactions({ heldBack, heldBackMs }) {
  if (heldBack === 0) return [["good", "None hold readers back"], "Consumers with isolation.level=read_committed wait for no long transaction."];
  return [[heldBackMs > HANGING_MS ? "warn" : "quiet", `${counted(heldBack, "partition")} held back`],
    `An open transaction keeps consumers with isolation.level=read_committed waiting there, for ${duration(heldBackMs)} at the longest. Transactions shows whose it is.`];
}

function findings({ findings: kinds }) {
  const count = kinds.reduce((all, [, each]) => all + each, 0);
  if (count === 0) return [["good", "None"], "Disk, metadata store and object store agree as far as they were looked at."];
  return [[isGrave(kinds) ? "bad" : "warn", counted(count, "finding")], "What they disagree about, and what to do about each, is under Findings."];
}

function isGrave(kinds) {
  return kinds.some(([kind]) => GRAVE.has(kind));
}

function uploads({ waiting, waitingMs, diskOnlyMs }) {
  if (waiting === 0 && diskOnlyMs === 0) return [["good", "All stored"], "The object store has every record that belongs there."];
  if (waiting === 0) return [["good", `${duration(diskOnlyMs)} behind`], "The newest records are on disks alone, the oldest of them for so long. They are uploaded once their segment is closed (tiered.disk.only.max.ms)."];
  const late = waitingMs > LATE_UPLOAD_MS;
  return [late ? ["warn", `${size(waiting)} wait`] : ["good", `${size(waiting)} wait`],
    `Closed segments that are only on disk; the oldest for ${duration(waitingMs)}. ${late ? "Look at the object store and at remote.copy.lag.ms." : ""}`];
}

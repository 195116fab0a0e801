// How the cluster is, in one word and in sentences, from what /api/v1/cluster says. Pure. Owns what counts as trouble.

import { counted, duration, size, whole } from "./format.js";

const LATE_UPLOAD_MS = 10 * 60_000;
const MANY = 5;
const STORE_TROUBLE = {
  away: "Away", slow: "Slow", expired: "Session expired", credentials: "Wrong credentials", skewed: "Clock is off",
  denied: "Refuses", locked: "Locked", no_bucket: "No bucket",
};
// Findings of these kinds mean that records cannot be read, or are on disks alone for good. The others can wait.
export const GRAVE = new Set(["missing", "wrong-size", "damaged", "catalogue", "stuck-upload"]);

/** [kind, word] for the head of the page. */
export function healthWord(data) {
  const found = combined(data);
  if (!found.serving || found.went_back) return ["bad", "Not serving"];
  if (found.failed.length || found.full.length || found.offline_partitions || found.under_min_isr_partitions) return ["bad", "Trouble"];
  if (found.sql_away || found.store_trouble || found.foreign || found.missing.length || found.under_replicated_partitions || isGrave(found.findings)) return ["warn", "Degraded"];
  return ["good", "Healthy"];
}

/** A sentence on the brokers that are away; null while all are in service. */
export function missingBrokers(data) {
  const missing = (data?.brokers || []).filter((each) => each.state !== "live");
  if (missing.length === 0) return null;
  const names = missing.map(shown).join(", ");
  return missing.length === 1 ? `Broker ${names} is away, and what it alone knows is missing here.` : `Brokers ${names} are away, and what they alone know is missing here.`;
}

function shown(broker) {
  return `${broker.broker_id} (${brokerState(broker)[1]})`;
}

/** [kind, word] of one broker. */
export function brokerState(broker) {
  if (broker.state === "fenced") return ["bad", "fenced"];
  if (broker.state === "silent") return ["warn", "no answer"];
  return broker.serving ? ["good", "live"] : ["bad", "not serving"];
}

/** What an operator looks at: [name, [kind, word], sentence, names of partitions]. */
export function checksOf(data) {
  const found = combined(data);
  const several = data.brokers.length > 1;
  const checks = [
    ["Serving", found.serving ? ["good", "Yes"] : ["bad", "No"], found.serving ? "Produce and fetch are answered." : "Clients are refused here: the broker starts, stops, is fenced, or has lost its disk. Its log says which."],
  ];
  if (several) checks.push(["Brokers", ...brokers(found, data)], ["Replicas", ...replicas(found)]);
  const told = [
    ["Disk", found.full.length ? ["bad", "Almost full"] : ["good", "Has room"], found.full.length ? `Producing is refused${several ? ` by broker ${found.full.join(", ")}` : ""} until there is room: free space, or lower local.retention.bytes.` : "Producing is accepted."],
    ["Partitions", ...partitions(found)],
    ["Uploads", ...uploads(found)],
    ["Findings", ...findings(found)],
    ["Checkpoints", found.stale ? ["quiet", `${whole(found.stale)} to write`] : ["good", "Up to date"], found.stale ? "The bucket does not describe the newest state yet; it is written every few seconds." : "The bucket alone says what is in it."]];
  // Of brokers that are away nobody knows: what the others tell is not all.
  checks.push(...told.map(([name, [kind, word], text]) => (kind === "good" && found.missing.length
    ? [name, ["quiet", word], `Of the brokers that answer: ${text}`] : [name, [kind, word], text])));
  checks.push(
    ["Metadata store", ...metadata(found, several)],
    ["Object store", ...objectStore(found)]);
  return checks;
}

/** What all brokers that answered say, as one. */
function combined({ brokers, health }) {
  const told = brokers.map((each) => each.health).filter(Boolean);
  const several = brokers.length > 1;
  const sum = (name) => told.reduce((total, each) => total + (each[name] || 0), 0);
  return {
    ...health,
    serving: health.serving && !health.fenced,
    missing: brokers.filter((each) => each.state !== "live"),
    failed: told.flatMap((each) => each.failed_partitions.map((name) => (several ? `${name} on broker ${each.broker}` : name))),
    full: told.filter((each) => each.disk_full).map((each) => each.broker),
    waiting: sum("upload_backlog_bytes"),
    waitingMs: Math.max(0, ...told.map((each) => each.upload_backlog_age_ms || 0)),
    diskOnlyMs: Math.max(0, ...told.map((each) => each.disk_only_age_ms || 0)),
    stale: sum("stale_checkpoints"),
    findings: told.flatMap((each) => Object.entries(each.findings || {})).filter(([, count]) => count > 0),
    sql_away: told.some((each) => each.sql_away),
    went_back: told.some((each) => each.metadata_went_back),
    store_trouble: told.map((each) => each.store_trouble).find(Boolean),
    foreign: told.map((each) => each.store_belongs_to).find(Boolean) || "",
  };
}

function metadata(found, several) {
  if (found.went_back) return [["bad", "Lost commits"], "It no longer has what brokers have seen in it, so nothing is served. The log of a broker says what to do."];
  if (found.sql_away) return [["bad", "Away"], `Produce and fetch go on; topics cannot be changed${several ? ", nobody can be elected" : ""}, and offset commits fail until it is back.`];
  return [["good", "Reachable"], "Topics, offsets and segments are recorded."];
}

function objectStore(found) {
  if (found.foreign) return [["bad", "Another cluster's"], `It belongs to cluster ${found.foreign}: nothing is uploaded, and disks fill. The log says what to do.`];
  if (found.store_trouble) return [["bad", STORE_TROUBLE[found.store_trouble]], "Hot records are served; cold ones cannot be read, and uploads wait on disk. The broker's log says what to do."];
  return [["good", "Reachable"], "Uploads and cold reads work."];
}

function brokers(found, data) {
  const controller = found.controller_id < 0 ? " There is no controller now: nobody can be elected." : "";
  const word = `${data.brokers.length - found.missing.length} of ${data.brokers.length}`;
  if (found.missing.length === 0) return [[controller ? "warn" : "good", word], `All are in service.${controller}`];
  const names = found.missing.map(shown).join(", ");
  return [["warn", word], `Missing: ${names}. Their partitions are led by others as long as one in sync is left.${controller}`];
}

function replicas(found) {
  if (found.offline_partitions) return [["bad", `${whole(found.offline_partitions)} offline`], "Partitions without a leader: no replica that has every acknowledged record is alive. Bring back a broker that has one.", found.offline];
  if (found.under_min_isr_partitions) return [["bad", `${whole(found.under_min_isr_partitions)} below minimum`], "Partitions with fewer replicas in sync than min.insync.replicas: acks=all is refused there.", found.under_min_isr];
  if (found.under_replicated_partitions) return [["warn", `${whole(found.under_replicated_partitions)} under-replicated`], "Partitions with a replica that is away, or catches up. Everything works.", found.under_replicated];
  return [["good", "All in sync"], found.reassigning_partitions ? `${counted(found.reassigning_partitions, "partition")} are on the move.` : "Each replica has what its leader has."];
}

function partitions({ failed }) {
  if (failed.length === 0) return [["good", "All writable"], "No log has failed."];
  const names = failed.slice(0, MANY).join(", ");
  return [["bad", `${failed.length} failed`], `Their disk refused a write: ${names}. Repair the disk, then restart the broker.`];
}

function findings({ findings: kinds }) {
  const count = kinds.reduce((all, [, each]) => all + each, 0);
  if (count === 0) return [["good", "None"], "Disk, metadata store and object store agree as far as they were looked at."];
  return [[isGrave(kinds) ? "bad" : "warn", counted(count, "finding")], "What they disagree about, and what to do about each, is under Brokers, Findings."];
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

// Numbers, sizes, times and money as people read them. Pure.

const WHOLE = new Intl.NumberFormat("en-US");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 1,234,567. Offsets beyond 2^53 lose their last digits in JSON; they are marked with ≈. */
export function whole(number) {
  if (number === null || number === undefined) return "—";
  return (Math.abs(number) > Number.MAX_SAFE_INTEGER ? "≈ " : "") + WHOLE.format(number);
}

/** [amount, unit]: ["1.4", "GiB"]. */
export function sizeParts(bytes) {
  if (bytes === null || bytes === undefined) return ["—", ""];
  let amount = bytes;
  let unit = 0;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return [unit === 0 || amount >= 100 ? WHOLE.format(Math.round(amount)) : amount.toFixed(amount >= 10 ? 1 : 2), UNITS[unit]];
}

export function size(bytes) {
  return sizeParts(bytes).join(" ").trim();
}

/** "3 partitions", "1 partition". */
export function counted(number, noun, plural = `${noun}s`) {
  return `${whole(number)} ${number === 1 ? noun : plural}`;
}

/** "4 s", "12 min", "3 h 20 min", "5 d". */
export function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 && hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${whole(Math.floor(hours / 24))} d`;
}

/** How long or how much a config keeps: "7 days", "for ever", "7 days or 1 GiB a partition". -1 is no limit. */
export function kept({ ms = -1, bytes = -1 }) {
  const limits = [ms >= 0 && span(ms), bytes >= 0 && `${size(bytes).replace(/\.0+ /, " ")} a partition`].filter(Boolean);
  return limits.length === 0 ? "for ever" : limits.join(" or ");
}

/** "7 days", "36 hours", "90 min": in the largest unit that divides it. */
function span(ms) {
  for (const [name, unit] of [["day", 86_400_000], ["hour", 3_600_000]]) {
    if (ms >= unit && ms % unit === 0) return counted(ms / unit, name);
  }
  return duration(ms);
}

/** Numbers a second, with as many digits as say something: "0", "0.2", "14", "1,200". */
export function perSecond(number) {
  if (number === 0) return "0";
  if (number < 0.1) return "< 0.1";
  return number < 10 ? number.toFixed(1).replace(/\.0$/, "") : whole(Math.round(number));
}

/** "just now", "4 s ago", "in 3 min". */
export function ago(ms, nowMs = Date.now()) {
  const passed = nowMs - ms;
  if (Math.abs(passed) < 1_500) return "just now";
  return passed > 0 ? `${duration(passed)} ago` : `in ${duration(-passed)}`;
}

/** "2026-03-01 14:05:09" in the reader's zone; the number where no calendar has the time. */
export function dateTime(ms, { fraction = false } = {}) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${clock(ms)}${fraction ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : ""}`;
}

export function clock(ms) {
  const at = new Date(ms);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((each) => String(each).padStart(2, "0")).join(":");
}

/** "14:05:09.123" in the reader's zone, with the day before it where that is not today. */
export function timeOfDay(ms, nowMs = Date.now()) {
  return isToday(ms, nowMs) ? dateTime(ms, { fraction: true }).slice(-12) : dateTime(ms, { fraction: true });
}

export function isToday(ms, nowMs = Date.now()) {
  return new Date(ms).toDateString() === new Date(nowMs).toDateString();
}

/** With the offset from UTC, for tooltips and the record viewer. */
export function exactTime(ms) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return `${ms} ms since 1970`;
  return `${dateTime(ms, { fraction: true })} local time, ${at.toISOString().replace("T", " ").replace("Z", "")} UTC`;
}

/** Dollars with as many digits as say something: "$0.0042", "$12.30"; what is nearly nothing says so. */
export function dollars(amount) {
  if (amount === null || amount === undefined) return "—";
  if (amount === 0) return "$0";
  if (amount < 0.0001) return "< $0.0001";
  if (amount < 1) return `$${amount.toFixed(4)}`;
  return `$${amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

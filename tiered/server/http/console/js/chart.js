// Lines over time. Owns scales and words: each chart says in a sentence, and in a table, what it draws.

import { h } from "./dom.js";
import { clock, counted, dateTime, whole } from "./format.js";

const HEIGHT = 190;
const BOTTOM = 22;
const TOP = 8;

/** `samples` are [ms, number], oldest first; gaps longer than three intervals are left open. */
export function lagChart(samples, { fromMs, toMs, intervalMs, cursor, moved }) {
  const most = Math.max(1, ...samples.map(([, lag]) => lag));
  const ceiling = niceCeiling(most);
  const x = (ms) => ((ms - fromMs) / Math.max(1, toMs - fromMs)) * 100;
  const y = (lag) => TOP + (1 - lag / ceiling) * (HEIGHT - TOP - BOTTOM);
  const lines = broken(samples, intervalMs * 3);
  const near = cursor === null ? null : nearest(samples, cursor);
  return h("figure", { class: "chart" },
    h("div", { class: "plot", on: {
      pointermove: (event) => {
        const box = event.currentTarget.getBoundingClientRect();
        moved(fromMs + ((event.clientX - box.left) / box.width) * (toMs - fromMs));
      },
      pointerleave: () => moved(null),
    } },
    h("svg", { role: "img", "aria-label": lagWords(samples) },
      [0, 0.25, 0.5, 0.75, 1].map((share) => h("line", { class: "grid", x1: "0", x2: "100%", y1: y(share * ceiling), y2: y(share * ceiling) })),
      // Points are placed within a box of 100 by 190 that is stretched; text stays outside of it.
      h("svg", { x: "0", y: "0", width: "100%", height: HEIGHT, viewBox: `0 0 100 ${HEIGHT}`, preserveAspectRatio: "none" },
        lines.map((line) => [
          h("polygon", { class: "area", points: `${points(line, x, y)} ${x(line[line.length - 1][0])},${y(0)} ${x(line[0][0])},${y(0)}` }),
          h("polyline", { class: "line", points: points(line, x, y) }),
        ])),
      [0, 0.5, 1].map((share) => h("text", { x: "4", y: y(share * ceiling) - 4 }, whole(share * ceiling))),
      [0, 0.25, 0.5, 0.75, 1].map((share) => h("text", {
        x: `${share * 100}%`, y: HEIGHT - 5, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle", class: share % 0.5 === 0 ? null : "wide",
      }, clock(fromMs + share * (toMs - fromMs)))),
      near && h("line", { class: "cursor", x1: `${x(near[0])}%`, x2: `${x(near[0])}%`, y1: TOP, y2: HEIGHT - BOTTOM }))),
    h("figcaption", null, near ? `${dateTime(near[0])}: ${counted(near[1], "record")} behind` : lagWords(samples)));
}

/** What the chart says, in words. */
export function lagWords(samples) {
  if (samples.length === 0) return "No samples yet: the broker takes one every few seconds.";
  const [lastMs, last] = samples[samples.length - 1];
  const [mostMs, most] = samples.reduce((a, b) => (b[1] > a[1] ? b : a));
  const first = samples[0][1];
  const trend = last > first * 1.05 + 1 ? "more than" : last < first * 0.95 - 1 ? "less than" : "about the same as";
  return `Lag ${whole(last)} at ${clock(lastMs)}, ${trend} at ${clock(samples[0][0])} (${whole(first)}); the highest was ${whole(most)} at ${clock(mostMs)}.`;
}

/** A tiny line without axes, beside a figure that says the newest value. */
export function spark(values) {
  if (values.length < 2) return null;
  const most = Math.max(1, ...values);
  const line = values.map((value, place) => `${(place / (values.length - 1)) * 100},${22 - (value / most) * 20}`).join(" ");
  return h("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, h("polyline", { points: line }));
}

function points(line, x, y) {
  return line.map(([ms, lag]) => `${x(ms).toFixed(3)},${y(lag).toFixed(2)}`).join(" ");
}

function broken(samples, gapMs) {
  const lines = [];
  for (const sample of samples) {
    const line = lines[lines.length - 1];
    if (line && sample[0] - line[line.length - 1][0] <= gapMs) line.push(sample);
    else lines.push([sample]);
  }
  return lines;
}

function nearest(samples, ms) {
  return samples.length === 0 ? null : samples.reduce((a, b) => (Math.abs(b[0] - ms) < Math.abs(a[0] - ms) ? b : a));
}

function niceCeiling(most) {
  const step = 10 ** Math.floor(Math.log10(most));
  return Math.max(4, [1, 2, 4, 5, 10].map((each) => each * step).find((each) => each >= most));
}

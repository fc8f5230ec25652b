// The chart by minute: what ended, and how long tasks had waited.

import { clock, count, h, s, span } from "./dom.js";

const height = 100;

/** chart draws minutes of {time, complete, failed, wait_p95_seconds}, oldest first. */
export function chart(minutes) {
  if (!minutes.some((m) => m.complete || m.failed)) return h("p", { class: "empty" }, `No task of a host ended in the last ${span(60 * minutes.length)}. What workers in Go and Python end is not counted here.`);
  const top = Math.max(...minutes.map((m) => m.complete + m.failed));
  const slowest = Math.max(...minutes.map((m) => m.wait_p95_seconds ?? 0));
  const ended = minutes.reduce((sum, m) => sum + m.complete + m.failed, 0);
  const failed = minutes.reduce((sum, m) => sum + m.failed, 0);
  const bar = (m, x, from, n, name) => n > 0 && s("rect", { class: name, x, width: 0.85, y: height * (1 - (from + n) / top), height: (height * n) / top });
  const bars = minutes.map((m, x) => s("g", null,
    s("title", null, `${clock(m.time).textContent.slice(11, 16)}: ${count(m.complete)} complete, ${count(m.failed)} failed, waited ${span(m.wait_p95_seconds)} (p95)`),
    s("rect", { x, width: 1, y: 0, height, fill: "transparent" }),
    bar(m, x, 0, m.failed, "failed"),
    bar(m, x, m.failed, m.complete, "complete")));
  // The line has gaps where nothing started; its scale is its own.
  const line = minutes.map((m, x) => (m.wait_p95_seconds == null ? null
    : `${minutes[x - 1]?.wait_p95_seconds == null ? "M" : "L"}${x + 0.4} ${height * (1 - (0.9 * m.wait_p95_seconds) / (slowest || 1))}`));
  return h("figure", { class: "figure" },
    s("svg", {
      class: "chart", viewBox: `0 0 ${minutes.length} ${height}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `In the last ${span(60 * minutes.length)} ${count(ended)} tasks ended, ${count(failed)} of them failed; at most ${count(top)} in a minute.`,
    }, bars, s("path", { class: "wait", d: line.filter(Boolean).join(" ") })),
    h("figcaption", { class: "legend" },
      h("span", null, `complete, at most ${count(top)} a minute with the failed ones`),
      h("span", { class: "failed-key" }, `failed: ${count(failed)} of ${count(ended)}`),
      h("span", { class: "wait-key" }, `wait (p95), at most ${span(slowest)}`),
      h("div", null, "from ", clock(minutes[0].time), " to now, by minute, without what workers in Go and Python end")));
}

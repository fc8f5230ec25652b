// The chart by minute: what ended, and how long tasks had waited.

import { clock, count, h, s, span } from "./dom.js";

const height = 100;

/** minute is the hour and minute of the counts of a minute. */
const minute = (m) => clock(m.time).textContent.slice(11, 16);

/** chart draws minutes of {time, complete, failed, wait_p95_seconds}, oldest first. */
export function chart(minutes) {
  if (!minutes.some((m) => m.complete || m.failed)) return h("p", { class: "empty" }, `No task of a host ended in the last ${span(60 * minutes.length)}. Tasks of workers in Go and Python are not counted here.`);
  const top = Math.max(...minutes.map((m) => m.complete + m.failed));
  const slowest = Math.max(...minutes.map((m) => m.wait_p95_seconds ?? 0));
  const ended = minutes.reduce((sum, m) => sum + m.complete + m.failed, 0);
  const failed = minutes.reduce((sum, m) => sum + m.failed, 0);
  const bar = (m, x, from, n, name) => n > 0 && s("rect", { class: name, x, width: 0.85, y: height * (1 - (from + n) / top), height: (height * n) / top });
  const bars = minutes.map((m, x) => s("g", null,
    s("title", null, `${minute(m)}: ${count(m.complete)} complete, ${count(m.failed)} failed, waited ${span(m.wait_p95_seconds)} (p95)`),
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
    h("div", { class: "top", "aria-hidden": "true" }, `${count(top)} / min`),
    h("div", { class: "ticks", "aria-hidden": "true" }, [0, 1, 2].map((third) => h("span", null, minute(minutes[Math.floor((third * minutes.length) / 3)]))), h("span", null, "now")),
    h("figcaption", { class: "legend" },
      h("span", null, `complete: ${count(ended - failed)}`),
      h("span", { class: "failed-key" }, `failed: ${count(failed)}`),
      h("span", { class: "wait-key" }, `wait (p95): at most ${span(slowest)}`),
      h("div", null, "Since ", clock(minutes[0].time), ". Tasks of workers in Go and Python are not counted.")));
}

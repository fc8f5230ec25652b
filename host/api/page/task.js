// The view of one task.

import { me, taskActions } from "./actions.js";
import { bytes, call, exact, follow, now, path, query } from "./api.js";
import { badge, clock, count, facts, h, link, many, s, section, size, span, table, version } from "./dom.js";

export const shownBytes = 64 << 10; // of a payload, at a time
const logLines = 1000; // as many as Redis keeps

export function task({ tenant }, id) {
  const to = path`/tenants/${tenant}/tasks/${id}`;
  return {
    title: `Task ${id}`,
    every: 2000,
    load: async (signal) => {
      const [shape, tree] = await Promise.all([
        call(query(to, { payload_limit: shownBytes }), { signal }), call(query(`${to}/tree`, { total: mostInTree }), { signal })]);
      const waits = shape.after && (await call(query(`${to}/dependencies`, { limit: mostInTree }), { signal })).items;
      return { ...shape, tree, waits };
    },
    show: (t) => [
      h("p", null, badge(t.status), " ", t.reason && badge(t.reason, "failed"), " ", t.cancel_asked && badge("to be cancelled", "warning"), " in ", link(t.queue, tenant, "queues", t.queue)),
      t.waits_because ? h("p", null, `It waits: ${t.waits_because}.`) : t.status === "pending" && h("p", null, "It waits for its turn."),
      taskActions(t),
      t.progress > 0 && h("p", null, h("label", null, `${Math.round(100 * t.progress)} % ${t.message ?? ""}`, h("progress", { max: 1, value: t.progress }))),
      t.error && section("Why it failed", failure(t.error, t.reason)),
      !t.error && t.last_error && t.status !== "complete" && section("Why its last run did not finish it", failure(t.last_error)),
      section("About it", about(t)),
      (t.parent || t.tree.children) && section("Tree", t.parent && h("p", null, "It comes from ", taskOf(t.tenant, t.parent), "."), h("ul", { class: "tree" }, branch(t.tenant, t.tree, true))),
      t.waits && section(`${t.after.blocked ? "Waits for" : "Waited for"} ${many(t.after.of, "task")}`, waits(t)),
      section("Attempts", attempts(t)),
      me.payloads ? [
        section("Parameters", payload(t, "parameters", to)),
        t.status === "complete" && section("Result", payload(t, "result", to)),
        section("Log", h("ol", { class: "log", "data-own": `log-${id}`, tabindex: "0", "aria-label": "Log" }), h("p", { class: "faint", id: "log-state", "data-own": "log-state" })),
      ] : h("p", { class: "faint" }, "You may not see parameters, results and logs."),
    ],
    start: (main, signal) => me.payloads && showLog(main, to, signal),
  };
}

const mostInTree = 200; // tasks

const taskOf = (tenant, id) => link(h("span", { class: "code" }, id), tenant, "tasks", id);

const conditions = { complete: "all are complete", ended: "all have ended", any: "one is complete", failed: "one has failed" };

/** waits are the tasks that a task waits for, or waited for. */
const waits = (t) => [
  h("p", null, `Until ${conditions[t.after.when] ?? t.after.when}${t.after.open ? ", and nobody adds more" : ""}: ${count(t.after.ended)} ended, ${count(t.after.failed)} of them not well.`),
  table("Tasks", [
    { head: "Task", cell: (d) => taskOf(t.tenant, d.id) },
    { head: "End", cell: (d) => (d.end ? badge(d.end) : badge("goes on", "")) },
    { head: "Result", number: true, cell: (d) => (d.result_size ? size(d.result_size) : "–") },
  ], t.waits),
  t.after.of > t.waits.length && h("p", { class: "faint" }, `These are the first ${count(t.waits.length)}.`)];

/** branch is a task of the tree, with those that it enqueued and those that wait for it. */
const branch = (tenant, node, root) => {
  const t = node.task;
  return h("li", null,
    root ? h("strong", null, "This task") : [taskOf(tenant, node.id), node.dependent ? " waits for it" : ""], " ",
    t ? [badge(t.status), t.reason && ` ${t.reason}`, ` in ${t.queue}`] : badge("deleted", ""),
    t?.after?.blocked && `, ${count(t.after.ended ?? 0)} of ${count(t.after.of)} ended`, node.again && " (shown elsewhere, too)",
    (node.children || node.left_out) && h("ul", null, (node.children ?? []).map((child) => branch(tenant, child)),
      node.left_out && h("li", { class: "faint" }, `${count(node.left_out)} more`)));
};

const failure = (f, shown) => [ // shown is the reason that the view shows already
  h("p", null, f.reason !== shown && badge(f.reason, "failed"), " ", f.exit_code != null && `exit code ${f.exit_code} `, f.limit && `limit ${f.limit}`),
  f.message && h("pre", { tabindex: "0" }, f.message),
  f.backtrace && [h("h3", null, "Where in the plugin, innermost first"), h("pre", { tabindex: "0" }, f.backtrace.join("\n"))],
  f.stderr && [h("h3", null, "The end of stderr"), h("pre", { tabindex: "0" }, f.stderr)],
];

function about(t) {
  const waited = t.started_at && t.started_at - Math.max(t.created ?? 0, t.eta ?? 0, t.retried_at ?? 0);
  const headers = Object.entries(t.headers ?? {}).filter(([k]) => k !== "traceparent"); // which is the trace, below
  const to = (id) => link(h("span", { class: "code" }, id), t.tenant, "tasks", id);
  return facts(
    ["Created", clock(t.created)], ["Due", !t.key_held && clock(t.eta)], ["Waited", waited > 0 && span(waited)],
    ["Started", clock(t.started_at)], ["Finished", clock(t.finished_at)], ["Ran for", t.finished_at && t.started_at && span(t.finished_at - t.started_at)],
    ["Expires", clock(t.expires)], ["Deadline", clock(t.deadline)], ["Time limit", t.timeout_seconds && span(t.timeout_seconds)],
    ["Attempts", `${count(t.attempts)}${t.max_attempts > 0 ? ` of ${count(t.max_attempts)}` : ""}`],
    ["Hosts that died", t.crashes && count(t.crashes)], ["Rescheduled", t.reschedules && count(t.reschedules)], ["Rejected", t.rejects && count(t.rejects)],
    ["Plugin", t.plugin && [[t.plugin, t.version].filter(Boolean).join(" "), h("div", { class: "code faint" }, version(t.digest))]],
    ["Listener", t.node], ["Priority", t.priority !== 50 && count(t.priority)], ["Key", t.key],
    ["Fair key", t.fair_key && `${t.fair_key}${t.fair_weight > 1 ? `, weight ${count(t.fair_weight)}` : ""}`],
    ["Concurrency key", t.lane && `${t.lane.key}, ${count(t.lane.max)} at once${t.lane.waits ? `; waits in line behind ${count(t.lane.taken ?? 0)} and ${count(t.lane.ahead ?? 0)} in line` : ""}`],
    ["Headers", headers.length && headers.map(([k, v]) => h("div", null, `${k}: ${v}`))],
    ["Labels", t.labels && Object.entries(t.labels).map(([k, v]) => h("div", null, `${k}=${v}`))],
    ["Parent", t.parent && to(t.parent)], ["Stands for", t.live_id && to(t.live_id)], ["Dead letter", t.dead_id && to(t.dead_id)],
    ["Dead-letter queue", t.dead_queue], ["No dead letter, because", t.dead_error], ["Handled by", t.handled && to(t.handled)],
    ["Checkpoint", t.checkpoint_size && size(t.checkpoint_size)],
    ["Record", t.record && `of run ${t.record.run}, ${t.record.size ? size(t.record.size) : "too large to be kept"}${t.record.encrypted ? ", encrypted" : ""}`], ["Trace", t.traceparent && h("span", { class: "code" }, t.traceparent)]);
}

/** attempts are the runs that ended, and the present or last one, on one line of time. */
function attempts(t) {
  const runs = [...(t.history ?? [])];
  if (t.started_at && runs.at(-1)?.run !== t.run) {
    runs.push({
      run: t.run, started: t.started_at, ended: t.finished_at, node: t.node, plugin: t.plugin, digest: t.digest, version: t.version,
      outcome: t.status === "started" ? "running" : t.status, error: t.error,
    });
  }
  if (runs.length === 0) return h("p", { class: "empty" }, "None yet.");
  const begin = Math.min(...runs.map((r) => r.started || r.ended || now()));
  const end = Math.max(begin + 0.001, ...runs.map((r) => r.ended || now()));
  const at = (time) => (100 * (time - begin)) / (end - begin);
  const bar = (r) => s("svg", { class: "chart", viewBox: "0 0 100 4", preserveAspectRatio: "none", height: 8, "aria-hidden": "true" },
    s("rect", { class: ["complete", "running"].includes(r.outcome) ? "complete" : "failed", y: 0, height: 4, x: Math.min(99, at(r.started || r.ended)), width: Math.max(1, at(r.ended || now()) - at(r.started || r.ended)) }));
  return table("Attempts", [
    { head: "Run", number: true, cell: (r) => count(r.run) },
    { head: "Outcome", cell: (r) => badge(r.outcome, r.outcome === "complete" ? "complete" : r.outcome === "running" ? "" : "failed") },
    { head: "Started", cell: (r) => clock(r.started) },
    { head: "Took", number: true, cell: (r) => (r.started ? span((r.ended || now()) - r.started) : "–") },
    { head: "Time line", cell: (r) => h("div", { class: "timeline" }, bar(r)) },
    { head: "Version", cell: (r) => [[r.plugin, r.version].filter(Boolean).join(" "), h("div", { class: "code faint" }, version(r.digest))] },
    { head: "Listener", cell: (r) => r.node },
    { head: "Error", cell: (r) => (r.error?.message ?? "").split("\n")[0].slice(0, 300) },
  ], runs);
}

const pictures = [["image/png", [0x89, 0x50, 0x4e, 0x47]], ["image/jpeg", [0xff, 0xd8, 0xff]], ["image/gif", [0x47, 0x49, 0x46, 0x38]], ["image/webp", [0x52, 0x49, 0x46, 0x46]]];

/** pictureType is the type of a picture, by its first bytes; SVG is text, which the page shows as such. */
const pictureType = (data) => pictures.find(([, magic]) => magic.every((byte, i) => data[i] === byte))?.[0];

/** bytesOf are those of a payload that came with its shape, as text or in base64. */
export function bytesOf(shape, name) {
  const base64 = shape[`${name}_base64`];
  return shape[name] != null ? new TextEncoder().encode(shape[name]) : base64 && Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

/** payload shows parameters or a result as text, JSON, hex or a picture. A large one is read when somebody asks for it. */
function payload(t, name, to) {
  const total = t[`${name}_size`] ?? 0;
  if (total === 0) return h("p", { class: "empty" }, "Empty.");
  const own = { class: "payload", "data-own": `${name}-${t.run}-${total}` };
  const read = async () => bytes(`${to}/${name}`);
  const data = bytesOf(t, name);
  if (data) return h("div", own, viewer(data, name, t.id));
  const load = async (event) => {
    const box = event.target.parentNode;
    event.target.disabled = true;
    try {
      box.replaceChildren(viewer(await read(), name, t.id));
    } catch (problem) {
      event.target.disabled = false;
      box.append(h("p", { class: "wrong", role: "alert" }, problem.message));
    }
  };
  return h("div", own, h("button", { type: "button", onclick: load }, `Read ${size(total)}`));
}

export function viewer(data, name, id) {
  const cut = data.subarray(0, shownBytes);
  const text = new TextDecoder().decode(cut);
  const type = pictureType(data);
  const rest = data.length > cut.length && h("p", { class: "faint" }, `The first ${size(cut.length)} of ${size(data.length)}; download the rest.`);
  const forms = {
    Text: () => [h("pre", { tabindex: "0" }, text), rest],
    JSON: () => {
      try {
        if (!JSON.rawJSON) JSON.parse(text); // an older browser would round numbers
        return [h("pre", { tabindex: "0" }, !JSON.rawJSON ? text : JSON.stringify(JSON.parse(new TextDecoder().decode(data), (key, value, context) => exact(value, context)), null, 2).slice(0, 4 * shownBytes))];
      } catch {
        return [h("p", null, "This is no JSON.")];
      }
    },
    Hex: () => [h("pre", { tabindex: "0" }, hex(cut)), rest],
    ...(type && { Picture: () => [h("img", { src: URL.createObjectURL(new Blob([data], { type })), alt: `The ${name} as a picture` })] }),
  };
  const shown = h("div");
  const buttons = Object.keys(forms).map((form) => h("button", { type: "button", onclick: () => choose(form) }, form));
  const choose = (form) => {
    buttons.forEach((b) => b.setAttribute("aria-pressed", b.textContent === form));
    shown.replaceChildren(...forms[form]().filter(Boolean));
  };
  const download = () => {
    const url = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
    h("a", { href: url, download: `${name}-${id.replace(/[^\w.-]/g, "_")}` }).click();
    URL.revokeObjectURL(url);
  };
  choose(type ? "Picture" : "Text");
  return h("div", null, h("div", { class: "actions" }, buttons, h("button", { type: "button", onclick: download }, `Download ${size(data.length)}`)), shown);
}

/** hex shows bytes in rows of 16, beside their text. */
function hex(data) {
  const rows = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const codes = row.map((b) => b.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    rows.push(`${at.toString(16).padStart(6, "0")}  ${codes}  ${row.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : ".")).join("")}`);
  }
  return rows.join("\n");
}

/** showLog appends the lines of the log until the task has ended. */
async function showLog(main, to, signal) {
  const list = main.querySelector(".log");
  const state = main.querySelector("#log-state");
  let last = 0;
  state.textContent = "Following the log…";
  await follow(`${to}/log/stream`, signal, (event, data) => {
    if (event === "line" && data.number > last) {
      last = data.number;
      const below = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
      list.append(h("li", null, clock(data.time), data.text));
      if (list.children.length > logLines) list.firstChild.remove();
      if (below) list.scrollTop = list.scrollHeight;
    }
    if (event === "end") state.textContent = last ? `The task is ${data.status}: the log is complete.` : `The task is ${data.status}, and wrote nothing.`;
    return event === "end";
  }).catch((problem) => (state.textContent = problem.message));
}

// The views of a fleet. A view is {title, load, show, every, lively, start}: load reads a bounded amount from the API and show
// makes it visible, again after so many ms (5000), or when a queue changes if it is lively. start runs beside it, if there is one.

import { acts, bulk, button, cancel, choice, close, dangerous, jobActions, nodeActions, post, queueActions, release, words } from "./actions.js";
import { call, now, path, query } from "./api.js";
import { chart } from "./chart.js";
import { badge, clock, coded, count, facts, h, link, many, place, section, size, span, table, version } from "./dom.js";
import { pause, remove } from "./schedules.js";

/** shut says whether a queue, or its tenant, refuses new tasks. */
const shut = (q) => (q.pauses ?? []).some((p) => p.accepting);

/** pauseText says who paused what, since when and why. */
const pauseText = (p) => [p.queue ? "" : "the tenant ", p.accepting ? "accepts no new tasks" : "is paused", p.since && [" since ", clock(p.since)], p.who && ` by ${p.who}`, p.reason && `: ${p.reason}`, ". "];

const charted = 180; // minutes
const page = 50; // entries of a list

export const get = (to, values = {}, signal) => call(query(to, values), { signal });

/** optional is what a list has for those who may see it, and null for others. */
const optional = (reading) => reading.catch((problem) => {
  if (problem.status === 403) return null;
  throw problem;
});

const minutesOf = (tenant, queue, signal) => get(path`/tenants/${tenant}/minutes`, { queue, minutes: charted }, signal);

const queueLink = (tenant, queue) => link(queue, tenant, "queues", queue);
const taskLink = (task) => link(h("span", { class: "code" }, task.id), task.tenant, "tasks", task.id);
const sum = (list, field) => list.reduce((total, one) => total + one[field], 0);

export function overview({ tenant, live }) {
  return {
    title: "Overview",
    load: async (signal) => {
      const [queues, nodes, findings, minutes, quotas, relays] = await Promise.all([
        live.queues(), get(path`/tenants/${tenant}/nodes`, { limit: 1000 }, signal),
        get(path`/tenants/${tenant}/findings`, {}, signal), minutesOf(tenant, "", signal), get(path`/tenants/${tenant}/quotas`, {}, signal),
        get(path`/tenants/${tenant}/relays`, {}, signal)]);
      return { queues, nodes: nodes.items, findings: findings.items, minutes, quotas: quotas.items, relays: relays.items };
    },
    show: ({ queues: { list, more }, nodes, findings, minutes, quotas, relays }) => {
      const recent = minutes.items.slice(-6, -1); // the present minute is not over
      const rate = (field) => `${(sum(recent, field) / Math.max(1, recent.length)).toFixed(1)} / min`;
      const hosts = nodes.filter((n) => n.alive && n.kind === "quern");
      const slots = sum(hosts.map((n) => ({ all: n.slots ?? 0 })), "all");
      const busy = [...list].sort((a, b) => b.pending + b.started - a.pending - a.started).slice(0, 10);
      const oldest = Math.max(0, ...list.map((q) => q.oldest_pending_age_seconds));
      return [
        section("What is wrong now", findingList(tenant, findings)),
        section("Now", h("div", { class: "tiles" }, facts(
          ["Complete", rate("complete")], ["Failed", rate("failed")],
          ["Wait p50, 5 min", span(minutes.wait_p50_seconds)], ["Wait p95, 5 min", span(minutes.wait_p95_seconds)],
          ["Oldest pending task", oldest ? span(oldest) : "–"], ["Pending", count(sum(list, "pending"))], ["Running", count(sum(list, "started"))],
          ["Slots in use", `${count(sum(hosts.map((n) => ({ used: n.slots_in_use ?? 0 })), "used"))} of ${count(slots)}`], ["Hosts", count(hosts.length)])), more && moreQueues()),
        section("By minute", chart(minutes.items)),
        quotas.length > 0 && section("Use of limits", h("div", { class: "quotas" }, quotas.slice(0, 6).map((q) => h("div", null, quota(tenant, q))))),
        section("Busiest queues", queueTable("Busiest queues", busy), h("p", null, link(`All ${many(list.length, "queue")}`, tenant, "queues"))),
        relays.length > 0 && section("Databases whose rows become tasks", relayTable(relays)),
      ];
    },
  };
}

/** relayTable shows the sources of databases, and the relays that lead them. */
const relayTable = (relays) => table("Databases", [
  { head: "Database", cell: (r) => r.name },
  { head: "Table", cell: (r) => r.table },
  { head: "Relay", cell: (r) => (r.alive ? ["leads for ", span(Math.max(0, now() - r.since)), h("div", { class: "faint" }, r.leader)] : ["silent since ", clock(r.told)]) },
  { head: "Oldest row", cell: (r) => (r.lag_seconds > 0 ? span(r.lag_seconds) : "–") },
  { head: "Waiting", cell: (r) => count(r.waiting) },
  { head: "Refused", cell: (r) => count(r.refused) },
  { head: "Why rows wait", cell: (r) => r.error ?? r.parked ?? "–" },
], relays);

const moreQueues = () => h("p", { class: "faint" }, "There are more queues than the page follows: it shows the first 1,000 by name.");

/** findingList shows what the doctor found, the worst first, each with its remedy and the button that does it; here is the queue of the view. */
function findingList(tenant, findings, here) {
  if (findings.length === 0) return h("p", { class: "empty" }, "Nothing: the doctor finds no fault.");
  const list = (some) => h("ul", { class: "findings" }, some.map((f) => h("li", { class: f.level },
    h("strong", null, `${f.level}: `), coded(f.problem), f.since && h("span", { class: "faint" }, " since ", clock(f.since)),
    h("div", { class: "actions" },
      h("span", null, "Remedy: ", coded(f.remedy), "."),
      h("div", { class: "links" }, (f.queues?.slice(0, 20) ?? [f.queue]).map((q) => q && q !== here && link(`Queue ${q}`, tenant, "queues", q)),
        f.command?.[0] === "schedule" && link(`Schedule ${f.command[2]}`, tenant, "schedules", f.command[2]),
        f.check.startsWith("host-") && h("a", { href: place(tenant, "nodes") }, "What the hosts run"),
        f.check.startsWith("plugin-") && h("a", { href: place(tenant, "plugins") }, "Plugins"),
        (f.check === "queue-failing" || f.check === "version-failing") && f.queue && h("a", { href: place(tenant, "search", { queue: f.queue, status: "failed" }) }, "Its failed tasks"),
        f.check === "dead-letters" && h("a", { href: place(tenant, "dead") }, "Dead letters"),
        remedy(tenant, f.command))))));
  const rest = findings.slice(shownFindings); // so that the charts stay in sight
  return [list(findings.slice(0, shownFindings)), rest.length > 0 && h("details", null, h("summary", null, `${many(rest.length, "finding")} more`), list(rest))];
}

const shownFindings = 8;

/** remedy is the button that does what a finding of the doctor asks for, or the link to what it tells to look at. */
function remedy(tenant, [noun, verb, name, value, status] = []) {
  const to = path`/tenants/${tenant}/${noun}s/${name ?? ""}`;
  const resume = (text) => button("operator", "Resume", { title: `Resume ${name}?`, text, run: () => post(`${to}/resume`) });
  switch (`${noun} ${verb}`) {
    case "queue resume":
      return resume("Hosts take its waiting tasks again.");
    case "subscription resume":
      return resume("It gets what is published from now on.");
    case "queue limit":
      return button("operator", `Limit to ${count(value)}`, {
        title: `Limit ${name} to ${count(value)}?`, text: "So many tasks may wait; above that enqueueing is refused.", verb: "Set the limit",
        run: () => post(`${to}/limit`, { limit: Number(value) }, "PUT"),
      });
    case "task ls": // of a queue, --status S
      return status === "started" && button("operator", `Cancel running of ${name}`, dangerous(() => bulk(tenant, "cancel", { queue: name, status })));
    case "schedule resume":
      return resume("Its next tick comes as its expression says.");
    case "schedule pause":
      return pause({ tenant, id: name });
    case "schedule delete":
      return remove({ tenant, id: name, owner: "" });
    case "task await":
      return close(tenant, name, `${name} waits for tasks, and for what may be added.`);
    case "node reclaim":
      return nodeActions({ tenant, listener: name, kind: "quern", alive: false });
    case "plugin release":
      return release(tenant, name);
    case "publication ls":
      return link(`Topic ${name}`, tenant, "topics", name);
    case "publication show": case "schedule show": case "subscription show": case "subscription deliveries":
      return link(`${noun[0].toUpperCase()}${noun.slice(1)} ${name}`, tenant, `${noun}s`, name);
  }
  return null; // a list of failed tasks has its link, and other findings have no command
}

const queueTable = (caption, list) => table(caption, [
  { head: "Queue", cell: (q) => [queueLink(q.tenant, q.queue), q.error && h("div", { class: "wrong" }, q.error)] },
  { head: "State", cell: (q) => [q.paused && badge("paused"), shut(q) && badge("accepts none", "paused"), q.listeners === 0 && q.pending > 0 && !q.queue.endsWith(".dead") && badge("nobody serves it", "failed"), q.limit && q.pending + q.scheduled >= q.limit && badge("full", "failed")] },
  { head: "Pending", number: true, cell: (q) => count(q.pending) },
  { head: "Oldest", number: true, cell: (q) => (q.pending ? span(q.oldest_pending_age_seconds) : "–") },
  { head: "Scheduled", number: true, cell: (q) => count(q.scheduled) },
  { head: "Running", number: true, cell: (q) => count(q.started) },
  { head: "Failed, kept", number: true, cell: (q) => (q.failed ? link(count(q.failed), q.tenant, "queues", q.queue, { status: "failed" }) : "0") },
  { head: "Complete, kept", number: true, cell: (q) => count(q.complete) },
  { head: "Listeners", number: true, cell: (q) => count(q.listeners) },
], list, "No queue has been used.");

export function queues({ live, search, again }) {
  let part = search.get("name") ?? "";
  return {
    title: "Queues",
    lively: true,
    load: () => live.queues(),
    show: ({ list, more }) => {
      const shown = list.filter((q) => q.queue.toLowerCase().includes(part.toLowerCase()));
      const type = (event) => {
        part = event.target.value;
        again();
      };
      return [
        h("div", { class: "actions" }, h("label", null, "Part of the name",
          h("input", { type: "search", value: part, oninput: type }))),
        queueTable(`${many(shown.length, "queue")}`, shown), more && moreQueues()];
    },
  };
}

export function queue({ tenant, search, again }, name) {
  const to = path`/tenants/${tenant}/queues/${name}`;
  const status = search.get("status") ?? "";
  let findings = [];
  let examined = null;
  // The doctor examines the whole tenant: the queue waits neither for it nor for its errors.
  const examine = (signal) => {
    examined ??= get(path`/tenants/${tenant}/findings`, {}, signal).catch(() => ({ items: [] })).then(({ items }) => {
      examined = null;
      findings = items.filter((f) => f.queue === name || f.queues?.includes(name));
      if (!signal.aborted) again();
    });
  };
  return {
    title: `Queue ${name}`,
    load: async (signal) => {
      examine(signal);
      const [shape, tasks, minutes, nodes] = await Promise.all([
        get(to, {}, signal), get(`${to}/tasks`, { status, limit: page, cursor: search.get("cursor") }, signal), minutesOf(tenant, name, signal),
        get(path`/tenants/${tenant}/nodes`, { limit: 1000 }, signal)]);
      return { shape, tasks, minutes, nodes: nodes.items.filter((n) => n.queues.includes(name)) };
    },
    show: ({ shape: q, tasks, minutes, nodes }) => {
      const counts = { "": "all", scheduled: q.scheduled, pending: q.pending, reserved: q.reserved, started: q.started, complete: q.complete, failed: q.failed };
      const reasons = Object.entries(q.totals ?? {}).filter(([key]) => key.startsWith("failed:"));
      return [
        q.error && h("p", { class: "wrong" }, q.error),
        h("p", null, q.paused && badge("paused"), " ", shut(q) && [badge("accepts none", "paused"), " "], (q.pauses ?? []).map(pauseText), q.held_until > now() && [badge("held"), " until ", clock(q.held_until), ", because its server asked for a pause "], q.listeners === 0 && !name.endsWith(".dead") && badge("nobody serves it", "failed")),
        queueActions(q),
        findings.length > 0 && section("What is wrong now", findingList(tenant, findings, name)),
        h("div", { class: "tiles" }, facts(
          ["Pending", count(q.pending)], ["Oldest pending", q.pending ? span(q.oldest_pending_age_seconds) : "–"], ["Running", count(q.started)],
          ["Scheduled", count(q.scheduled)], ["Failed, kept", count(q.failed)], ["Complete, kept", count(q.complete)],
          ["Limit", q.limit ? count(q.limit) : "none"], ["Wait p50, 5 min", span(minutes.wait_p50_seconds)], ["Wait p95, 5 min", span(minutes.wait_p95_seconds)])),
        section("By minute", chart(minutes.items)),
        reasons.length > 0 && section("Failed since the queue exists, by reason", facts(...reasons.map(([key, n]) => [key.slice(7), count(n)]))),
        section("Listeners", nodes.length === 0 && q.listeners > 0 ? h("p", null, `${many(q.listeners, "listener")}, none of them with a lease.`)
          : h("p", null, nodes.length === 0 ? "None: no host with a plugin for it runs, and no worker." : nodes.map((n) => [link(n.listener, tenant, "nodes"), n.alive ? " " : " (dead) ", n.waits_for_memory?.includes(name) && [badge("has no memory for its next task", "warning"), " "]]))),
        section("Tasks",
          h("nav", { class: "actions", "aria-label": "Status" }, Object.entries(counts).map(([key, n]) =>
            h("a", { href: place(tenant, "queues", name, key ? { status: key } : {}), "aria-current": key === status && "page" }, key ? `${key} (${count(n)})` : "all"))),
          taskList(tasks), pager(tasks, (cursor) => place(tenant, "queues", name, { ...(status && { status }), cursor }), search)),
      ];
    },
  };
}

const headline = (task) => {
  const failure = task.status !== "complete" && (task.error ?? task.last_error);
  return failure && h("span", null, failure.reason && `${failure.reason}: `, firstLine(failure));
};

const firstLine = (failure) => (failure.message ?? "").split("\n")[0].slice(0, 300);

/** matched is the line of an earlier run in which a search has found the text, if the last one does not have it. */
const matched = (task, text) => {
  const has = (failure) => failure?.message?.toLowerCase().includes(text.toLowerCase());
  return text && !(task.status !== "complete" && has(task.error ?? task.last_error)) && has(task.last_error)
    && h("div", { class: "faint" }, "an earlier run: ", task.last_error.message.split("\n").find((line) => has({ message: line }))?.slice(0, 300));
};

/** errors groups the failed tasks of a list by the first line of their error, the commonest first. */
const errors = (tenant, list, filter, job) => {
  const groups = new Map();
  for (const t of list.items) {
    const line = t.status === "failed" && t.error && firstLine(t.error);
    if (line) groups.set(line, [...(groups.get(line) ?? []), t]);
  }
  const rows = [...groups].sort((a, b) => b[1].length - a[1].length);
  return rows.length > 0 && list.items.length > 1 && table(`Their errors${list.next ? ", of the tasks listed here" : ""}`, [
    { head: "Error", cell: ([line]) => h("a", { href: place(tenant, "search", { ...filter, status: "failed", error: line }) }, line) },
    { head: "Tasks", number: true, cell: ([, some]) => count(some.length) },
    { head: "Queues", cell: ([, some]) => [...new Set(some.map((t) => t.queue))].slice(0, 5).map((q) => [queueLink(tenant, q), " "]) },
    { head: "First seen", cell: ([, some]) => clock(Math.min(...some.map((t) => t.finished_at))) },
    { head: "Last seen", cell: ([, some]) => clock(Math.max(...some.map((t) => t.finished_at))) },
    { head: "Action", cell: ([line]) => button("operator", "Retry all with this text", () => bulk(tenant, "retry", { ...job, status: "failed", error: line })) },
  ], rows);
};

const taskList = (list, more = [], text = "") => table(`${many(list.items.length, "task")}${list.next ? " of more" : ""}`, [
  { head: "Task", cell: taskLink },
  ...more,
  { head: "Status", cell: (t) => [badge(t.status), t.cancel_asked && badge("to be cancelled", "warning")] },
  { head: "Created", cell: (t) => clock(t.created) },
  { head: "Attempts", number: true, cell: (t) => count(t.attempts) },
  { head: "Key, labels", cell: (t) => [t.key, Object.entries(t.labels ?? {}).map(([k, v]) => h("div", { class: "faint" }, `${k}=${v}`))] },
  { head: "Error or progress", cell: (t) => [headline(t), matched(t, text)].some(Boolean) ? [headline(t), matched(t, text)] : (t.progress && t.status !== "complete" ? `${Math.round(100 * t.progress)} % ${t.message ?? ""}` : "") },
], list.items, list.partial ? "None in the part that was searched." : "None.");

/** pager leads to the next page, and to the first one. */
const pager = (list, to, search) => h("p", { class: "actions" },
  list.partial && h("span", { role: "status" }, "This is not all: the search ended early, to spare Redis."),
  search.get("cursor") && h("a", { href: to("") }, "First page"), list.next && h("a", { href: to(list.next) }, list.partial ? "Search on" : "Next page"));

const statuses = ["scheduled", "pending", "reserved", "started", "complete", "failed"];
const reasonsOf = ["error", "trap", "timeout", "cpu", "memory", "output", "cancelled", "crashed", "exhausted", "expired", "rejected"];

const times = [["", "at any time"], ["1", "in the last hour"], ["24", "in the last day"], ["168", "in the last week"]];

export function search({ tenant, search: asked, go }) {
  const filter = Object.fromEntries([...asked].filter(([name, value]) => value && name !== "cursor"));
  const { hours, ended, ...given } = filter;
  const ago = (n) => Math.floor(now() - 3600 * n);
  const api = { ...given, ...(hours && { since: ago(hours) }), ...(ended && { ended_since: ago(ended) }) };
  const submit = (event) => {
    event.preventDefault();
    go(tenant, "search", Object.fromEntries([...new FormData(event.target)].filter(([, value]) => value)));
  };
  const text = (label, name, type = "search") => h("label", null, label, h("input", { name, type, value: filter[name] ?? "" }));
  const empty = Object.keys(api).length === 0;
  const { status = "" } = filter;
  const finished = ["complete", "failed"].includes(status);
  const job = { ...api, ...(api.label && { label: [api.label] }) };
  return {
    title: "Search",
    every: 60_000, // each may take Redis 2 s
    load: async (signal) => (empty ? null : get(path`/tenants/${tenant}/tasks`, { ...api, limit: page, cursor: asked.get("cursor") }, signal)),
    show: (list) => [
      h("form", { class: "fields", onsubmit: submit, role: "search" },
        text("Queue", "queue"),
        choice("Status", "status", [["", "any"], ...statuses.map((s) => [s, s])], filter.status),
        choice("Reason", "reason", [["", "any"], ...reasonsOf.map((r) => [r, r])], filter.reason),
        text("Text of the error", "error"), text("Key", "key"), text("Label (NAME=VALUE)", "label"), text("Plugin", "plugin"), text("Listener", "node"),
        choice("Created", "hours", times, hours), choice("Finished", "ended", times, ended),
        h("button", { type: "submit" }, "Search")),
      taskByID(tenant, go),
      list && [
        list.items.length > 0 && acts(
          ["", "failed"].includes(status) && button("operator", "Retry all failed ones", () => bulk(tenant, "retry", job)),
          (!status || !finished) && button("operator", "Cancel all that are not finished", dangerous(() => bulk(tenant, "cancel", job))),
          (!status || finished) && button("admin", "Delete all finished ones", dangerous(() => bulk(tenant, "delete", job)))),
        errors(tenant, list, filter, job),
        taskList(list, [{ head: "Queue", cell: (t) => queueLink(t.tenant, t.queue) }], filter.error),
        pager(list, (cursor) => place(tenant, "search", { ...filter, cursor }), asked)]],
  };
}

/** taskByID leads to a task. */
const taskByID = (tenant, go) => h("form", {
  class: "actions",
  onsubmit: (event) => {
    event.preventDefault();
    const id = event.target.elements.id.value.trim();
    if (id) go(tenant, "tasks", id);
  },
}, h("label", null, "Or a task's ID", h("input", { name: "id", type: "search" })), h("button", { type: "submit" }, "Open"));

export function dead({ tenant, search: asked }) {
  return {
    title: "Dead letters",
    every: 60_000,
    load: (signal) => get(path`/tenants/${tenant}/dead-letters`, { limit: page, cursor: asked.get("cursor") }, signal),
    show: (list) => [
      h("p", null, "Each stands for a task that failed for good, in the queue that its plugin names. A retry of a letter that failed retries the task that it stands for."),
      list.items.length > 0 && acts(
        button("operator", "Retry all letters", () => bulk(tenant, "retry", { dead_letters: true })),
        button("operator", "Cancel all waiting letters", dangerous(() => bulk(tenant, "cancel", { dead_letters: true })))),
      taskList(list, [
        { head: "Queue", cell: (t) => queueLink(t.tenant, t.queue) },
        { head: "Stands for", cell: (t) => link(h("span", { class: "code" }, t.live_id), t.tenant, "tasks", t.live_id) }]),
      pager(list, (cursor) => place(tenant, "dead", { cursor }), asked)],
  };
}

/** busyWith tells what has the slots of a host. */
const busyWith = (n) => {
  const own = Object.entries(n.running ?? {}).sort((a, b) => b[1].tasks - a[1].tasks);
  const others = n.kind === "quern" && n.running ? n.slots_in_use - own.reduce((all, [, r]) => all + r.tasks, 0) : 0;
  return [...own.slice(0, 5).map(([queue, r]) => `${count(r.tasks)} ${queue}, since ${clock(r.since).textContent.slice(11, 16)}`), others > 0 && `${count(others)} by other tenants, or just beginning`].filter(Boolean);
};

export function nodes({ tenant }) {
  return {
    title: "Nodes",
    load: (signal) => get(path`/tenants/${tenant}/nodes`, { limit: 1000 }, signal),
    show: ({ items }) => table("Listeners", [
      { head: "Listener", cell: (n) => n.listener },
      { head: "State", cell: (n) => [n.alive ? badge(n.kind === "python" ? "unknown" : "alive", "complete") : badge("dead"), " ", n.draining && badge("draining"), n.waits_for_memory && [" ", badge("out of memory", "warning"), h("div", null, "for a task of ", n.waits_for_memory.slice(0, 20).map((q) => [queueLink(tenant, q), " "]))]] },
      { head: "Kind", cell: (n) => `${n.kind} ${n.version ?? ""}` },
      { head: "Slots", number: true, cell: (n) => (n.slots == null ? "–" : [`${count(n.slots_in_use)} of ${count(n.slots)}`, busyWith(n).map((text) => h("div", { class: "faint" }, text))]) },
      { head: "Memory", number: true, cell: (n) => (n.memory ? [`${size(n.memory_reserved ?? 0)} of ${size(n.memory)}`, n.waits_for_memory && h("div", null, "reserved, maybe for tasks of other tenants")] : "–") },
      { head: "Queues", cell: (n) => n.queues.slice(0, 20).map((q) => [queueLink(tenant, q), " "]) },
      { head: "Runs or holds now", cell: (n) => Object.entries(n.holds).map(([q, ids]) => ids.slice(0, 10).map((id) => h("div", { class: "held" }, h("span", null, taskLink({ tenant, id }), ` ${q}`), n.kind !== "python" && cancel(tenant, id, `of ${q}, on ${n.listener}`)))) },
      { head: "Lease", cell: (n) => (n.lease_ends ? (n.alive ? `${span(Math.max(0, n.lease_ends - now()))} left` : ["ended ", clock(n.lease_ends)]) : "–") },
      { head: "Action", cell: nodeActions },
    ], items, "No listener: start a host with `quern serve`."),
  };
}

const share = (v) => (v.complete + v.failed ? `${((100 * v.failed) / (v.complete + v.failed)).toFixed(1)} %` : "–");

export function plugins({ tenant }) {
  return {
    title: "Plugins",
    load: async (signal) => {
      const [list, versions] = await Promise.all([
        get(path`/tenants/${tenant}/plugins`, { limit: 1000 }, signal), get(path`/tenants/${tenant}/versions`, {}, signal)]);
      return { list: list.items, versions: versions.items };
    },
    show: ({ list, versions }) => {
      const same = (v, p) => v.plugin === p.plugin && version(v.digest) === version(p.digest) && (v.release ?? 0) === (p.release ?? 0);
      const rates = (p) => versions.find((v) => same(v, p)) ?? { complete: 0, failed: 0 };
      const gone = versions.filter((v) => !list.some((p) => same(v, p)));
      const rows = [...list, ...gone.map((v) => ({ ...v, state: "replaced", nodes: [] }))].sort((a, b) => (a.plugin < b.plugin ? -1 : a.plugin > b.plugin ? 1 : 0));
      return [
        h("p", { class: "faint" }, "What tasks ended as in this hour and the one before, by the version that ran them."),
        table("Plugins by version", [
          { head: "Plugin", cell: (p) => link(p.plugin, tenant, "plugins", p.plugin) },
          { head: "Version", cell: (p) => [p.version, h("div", { class: "code faint" }, version(p.digest))] },
          { head: "State", cell: (p) => [badge(p.state), p.since && h("div", { class: "faint" }, "since ", clock(p.since))] },
          { head: "From", cell: (p) => (p.release ? `release ${p.release}` : p.nodes.length > 0 && "directory") },
          { head: "Complete", number: true, cell: (p) => count(rates(p).complete) },
          { head: "Failed runs", number: true, cell: (p) => count(rates(p).failed) },
          { head: "Failure rate", number: true, cell: (p) => share(rates(p)) },
          { head: "Queues", cell: (p) => (p.queues ?? []).map((q) => [queueLink(tenant, q), " "]) },
          { head: "On", cell: (p) => p.nodes.map((n) => h("div", null, n)) },
          { head: "What is wrong", cell: (p) => p.error },
          { head: "Action", cell: (p) => p.state === "quarantined" && release(tenant, p.plugin, p.digest) },
        ], rows, "No host that is alive has a plugin.")];
    },
  };
}

export function jobs({ tenant }) {
  return {
    title: "Jobs",
    load: (signal) => get(path`/tenants/${tenant}/jobs`, {}, signal),
    show: ({ items }) => table("The last jobs", [
      { head: "Job", cell: (j) => link(`${j.action} ${words(j.filter)}`, tenant, "jobs", j.id) },
      { head: "State", cell: (j) => badge(j.interrupted ? "interrupted" : j.state, j.interrupted ? "warning" : j.state) },
      { head: "Tasks", number: true, cell: (j) => `${count(j.ended)} of ${count(j.items)}` },
      { head: "By", cell: (j) => j.by },
      { head: "Created", cell: (j) => clock(j.created) },
    ], items, "None in the last week. The buttons of a queue, of a search and of the dead letters make jobs."),
  };
}

export function job({ tenant }, id) {
  const to = path`/tenants/${tenant}/jobs/${id}`;
  return {
    title: "Job",
    every: 1000,
    load: async (signal) => {
      const [shape, items] = await Promise.all([get(to, {}, signal), get(`${to}/items`, { limit: 100 }, signal)]);
      return { shape, items: items.items };
    },
    show: ({ shape: j, items }) => [
      h("p", null, badge(j.interrupted ? "interrupted" : j.state, j.interrupted ? "warning" : j.state), ` ${j.action} tasks with ${words(j.filter)}`),
      j.error && h("p", { class: "wrong" }, j.error),
      jobActions(j),
      h("p", null, h("label", null, `${count(j.ended)} of ${many(j.items, "task")}`, h("progress", { max: Math.max(1, j.items), value: j.ended }))),
      facts(...Object.entries(j.ends ?? {}).map(([end, n]) => [end, count(n)]), ["By", j.by], ["Created", clock(j.created)]),
      section("Its first 100 tasks", table("Tasks", [
        { head: "Task", cell: (item) => taskLink({ tenant, id: item.id }) },
        { head: "End", cell: (item) => (item.end ? badge(item.end) : "–") },
        { head: "Why", cell: (item) => item.text },
      ], items))],
  };
}

const readTenants = 50; // at a time, each with what is wrong in it

/** tenants tells where to look first: what is wrong, what fails, and what is nearly full, by tenant. */
export function tenants({ search: asked }) {
  return {
    title: "Tenants",
    every: 15_000,
    load: async (signal) => {
      const list = await get("/tenants", { limit: readTenants, cursor: asked.get("cursor") }, signal);
      list.items = await Promise.all(list.items.map(async (t) => {
        const to = path`/tenants/${t.tenant}`;
        const [findings, minutes, quotas] = await Promise.all([
          get(`${to}/findings`, {}, signal), get(`${to}/minutes`, { minutes: 6 }, signal), get(`${to}/quotas`, {}, signal)]);
        return { ...t, findings: findings.items, minutes: minutes.items.slice(0, 5), quotas: quotas.items };
      }));
      return list;
    },
    show: (list) => [
      table("Tenants", [
        { head: "Tenant", cell: (t) => link(t.tenant, t.tenant) },
        { head: "What is wrong now", cell: (t) => ["error", "warning"].map((level) => {
          const n = t.findings.filter((f) => f.level === level).length;
          return n > 0 && [link(badge(many(n, level), level), t.tenant), " "];
        }) },
        { head: "Complete, 5 min", number: true, cell: (t) => count(sum(t.minutes, "complete")) },
        { head: "Failed runs, 5 min", number: true, cell: (t) => count(sum(t.minutes, "failed")) },
        { head: "Queues", number: true, cell: (t) => link(count(t.queues), t.tenant, "queues") },
        { head: "Fullest limits", cell: (t) => (t.quotas.length ? t.quotas.slice(0, 3).map((q) => h("div", null, quota(t.tenant, q))) : h("span", { class: "faint" }, "none set")) },
      ], list.items),
      pager(list, (cursor) => place({ cursor }), asked)],
  };
}

/** quota shows how much of a limit is used. */
function quota(tenant, q) {
  if (q.limit === 0) return [`${q.name} `, h("span", { class: "faint" }, q.value)];
  const name = q.kind === "tenant" ? `quota ${q.name}` : q.kind === "queue" ? link(`queue ${q.name}`, tenant, "queues", q.name) : link(`bucket ${q.name}`, tenant, "store");
  const amount = q.kind === "bucket" || q.kind === "tenant" && /^(bytes_waiting|memory|kv_bytes|log_bytes|bytes_finished)$/.test(q.name) ? size : count;
  const text = `${amount(q.used)} of ${amount(q.limit)} (${Math.round(100 * q.share)} %)${q.refused ? `, ${count(q.refused)} refused` : ""}`;
  const scarce = q.share >= 0.8 && !(q.kind === "tenant" && q.name === "bytes_finished"); // what is finished makes room by itself
  return [name, h("div", { class: scarce ? "wrong" : "faint" }, text), h("progress", { max: 1, value: Math.min(1, q.share), "aria-label": `${q.kind} ${q.name}: ${text}` })];
}

export function buckets({ tenant }) {
  return {
    title: "Store",
    every: 15_000,
    load: (signal) => get(path`/tenants/${tenant}/kv`, { limit: 1000 }, signal),
    show: ({ items }) => [
      h("p", { class: "faint" }, "The buckets that handlers keep values in."),
      table("Buckets", [
        { head: "Bucket", cell: (b) => b.bucket },
        { head: "Keys", number: true, cell: (b) => count(b.keys) },
        { head: "Size", number: true, cell: (b) => size(b.bytes) },
        { head: "Quota", cell: (b) => (b.quota ? [h("div", { class: b.bytes >= 0.9 * b.quota ? "wrong" : "faint" }, `${Math.round((100 * b.bytes) / b.quota)} % of ${size(b.quota)}`), h("progress", { max: b.quota, value: Math.min(b.bytes, b.quota), "aria-label": `Quota of ${b.bucket}` })] : "no live plugin may write") },
      ], items)],
  };
}

export function audit({ tenant, search: asked }) {
  return {
    title: "Audit",
    load: (signal) => optional(get(path`/tenants/${tenant}/audit`, { limit: page, cursor: asked.get("cursor") }, signal)),
    show: (list) => (list == null ? h("p", null, "Only admins may read the audit log.") : [
      table("Who did what", [
        { head: "When", cell: (e) => clock(e.time) },
        { head: "Who", cell: (e) => e.who },
        { head: "Action", cell: (e) => e.action },
        { head: "On", cell: (e) => e.on },
        { head: "Detail", cell: (e) => e.detail },
        { head: "From", cell: (e) => e.from },
        { head: "Answer", number: true, cell: (e) => badge(e.status, e.status < 400 ? "complete" : "failed") },
      ], list.items), pager(list, (cursor) => place(tenant, "audit", { cursor }), asked)]),
  };
}

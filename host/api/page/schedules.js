// The views of schedules, and what may be done to them.

import { acts, button, choice, field, lines, me, pairs, post, text } from "./actions.js";
import { call, path, Problem, query } from "./api.js";
import { badge, clock, count, facts, h, link, place, section, span, table } from "./dom.js";

const page = 1000;

export function schedules({ tenant }) {
  return {
    title: "Schedules",
    load: (signal) => call(query(path`/tenants/${tenant}/schedules`, { limit: page }), { signal }),
    show: ({ items, next }) => [
      acts(change(tenant)),
      table("Recurring tasks", [
        { head: "Schedule", cell: (s) => link(s.id, tenant, "schedules", s.id) },
        { head: "Queue", cell: (s) => link(s.queue, tenant, "queues", s.queue) },
        { head: "Cron", cell: (s) => [h("span", { class: "code" }, s.cron), h("div", { class: "faint" }, s.timezone ?? "UTC")] },
        { head: "Next ticks", cell: (s) => (s.paused ? badge("paused") : s.error ? h("span", { class: "wrong" }, s.error) : ticks(s).slice(0, 3)) },
        { head: "Last", cell: (s) => (s.last ? link(clock(s.last), tenant, "tasks", s.last_id) : "–") },
        { head: "Fired", number: true, cell: (s) => count(s.fired) },
        { head: "Skipped", number: true, cell: (s) => count(s.skipped) },
        { head: "Missed", number: true, cell: (s) => count(s.missed_ticks) },
        { head: "Owner", cell: (s) => [s.owner, s.absent && badge("no host has it", "warning")] },
        { head: "Action", cell: (s) => acts(pause(s), run(s)) },
      ], items, "None: the button makes one, or `quern schedule create`, or the section schedule of a manifest."),
      next && h("p", { class: "faint" }, `These are the first ${count(page)} by name.`)],
  };
}

const ticks = (s) => (s.next_ticks ?? []).map((tick) => h("div", null, clock(tick)));

export function schedule({ tenant }, id) {
  return {
    title: `Schedule ${id}`,
    load: async (signal) => {
      const s = await call(path`/tenants/${tenant}/schedules/${id}`, { signal });
      const queue = await call(path`/tenants/${tenant}/queues/${s.queue}`, { signal }).catch((problem) => {
        if (problem.status !== 404) throw problem;
        return { listeners: 0 };
      });
      return { ...s, unserved: queue.listeners === 0 };
    },
    show: (s) => [
      s.unserved && h("p", { class: "wrong" }, `Nobody serves the queue ${s.queue}: its tasks wait there. Start a host with a plugin for it, or change the queue if another one is meant.`),
      h("p", null, s.paused && [badge("paused"), " since ", clock(s.paused)], s.absent && [badge("no host has its plugin", "warning"), " since ", clock(s.absent)]),
      s.error && h("p", { class: "wrong" }, s.error),
      acts(pause(s), run(s), me.payloads && change(tenant, s), remove(s)),
      section("About it", facts(
        ["Queue", link(s.queue, tenant, "queues", s.queue)], ["Cron", h("span", { class: "code" }, s.cron)], ["Time zone", s.timezone ?? "UTC"],
        ["Next ticks", s.next_ticks && ticks(s)], ["Last tick", s.last && link(clock(s.last), tenant, "tasks", s.last_id)],
        ["Fired", count(s.fired)], ["Skipped", count(s.skipped)], ["Missed", count(s.missed_ticks)],
        ["Missed ticks", `${s.missed}${s.max_missed ? `, at most ${count(s.max_missed)}` : ""}`], ["Of at most", s.window_seconds && span(s.window_seconds)],
        ["Overlap", s.overlap], ["Priority", s.priority], ["Time limit", s.timeout_seconds && span(s.timeout_seconds)],
        ["Attempts", s.max_attempts && (s.max_attempts < 0 ? "unlimited" : count(s.max_attempts))], ["Oldest", s.max_age_seconds && span(s.max_age_seconds)],
        ["Labels", s.labels && lines(s.labels).map((label) => h("div", null, label))],
        ["Owner", s.owner], ["Created", clock(s.created)], ["Changed", clock(s.updated)])),
      h("p", null, link("Its tasks", tenant, "search", { queue: s.queue, key: s.id })),
      s.parameters && section("Parameters", h("pre", { tabindex: "0" }, s.parameters)),
      s.parameters_base64 && section("Parameters", h("p", null, "They are no text."))],
  };
}

const at = (s) => path`/tenants/${s.tenant}/schedules/${s.id}`;

export const pause = (s) => (s.paused
  ? button("operator", "Resume", { title: `Resume ${s.id}?`, text: "Its ticks count from now: those of the pause never come.", run: () => post(`${at(s)}/resume`) })
  : button("operator", "Pause", { title: `Pause ${s.id}?`, text: "No tick fires until it is resumed.", run: () => post(`${at(s)}/pause`) }));

const run = (s) => button("operator", "Run now", {
  title: `Run ${s.id}?`, text: `One task is enqueued in ${s.queue} at once, beside its ticks.`,
  run: () => post(`${at(s)}/run`).then((task) => place(s.tenant, "tasks", task.id)),
});

export const remove = (s) => !(s.owner.startsWith("plugin ") && !s.absent) && button("operator", "Delete", {
  title: `Delete ${s.id}?`, text: "No tick comes any more. The tasks that it has enqueued stay.", verb: "Delete the schedule", danger: true,
  run: () => post(at(s), undefined, "DELETE").then(() => place(s.tenant, "schedules")),
});

const definition = ["parameters_base64", "max_missed", "window_seconds", "priority", "timeout_seconds", "max_attempts", "max_age_seconds", "retry"];

/** change is the button that makes a schedule, or changes one that there is: what the form does not show stays. */
const change = (tenant, s) => (!s || s.owner === "hand") && button("operator", s ? "Change" : "Make a schedule", {
  title: s ? `Change ${s.id}` : "Make a schedule", text: "At each tick one task is enqueued, however many hosts there are.",
  fields: [
    !s && field("Name", { name: "id", required: true, maxlength: 100 }),
    field("Queue", { name: "queue", required: true, value: s?.queue }),
    field("Cron, such as 30 6 * * MON-FRI, @daily or @every 90s", { name: "cron", required: true, value: s?.cron }),
    field("Time zone, such as Europe/Berlin", { name: "timezone", value: s?.timezone }),
    !s?.parameters_base64 && text("Parameters of each task", "parameters", s?.parameters),
    text("Labels, NAME=VALUE, one a line", "labels", lines(s?.labels).join("\n")),
    choice("Ticks that came while no host ran", "missed", [["one", "fire the last"], ["skip", "fire none"], ["all", "fire all"]], s?.missed),
    choice("A tick while the last one's task goes on", "overlap", [["allow", "fires"], ["skip", "is skipped"], ["queue", "waits for it"]], s?.overlap)],
  verb: s ? "Change it" : "Make it",
  run: async ({ elements: given }) => {
    const body = Object.fromEntries(definition.filter((name) => s?.[name] != null).map((name) => [name, s[name]]));
    for (const name of ["queue", "cron", "timezone", "parameters", "missed", "overlap"]) if (given[name]?.value) body[name] = given[name].value;
    if (body.missed !== "all") delete body.max_missed;
    const id = s?.id ?? given.id.value;
    const { put } = await post(query(path`/tenants/${tenant}/schedules/${id}`, { missing: !s }), { ...body, labels: pairs(given.labels.value) }, "PUT");
    if (put === "kept") throw new Problem(400, "a schedule of this name exists: change that one");
    return place(tenant, "schedules", id);
  },
});

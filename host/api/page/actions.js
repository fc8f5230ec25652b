// What the page changes: each action says in a dialog what it does, and to how many.

import { call, path, Problem, query, sleep } from "./api.js";
import { count, h, many, morph, place } from "./dom.js";

/** may tells whether the caller's role is enough; the API asks itself. app.js sets who it is. */
export const me = { role: "viewer", payloads: true };
const roles = ["viewer", "operator", "admin"];
export const may = (role) => roles.indexOf(me.role) >= roles.indexOf(role);

const dialog = () => document.querySelector("dialog");

/**
 * ask opens the dialog, and does what it says when a person confirms: run gets the form, and may return where to go. An error
 * stays in the dialog.
 */
export function ask({ title, text, fields = [], verb, danger = false, run }) {
  const wrong = h("p", { class: "wrong", role: "alert" });
  const confirm = h("button", { class: danger && "danger", type: "submit" }, verb);
  const submit = async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    wrong.textContent = "";
    try {
      const to = await run(form);
      dialog().close();
      if (to) location.hash = to;
      dispatchEvent(new Event("acted"));
    } catch (problem) {
      wrong.textContent = problem.message;
      confirm.disabled = false;
    }
  };
  const form = h("form", { onsubmit: submit },
    h("h2", { id: "dialog-title" }, title), h("p", null, text), fields, wrong,
    h("div", { class: "actions" }, confirm, h("button", { type: "button", onclick: () => dialog().close() }, "Leave it")));
  dialog().replaceChildren(form);
  dialog().showModal();
}

/** button opens a dialog, if the caller's role allows the action. */
const button = (role, words, open, danger) => may(role) && h("button", { type: "button", class: danger && "danger", onclick: open }, words);

/** field is a named input of a dialog. */
const field = (label, props) => h("label", null, label, h("input", props));

/** choice is a named list of a dialog. */
export const choice = (label, name, options, chosen) => h("label", null, label,
  h("select", { name }, options.map(([value, words]) => h("option", { value, selected: value === chosen }, words))));

const post = (to, body, method = "POST") => call(to, { method, body });

/** queueActions are the buttons of a queue. */
export function queueActions(queue) {
  const to = path`/tenants/${queue.tenant}/queues/${queue.queue}`;
  const waiting = queue.pending + queue.scheduled;
  const finished = queue.complete + queue.failed;
  return h("div", { class: "actions" },
    queue.paused
      ? button("operator", "Resume", () => ask({
        title: `Resume ${queue.queue}?`, text: `Hosts take its ${many(waiting, "waiting task")} again.`, verb: "Resume",
        run: () => post(`${to}/resume`).then(() => null),
      }))
      : button("operator", "Pause", () => ask({
        title: `Pause ${queue.queue}?`,
        text: `Hosts take no more of its ${many(waiting, "waiting task")}; ${many(queue.started, "running task")} go on. Python listeners do not know pauses.`,
        verb: "Pause", run: () => post(`${to}/pause`).then(() => null),
      })),
    button("operator", "Limit", () => ask({
      title: `Limit ${queue.queue}`, text: `${many(waiting, "task")} wait now and stay; above the limit enqueueing is refused. 0: no limit.`,
      fields: field("Most waiting tasks", { name: "limit", type: "number", min: 0, required: true, value: queue.limit ?? 0 }), verb: "Set the limit",
      run: (form) => post(`${to}/limit`, { limit: Number(form.elements.limit.value) }, "PUT").then(() => null),
    })),
    queue.failed > 0 && button("operator", "Retry failed", () => bulk(queue.tenant, "retry", { queue: queue.queue })),
    ["pending", "scheduled"].filter((status) => queue[status] > 0).map((status) =>
      button("operator", `Cancel ${status}`, () => bulk(queue.tenant, "cancel", { queue: queue.queue, status }), true)),
    finished > 0 && button("admin", "Purge", () => ask({
      title: `Purge ${queue.queue}?`,
      text: `It keeps ${many(queue.complete, "complete task")} and ${many(queue.failed, "failed task")}. Those that you choose are deleted with results, logs and histories, for good.`,
      fields: h("div", { class: "actions" },
        choice("Status", "status", [["", "complete and failed"], ["complete", `complete (${count(queue.complete)})`], ["failed", `failed (${count(queue.failed)})`]]),
        choice("Finished", "age", [["86400", "more than a day ago"], ["3600", "more than an hour ago"], ["604800", "more than a week ago"], ["0", "at any time: all of them"]])),
      verb: "Delete them", danger: true,
      run: async (form) => {
        const age = form.elements.age.value;
        const purge = query(`${to}/purge`, { status: form.elements.status.value, ...(age === "0" ? { all: true } : { older_than_seconds: age }) });
        let total = 0;
        for (let partial = true; partial;) {
          let purged;
          ({ purged, partial } = await post(purge));
          total += purged;
        }
        announce(`${many(total, "task")} deleted.`);
      },
    }), true));
}

/** cancel is the button that ends a task which a listener holds. */
export const cancel = (tenant, id, where) => button("operator", "Cancel", () => ask({
  title: "Cancel this task?", text: `${id} ${where}: its host stops it, and it fails as cancelled.`, verb: "Cancel the task", danger: true,
  run: () => post(path`/tenants/${tenant}/tasks/${id}/cancel`).then(() => null),
}), true);

/** taskActions are the buttons of a task. */
export function taskActions(task) {
  const to = path`/tenants/${task.tenant}/tasks/${task.id}`;
  const finished = task.status === "complete" || task.status === "failed";
  return h("div", { class: "actions" },
    !finished && button("operator", "Cancel", () => ask({
      title: "Cancel this task?", text: `It is ${task.status}. ${task.status === "started" ? "Its host stops it" : "It will not run"}, and it fails as cancelled.`,
      verb: "Cancel the task", danger: true, run: () => post(`${to}/cancel`).then(() => null),
    }), true),
    task.status === "failed" && button("operator", "Retry", () => ask({
      title: "Retry this task?", text: `It waits in ${task.queue} like a new one; its attempts are counted from 0.`, verb: "Retry the task",
      run: () => post(`${to}/retry`).then(() => null),
    })),
    finished && button("admin", "Delete", () => ask({
      title: "Delete this task?", text: "It goes with its parameters, result, log and history, for good.", verb: "Delete the task", danger: true,
      run: () => post(to, undefined, "DELETE").then(() => place(task.tenant, "queues", task.queue)),
    }), true));
}

/** scheduleActions are the buttons of a schedule. */
export function scheduleActions(schedule) {
  const to = path`/tenants/${schedule.tenant}/schedules/${schedule.id}`;
  const act = (verb, what, text) => button("operator", verb, () => ask({
    title: `${verb} ${schedule.id}?`, text, verb, run: () => post(`${to}/${what}`).then((answer) => (what === "run" ? place(schedule.tenant, "tasks", answer.id) : null)),
  }));
  return h("div", { class: "actions" },
    schedule.paused ? act("Resume", "resume", "Its ticks count from now: those of the pause never come.") : act("Pause", "pause", "No tick fires until it is resumed."),
    act("Run now", "run", `A task is enqueued in ${schedule.queue} at once, beside its ticks.`));
}

/** nodeActions are the buttons of a listener. */
export function nodeActions(node) {
  const to = path`/tenants/${node.tenant}/nodes/${node.listener}`;
  const held = Object.values(node.holds).flat().length;
  if (node.alive && node.kind !== "python") {
    return !node.draining && button("admin", "Drain", () => ask({
      title: "Drain this listener?", text: `${node.listener} takes no more tasks of ${node.tenant}, finishes its ${many(held, "task")}, and leaves. A restart brings it back.`,
      verb: "Drain it", danger: true, run: () => post(`${to}/drain`).then(() => null),
    }), true);
  }
  return button("admin", "Reclaim", () => ask({
    title: "Reclaim its tasks?",
    text: `The ${many(held, "task")} that ${node.listener} holds return to their queues.${node.kind === "python" ? " Make sure that its process has ended, or they run twice." : ""}`,
    verb: "Reclaim them", danger: true,
    run: async () => {
      const end = await post(`${to}/reclaim`);
      announce(`${count(end.returned)} returned, ${count(end.scheduled)} scheduled, ${count(end.failed)} failed, ${count(end.dropped)} dropped.`);
    },
  }), true);
}

/** release ends the quarantine of a plugin. */
export const release = (tenant, plugin, digest) => button("admin", "Release", () => ask({
  title: `Release ${plugin}?`, text: "Its tasks ended several hosts. Hosts take them again at once, and may end again.", verb: "Release it", danger: true,
  run: () => post(query(path`/tenants/${tenant}/plugins/${plugin}/release`, { digest })).then(() => null),
}), true);

/** remedy is the button that does what a finding of the doctor asks for, if the page can. */
export function remedy(tenant, [noun, verb, name, value] = []) {
  const queue = path`/tenants/${tenant}/queues/${name ?? ""}`;
  switch (`${noun} ${verb}`) {
    case "queue resume":
      return button("operator", "Resume", () => ask({ title: `Resume ${name}?`, text: "Hosts take its waiting tasks again.", verb: "Resume", run: () => post(`${queue}/resume`).then(() => null) }));
    case "queue limit":
      return button("operator", `Limit to ${count(value)}`, () => ask({
        title: `Limit ${name} to ${count(value)}?`, text: "So many tasks may wait; above that enqueueing is refused.", verb: "Set the limit",
        run: () => post(`${queue}/limit`, { limit: Number(value) }, "PUT").then(() => null),
      }));
    case "node reclaim":
      return nodeActions({ tenant, listener: name, holds: {}, kind: "quern", alive: false });
    case "plugin release":
      return release(tenant, name);
  }
  return null;
}

const verbs = { retry: "Retry", cancel: "Cancel", delete: "Delete" };

/** bulk counts the tasks of a filter by a job, asks, and starts it. */
export async function bulk(tenant, action, filter) {
  const gone = new AbortController();
  const told = h("p", { role: "status" }, "Counting…");
  const jobs = path`/tenants/${tenant}/jobs`;
  dialog().replaceChildren(h("div", null,
    h("h2", { id: "dialog-title" }, `${verbs[action]} tasks`), told,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog().close() }, "Leave it"))));
  dialog().showModal();
  // The event of a dialog before this one may come only now: then this one is open.
  dialog().addEventListener("close", () => dialog().open || gone.abort(), { signal: gone.signal });
  try {
    let job = await post(jobs, { action, filter });
    const at = `${jobs}/${job.id}`;
    while (job.state === "counting" && !job.interrupted) {
      await sleep(300, gone.signal);
      if (gone.signal.aborted) return void post(`${at}/stop`);
      job = await call(at);
      told.textContent = `Counting: ${count(job.items)} so far…`;
    }
    if (job.state === "counting") throw new Problem(0, job.error || "the process that counted has ended: try again");
    if (job.items === 0) {
      told.textContent = "No task passes: there is nothing to do.";
      return;
    }
    dialog().close();
    ask({
      title: `${verbs[action]} ${many(job.items, "task")}?`,
      text: `Those with ${words(filter)}.${job.more ? " More tasks pass: do it again afterwards." : ""} You can watch and stop it.`,
      verb: `${verbs[action]} ${many(job.items, "task")}`, danger: action !== "retry",
      run: () => post(`${at}/start`).then(() => place(tenant, "jobs", job.id)),
    });
  } catch (problem) {
    told.className = "wrong";
    told.textContent = problem.message;
  }
}

/** words tell a filter. */
export const words = (filter) => Object.entries(filter).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", ");

/** jobActions are the buttons of a job. */
export function jobActions(job) {
  const to = path`/tenants/${job.tenant}/jobs/${job.id}`;
  const left = job.items - job.ended;
  const role = job.action === "delete" ? "admin" : "operator";
  return h("div", { class: "actions" },
    ["counting", "running"].includes(job.state) && !job.stopping && !job.interrupted && button("operator", "Stop", () => ask({
      title: "Stop this job?", text: `It stops after its present task; about ${many(left, "task")} stay as they are. It can go on later.`, verb: "Stop it",
      run: () => post(`${to}/stop`).then(() => null),
    }), true),
    (["counted", "stopped"].includes(job.state) || job.interrupted) && button(role, job.state === "counted" ? "Start" : "Go on", () => ask({
      title: `${verbs[job.action]} ${many(left, "task")}?`, text: `Those with ${words(job.filter)}.`, verb: `${verbs[job.action]} ${many(left, "task")}`, danger: job.action !== "retry",
      run: () => post(`${to}/start`).then(() => null),
    })));
}

/** announce tells what an action did. */
function announce(text) {
  const told = h("p", { role: "status" }, text);
  morph(document.querySelector("#told") ?? document.querySelector("header").appendChild(h("div", { id: "told" })), h("div", { id: "told" }, told));
}

// What the page changes: each action says in a dialog what it does, and to how many.

import { call, path, Problem, query, sleep } from "./api.js";
import { coded, count, h, many, morph, place } from "./dom.js";

/** may tells whether the caller's role is enough; the API asks itself. app.js sets who it is. */
export const me = { role: "viewer", payloads: true };
const roles = ["viewer", "operator", "admin"];
export const may = (role) => roles.indexOf(me.role) >= roles.indexOf(role);

const dialog = () => document.querySelector("dialog");

/**
 * ask opens the dialog, and does what it says when a person confirms: run gets the form and what makes a repeat the same, and may
 * return where to go, or what to do when the dialog is closed. An error stays in the dialog.
 */
export function ask({ title, text, fields = [], verb, danger = false, run }) {
  const once = crypto.getRandomValues(new Uint32Array(4)).join("-"); // however often it is confirmed
  const wrong = h("p", { class: "wrong", role: "alert" });
  const confirm = h("button", { class: danger && "danger", type: "submit" }, verb);
  const submit = async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    wrong.textContent = "";
    try {
      const to = await run(form, once);
      dialog().close();
      if (typeof to === "string") location.hash = to;
      if (typeof to === "function") to();
      dispatchEvent(new Event("acted"));
    } catch (problem) {
      wrong.textContent = problem.message + (problem.lost ? ". It may have been done all the same." : "");
      confirm.disabled = false;
      confirm.focus(); // which it lost
    }
  };
  const form = h("form", { onsubmit: submit },
    h("h2", { id: "dialog-title" }, title), h("p", null, coded(text)), fields, wrong,
    h("div", { class: "actions" }, confirm, h("button", { type: "button", onclick: () => dialog().close() }, "Leave it")));
  dialog().replaceChildren(form);
  dialog().showModal();
}

/** button opens a dialog, or does something else, if the caller's role allows the action. */
export const button = (role, words, what) => may(role) && h("button", {
  type: "button", class: what.danger && "danger", onclick: () => (what.run ? ask({ verb: words, ...what }) : what()),
}, words);

/** acts is a row of buttons. */
export const acts = (...buttons) => h("div", { class: "actions" }, buttons);

/** field is a named input of a dialog, and text one of several lines. */
export const field = (label, props) => h("label", null, label, h("input", props));

export function text(label, name, value = "") {
  const area = h("textarea", { name, rows: 4 });
  area.value = value; // as it is: what h writes shows hidden characters
  return h("label", null, label, area);
}

/** choice is a named list of a dialog. */
export const choice = (label, name, options, chosen) => h("label", null, label,
  h("select", { name }, options.map(([value, words]) => h("option", { value, selected: value === chosen }, words))));

/** lines are NAME=VALUE of an object, and pairs the object of such lines. */
export const lines = (values) => Object.entries(values ?? {}).map(([name, value]) => `${name}=${value}`);

export const pairs = (given) => Object.fromEntries(given.split("\n").filter((line) => line.trim()).map((line) => {
  const at = line.indexOf("=");
  if (at < 1) throw new Problem(400, `${line}: write NAME=VALUE`);
  return [line.slice(0, at).trim(), line.slice(at + 1)];
}));

export const post = (to, body, method = "POST") => call(to, { method, body });

/** sent posts bytes or a text as they are, for the same key once. */
export const sent = (to, raw, once) => call(to, { method: "POST", raw, once });

/** queueActions are the buttons of a queue. */
export function queueActions(queue) {
  const to = path`/tenants/${queue.tenant}/queues/${queue.queue}`;
  const waiting = queue.pending + queue.scheduled;
  const finished = queue.complete + queue.failed;
  const pauses = (queue.pauses ?? []).filter((p) => !p.accepting && !p.key);
  return acts(
    queue.paused && (pauses.length === 0 || pauses.some((p) => p.queue)) // not of the tenant alone
      ? button("operator", "Resume", { title: `Resume ${queue.queue}?`, text: `Hosts take its ${many(waiting, "waiting task")} again.`, run: () => post(`${to}/resume`) })
      : button("operator", "Pause", {
        title: `Pause ${queue.queue}?`,
        text: `Hosts take no more of its ${many(waiting, "waiting task")}; ${many(queue.started, "running task")} ${queue.started === 1 ? "goes" : "go"} on. Python listeners do not know pauses.`,
        fields: field("Why, for others", { name: "reason", maxlength: 1024 }),
        run: ({ elements: { reason } }) => post(query(`${to}/pause`, { reason: reason.value })),
      }),
    button("operator", "Limit", {
      title: `Limit ${queue.queue}`, text: `${many(waiting, "task")} ${waiting === 1 ? "waits" : "wait"} now and ${waiting === 1 ? "stays" : "stay"}; above the limit enqueueing is refused. 0: no limit.`,
      fields: field("Most waiting tasks", { name: "limit", type: "number", min: 0, required: true, value: queue.limit ?? 0 }), verb: "Set the limit",
      run: (form) => post(`${to}/limit`, { limit: Number(form.elements.limit.value) }, "PUT"),
    }),
    button("operator", "Enqueue", {
      title: `Enqueue in ${queue.queue}`, text: `One task, behind the ${many(queue.pending, "task")} that ${queue.pending === 1 ? "is" : "are"} pending.`,
      fields: [
        text("Parameters", "parameters"), field("ID, so that it is enqueued once", { name: "id", maxlength: 128 }), field("Key", { name: "key" }),
        field("In so many seconds", { name: "delay_seconds", type: "number", min: 0, step: "any" })],
      verb: "Enqueue it",
      run: async ({ elements: given }, once) => {
        const options = Object.fromEntries(["id", "key", "delay_seconds"].map((name) => [name, given[name].value]));
        const { id, existed } = await sent(query(`${to}/tasks`, options), given.parameters.value, options.id ? "" : once);
        const at = place(queue.tenant, "tasks", id);
        return existed ? arrive(at, "It was enqueued before: nothing is enqueued now.") : at;
      },
    }),
    queue.failed > 0 && button("operator", "Retry failed", () => bulk(queue.tenant, "retry", { queue: queue.queue })),
    ["pending", "scheduled"].filter((status) => queue[status] > 0).map((status) =>
      button("operator", `Cancel ${status}`, dangerous(() => bulk(queue.tenant, "cancel", { queue: queue.queue, status })))),
    finished > 0 && button("admin", "Purge", {
      title: `Purge ${queue.queue}?`,
      text: `It keeps ${many(queue.complete, "complete task")} and ${many(queue.failed, "failed task")}. Those that you choose are deleted with results, logs and histories, for good.`,
      fields: acts(
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
    }));
}

/** dangerous marks what a button does as something that cannot be undone. */
export const dangerous = (what) => Object.assign(what, { danger: true });

/** cancel is the button that ends a task which a listener holds. */
export const cancel = (tenant, id, where) => button("operator", "Cancel", {
  title: "Cancel this task?", text: `${id} ${where}: its host stops it, and it fails as cancelled.`, verb: "Cancel the task", danger: true,
  run: () => post(path`/tenants/${tenant}/tasks/${id}/cancel`),
});

/** taskActions are the buttons of a task, which has its tree. */
export function taskActions(task) {
  const to = path`/tenants/${task.tenant}/tasks/${task.id}`;
  const finished = task.status === "complete" || task.status === "failed";
  const waiting = waitFor(task.tree);
  return acts(
    !finished && button("operator", "Cancel", {
      title: "Cancel this task?", text: `It is ${task.status}. ${task.status === "started" ? "Its host stops it" : "It will not run"}, and it fails as cancelled.`,
      verb: "Cancel the task", danger: true, run: () => post(`${to}/cancel`),
    }),
    (waiting > 0 || (!finished && task.after)) && button("operator", "Cancel the flow", {
      title: "Cancel the flow?", text: `${many(waiting, "task")} shown in the tree ${waiting === 1 ? "waits" : "wait"} for this one, directly or not: they are cancelled with it. Those that have finished stay as they are.`,
      fields: h("label", { class: "tick" }, h("input", { name: "whole", type: "checkbox" }), "Also what this one waits for, what waits for that, and so on"),
      verb: "Cancel the flow", danger: true,
      run: async ({ elements: { whole } }) => {
        const end = await post(query(`${to}/cancel-flow`, { whole: whole.checked }));
        announce(`${count(end.cancelled)} cancelled, ${count(end.running.length)} being stopped, ${count(end.finished)} had finished${end.python ? `, ${count(end.python.length)} run on Python listeners, which cannot stop them` : ""}.`);
      },
    }),
    task.after?.open && !finished && close(task.tenant, task.id, `It waits for ${many(task.after.of, "task")}, of which ${count(task.after.ended)} ended, and for what may be added.`),
    task.status === "failed" && button("operator", "Retry", {
      title: "Retry this task?", text: `It waits in ${task.queue} like a new one; its attempts are counted from 0.`, verb: "Retry the task", run: () => post(`${to}/retry`),
    }),
    task.record?.size && me.payloads && button("viewer", "Replay", {
      title: `Replay run ${task.record.run}`,
      text: `Its record has the answers that the run got. This command replays the run on your machine:\n\`${replay(task)}\`${task.record.encrypted ? "\nThe record is encrypted: FILE has a private key that may read it." : ""}`,
      verb: "Copy the command",
      run: async () => {
        if (!navigator.clipboard) throw new Problem(400, "this browser copies nothing here: select the command");
        await navigator.clipboard.writeText(replay(task));
      },
    }),
    finished && button("admin", "Delete", {
      title: "Delete this task?", text: "It goes with its parameters, result, log and history, for good.", verb: "Delete the task", danger: true,
      run: () => post(to, undefined, "DELETE").then(() => place(task.tenant, "queues", task.queue)),
    }));
}

/** replay is the command that replays a run of a task from its record. */
const replay = ({ tenant, id, record }) =>
  `quern task replay ${word(id)}${tenant === "blueque" ? "" : ` --tenant ${word(tenant)}`}${record.encrypted ? " --identity FILE" : ""}`;

/** word quotes a text for a shell if it must be. */
const word = (text) => (/^[\w.:@%+=/-]+$/.test(text) && !text.startsWith("-") ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** close is the button that ends the list of what an open task waits for. */
export const close = (tenant, id, text) => button("operator", "Close", {
  title: "Close its dependencies?", text: `${text} Closed, it runs when these have ended as it asks.`, verb: "Close them",
  run: () => post(path`/tenants/${tenant}/tasks/${id}/await`, { close: true }),
});

/** waitFor counts the tasks of a tree that wait for its root. */
const waitFor = (node) => (node?.children ?? []).filter((child) => child.dependent).reduce((sum, child) => sum + 1 + waitFor(child), 0);

/** nodeActions are the buttons of a listener; without holds nobody knows how many tasks it has. */
export function nodeActions(node) {
  const to = path`/tenants/${node.tenant}/nodes/${node.listener}`;
  const held = node.holds ? many(Object.values(node.holds).flat().length, "task") : "tasks";
  if (node.alive && node.kind !== "python") {
    return !node.draining && button("admin", "Drain", {
      title: "Drain this listener?", text: `${node.listener} takes no more tasks of ${node.tenant}, finishes its ${held}, and leaves. A restart brings it back.`,
      verb: "Drain it", danger: true, run: () => post(`${to}/drain`),
    });
  }
  return button("admin", "Reclaim", {
    title: "Reclaim its tasks?",
    text: `The ${held} that ${node.listener} holds return to their queues.${node.kind === "python" ? " Make sure that its process has ended, or they run twice." : ""}`,
    verb: "Reclaim them", danger: true,
    run: async () => {
      const end = await post(`${to}/reclaim`);
      announce(`${count(end.returned)} returned, ${count(end.scheduled)} scheduled, ${count(end.failed)} failed, ${count(end.dropped)} dropped.`);
    },
  });
}

/** release ends the quarantine of a plugin. */
export const release = (tenant, plugin, digest) => button("admin", "Release", {
  title: `Release ${plugin}?`, text: "Hosts take its tasks again at once. They may fail or end hosts again.", verb: "Release it", danger: true,
  run: () => post(query(path`/tenants/${tenant}/plugins/${plugin}/release`, { digest })),
});

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
    if (job.state === "counting") throw new Problem(400, job.error || "the process that counted has ended: try again");
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
  return acts(
    ["counting", "running"].includes(job.state) && !job.stopping && !job.interrupted && button("operator", "Stop", {
      title: "Stop this job?", text: `It stops after its present task; about ${many(left, "task")} stay as they are. It can go on later.`, verb: "Stop it", danger: true,
      run: () => post(`${to}/stop`),
    }),
    (["counted", "stopped"].includes(job.state) || job.interrupted) && button(role, job.state === "counted" ? "Start" : "Go on", {
      title: `${verbs[job.action]} ${many(left, "task")}?`, text: `Those with ${words(job.filter)}.`, verb: `${verbs[job.action]} ${many(left, "task")}`, danger: job.action !== "retry",
      run: () => post(`${to}/start`),
    }));
}

/** arrive is for ask: it goes somewhere, and tells there what was done. */
export const arrive = (to, told) => () => {
  location.hash = to;
  addEventListener("hashchange", () => announce(told), { once: true });
};

/** announce tells what an action did. */
export function announce(text) {
  const told = h("p", { role: "status" }, coded(text));
  morph(document.querySelector("#told") ?? document.querySelector("header").appendChild(h("div", { id: "told" })), h("div", { id: "told" }, told));
}

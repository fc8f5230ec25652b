// Producers for Quern in JavaScript: enqueue tasks, wait for their results, publish, cancel; and receivers of its webhooks: verify. It
// needs Node.js 20.3 or later, for fetch and AbortSignal.any.

import { createHmac, timingSafeEqual } from "node:crypto";

/** The server refused a request. `type` names the kind of problem, such as "queue-full"; `status` is the HTTP status. */
export class APIError extends Error {
  constructor(status, type, detail, options) {
    super(detail, options);
    this.name = this.constructor.name;
    this.status = status;
    this.type = type;
  }
}

/** There is no task with this ID: it never existed, or was deleted. */
export class NoTaskError extends APIError {}

/** A task has failed. `task` has all that the server says about it. */
export class TaskFailed extends Error {
  constructor(task, cause = "") {
    super(`task ${task.id} failed (${wordOf(task)}): ${headline(task)}${cause && `: ${cause}`}`);
    this.name = "TaskFailed";
    this.task = task;
  }
}

// culpritOf is the ID of the task whose failure made this one fail, undefined if none did. mostCauses bounds how many are followed.
const culpritOf = (task) => (task.reason === "dependency" ? /^task (\S+), which it waited for, failed$/.exec(headline(task))?.[1] : undefined);
const mostCauses = 20;

// The reason of a failed task as the command line writes it: the exit codes 65 and 75 tell what the handler threw.
const wordOf = (task) => (task.reason === "error" && { 65: "fatal", 75: "retry" }[task.error?.exit_code]) || (task.reason ?? "error");

const headline = (task) => (task.error?.message ?? "no message").split("\n", 1)[0];

/** A task has not ended in time. `cause` is the error of the connection if the server was not reached. */
export class WaitTimeout extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = "WaitTimeout";
  }
}

// The most tasks, and the most bytes of JSON, in one batch. A larger task is sent alone. The server takes 1,000 tasks and 16 MiB.
const batchTasks = 1000, batchBytes = 8 << 20;

// How many bytes the options of a task that is sent alone may take in the URL. The server takes 64 KiB of headers, proxies often 8.
const queryBytes = 7 << 10;

// How long the server is asked to wait for a task's end before it answers, in seconds.
const longPoll = 20;

// The options whose values the API takes as they are, and those in milliseconds that it takes as seconds.
const plain = ["key", "priority", "maxAttempts", "backoff", "maxReschedules", "when", "open", "deadQueue", "parent", "traceparent",
  "fairKey", "fairWeight", "concurrencyKey", "maxConcurrent"];
const durations = ["delay", "timeout", "backoffBase", "backoffMin", "backoffMax", "maxAge"];
const others = ["id", "labels", "headers", "at", "deadline", "jitter", "unique", "after"];
const taskOptions = [...plain, ...durations, ...others];

// The property of an answer that has the server's warning.
const warningOf = Symbol("warning");

// How long a server can make a client wait before it asks again, in milliseconds.
const longestPause = 60_000;

// What the options of BullMQ are here.
const bullmq = {
  attempts: "use maxAttempts", jobId: "use id", deduplication: "use unique: { key, duration }", parentId: "use after", repeat: "use quern schedule",
  removeOnComplete: "leave it out: hosts delete tasks by --keep", removeOnFail: "leave it out: hosts delete tasks by --keep", lifo: "use a higher priority",
  debounce: "use unique: { key, duration }", failParentOnFailure: 'use when: "complete" for the task that waits', group: "use key",
  ignoreDependencyOnFailure: 'use when: "ended" for the task that waits', keepLogs: "leave it out: limits.log of the manifest bounds it", timestamp: "leave it out",
  data: "use parameters: { parameters, ...options }", name: "leave it out: a task has no name, but a queue", opts: "write the options beside parameters: { parameters, delay: 1000 }",
};

const busy = [429, 502, 503, 504];
const snake = (name) => name.replace(/[A-Z]/g, (letter) => "_" + letter.toLowerCase());
const seconds = (time) => Number(time) / 1000; // of milliseconds, or of a Date

// sleep waits, unless the signal aborts.
async function sleep(ms, signal) {
  signal?.throwIfAborted();
  let timer, abort;
  try {
    await new Promise((resolve, reject) => {
      timer = setTimeout(resolve, ms);
      abort = () => reject(signal.reason);
      signal?.addEventListener("abort", abort);
    });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}


// distance is the number of letters to insert, remove or replace between two texts.
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, n) => n);
  for (const [i, letter] of [...a].entries()) {
    const next = [i + 1];
    for (let j = 0; j < b.length; j++) next.push(Math.min(row[j + 1] + 1, next[j] + 1, row[j] + (letter === b[j] ? 0 : 1)));
    row = next;
  }
  return row[b.length];
}

// meant returns what to do about an option that does not exist: the remedy, or the name that is like it, or "".
function meant(name, known) {
  const near = known.map((one) => [distance(name.toLowerCase(), one.toLowerCase()), one]).sort(([a], [b]) => a - b)[0];
  return Object.hasOwn(bullmq, name) ? bullmq[name] : near[0] <= Math.max(1, name.length / 3) ? `use ${near[1]}` : "";
}

const unknown = (name, known) => new TypeError(`unknown option ${JSON.stringify(name)}: ${meant(name, known) || `use ${[...known].sort().join(", ")}`}`);

// checkOptions refuses options that are no object, and, if known is given, names that are not in it.
function checkOptions(call, options, known) {
  if (options === undefined || options === null) return;
  if (typeof options !== "object") throw new TypeError(`${call}: options ${shown(options)}: use an object, such as { ${(known ?? ["delay"])[0]}: ... }`);
  for (const name of Object.keys(known ? options : {})) if (!known.includes(name)) throw unknown(name, known);
}

// refuseName throws the error for the parameters of a job of BullMQ in the place of the options, after a name.
function refuseName(name, options) {
  if (typeof name !== "string") return;
  for (const odd of Object.keys(options ?? {})) {
    if (taskOptions.includes(odd) || meant(odd, taskOptions)) continue;
    throw new TypeError(`add(${shown(name)}, { ${odd} }): ${odd} is no option, and a task has no name: use add({ ${odd} }, options), with a queue in the place of the name`);
  }
}

// checkWait refuses what wait does not take.
function checkWait(options) {
  if (typeof options !== "object" || options === null) throw new TypeError(`wait(${shown(options)}): wait takes { timeout: ${Number.isFinite(options) ? options : 1000} }`);
  for (const name of Object.keys(options)) {
    if (!["timeout", "signal"].includes(name)) throw new TypeError(`wait: unknown option ${shown(name)}: wait takes { timeout: 1000 }, in milliseconds, and signal`);
  }
  const { timeout, signal } = options;
  if (timeout !== undefined && !(typeof timeout === "number" && timeout >= 0)) throw new TypeError(`wait: timeout ${shown(timeout)}: use milliseconds, 0 or more`);
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw new TypeError(`wait: signal ${shown(signal)}: use that of an AbortController`);
}

// The IDs of the option after: those of handles, tasks and strings, of which one may stand alone.
const listOf = (after) => (Array.isArray(after) ? after : [after]).map((one) => (typeof one === "string" ? one : one?.id));

const isPairs = (value) => typeof value === "object" && value !== null && !Array.isArray(value) && Object.values(value).every((one) => typeof one === "string");
const text = [(value) => typeof value === "string", "a string"];
const pairs = [isPairs, "an object whose values are strings"];
const yesOrNo = [(value) => typeof value === "boolean", "true or false"];
const oneOf = (...values) => [(value) => values.includes(value), values.map((value) => JSON.stringify(value)).join(" or ")];

// What the values of options must be that are neither numbers nor times.
const kinds = {
  id: text, key: text, deadQueue: text, parent: text, traceparent: text, fairKey: text, concurrencyKey: text, labels: pairs, headers: pairs, jitter: yesOrNo, open: yesOrNo,
  backoff: oneOf("exponential", "linear"), when: oneOf("complete", "ended", "any", "failed"),
  after: [(value) => listOf(value).every((id) => typeof id === "string"), "a list of handles or IDs, such as [handle]"],
  unique: [(value) => ["boolean", "string"].includes(typeof value) || (typeof value === "object" && value !== null), "true, a key, or { key, duration }"],
};

// shown is a value for errors.
function shown(value) {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}

// uniqueOf returns the option unique as an object with key and duration. "for" is the name of duration in older handlers.
function uniqueOf(unique) {
  if (unique === "") throw new TypeError("unique is an empty key: use true to compare the parameters");
  if (typeof unique !== "object") return typeof unique === "string" ? { key: unique } : {};
  const { key, for: before, duration = before, ...others } = unique;
  for (const name of Object.keys(others)) throw new TypeError(`unique.${name}: unique has key and duration (in milliseconds)`);
  if (key !== undefined && typeof key !== "string") throw new TypeError(`unique.key ${shown(key)}: use a string`);
  if (duration !== undefined && !(Number.isFinite(duration) && (duration === 0 || duration >= 1000))) {
    throw new TypeError(`unique.duration ${shown(duration)}: use milliseconds, 1000 or more`);
  }
  return { key, duration };
}

// translated returns the options by the names and in the units of the API, with an ID, so that the request may be repeated.
function translated(options) {
  for (const name of Object.keys(options)) {
    if (!taskOptions.includes(name)) throw unknown(name, taskOptions);
    if (name === "backoff" && typeof options.backoff?.type === "string") {
      const { type, delay = 1000 } = options.backoff;
      const remedy = type === "fixed" ? `"linear", backoffBase: ${shown(delay)}, backoffMax: ${shown(delay)}, jitter: false` : `"exponential", backoffBase: ${shown(delay)}`;
      throw new TypeError(`backoff ${shown(options.backoff)}: use backoff: ${remedy}`);
    }
    const [valid, what] = kinds[name] ?? [];
    if (valid && options[name] !== undefined && !valid(options[name])) throw new TypeError(`${name} ${shown(options[name])}: use ${what}`);
  }
  if (options.delay !== undefined && options.at !== undefined) throw new TypeError("both delay and at: give one of them");
  for (const name of [...durations, "priority", "maxAttempts", "maxReschedules", "fairWeight", "maxConcurrent"]) {
    if (options[name] !== undefined && !Number.isFinite(options[name])) throw new TypeError(`${name} ${options[name]}: use a number`);
  }
  if (options.priority < 0 || options.priority > 100) throw new TypeError(`priority ${options.priority}: use 0 to 100, higher ones first`);
  for (const name of durations) if (options[name] < 0) throw new TypeError(`${name} ${options[name]}: use 0 or more milliseconds`);
  if (options.maxAttempts === 0) throw new TypeError("maxAttempts 0: use 1 or more, or -1 for no limit");
  for (const name of ["at", "deadline"]) {
    const time = options[name];
    if (time !== undefined && (time === null || !Number.isFinite(Number(time)))) throw new TypeError(`${name} ${time}: use a Date, or milliseconds since the epoch`);
  }
  const out = { id: options.id || crypto.randomUUID() };
  for (const name of plain) if (options[name] !== undefined) out[snake(name)] = options[name];
  for (const name of durations) if (options[name] !== undefined) out[snake(name) + "_seconds"] = seconds(options[name]);
  for (const name of ["at", "deadline"]) if (options[name] !== undefined) out[name] = seconds(options[name]);
  for (const name of ["labels", "headers"]) if (options[name] !== undefined) out[name] = options[name];
  if (options.after !== undefined) out.after = listOf(options.after);
  if (options.jitter === false) out.no_jitter = true;
  if (options.unique !== undefined && options.unique !== false) {
    const unique = uniqueOf(options.unique);
    out.unique = true;
    if (unique.key) out.unique_key = unique.key;
    if (unique.duration !== undefined) out.unique_for_seconds = seconds(unique.duration);
  }
  return out;
}

// encoded returns what the handler gets: bytes as they are, a string as UTF-8, undefined as nothing, anything else as JSON.
function encoded(parameters) {
  if (parameters === undefined || parameters === null) return new Uint8Array();
  if (parameters instanceof ArrayBuffer) return new Uint8Array(parameters);
  if (ArrayBuffer.isView(parameters)) return new Uint8Array(parameters.buffer, parameters.byteOffset, parameters.byteLength);
  let text = parameters;
  if (typeof parameters !== "string") {
    try {
      text = JSON.stringify(parameters);
    } catch (error) {
      refuse("parameters", parameters);
      throw error;
    }
    // JSON.stringify writes null for NaN, escapes half a pair, and leaves a Map empty.
    if (text === undefined || /null|\{\}|\\ud/.test(text)) refuse("parameters", parameters);
  } else if (lone.test(text)) refuse("parameters", text);
  return new TextEncoder().encode(text);
}

const identifier = /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u;
const mostDepth = 900; // of values in each other, below the limit of the stack
const lone = /\p{Surrogate}/u;
const inexpressible = { Promise: "await it", Map: "use Object.fromEntries", Set: "use Array.from", bigint: "use String", function: "call it", symbol: "use String" };
const leftOut = ["function", "symbol"]; // by JSON.stringify, within arrays and objects

// refuse throws a TypeError about the first part of a value that JSON does not express, with its path, if there is one.
function refuse(what, value) {
  const wrong = (path, why) => { throw new TypeError(`${path} ${why}`); };
  const open = new Set();
  const look = (path, part, property) => {
    if (typeof part?.toJSON === "function") part = part.toJSON(property);
    const kind = typeof part === "object" ? Object.prototype.toString.call(part).slice(8, -1) : typeof part;
    const express = "which JSON does not express";
    if (Object.hasOwn(inexpressible, kind) && !(open.size > 0 && leftOut.includes(kind))) wrong(path, `is a ${kind}, ${express}: ${inexpressible[kind]}`);
    if (typeof part === "number" && !Number.isFinite(part)) wrong(path, `is ${part}, ${express}: use null, or String`);
    if (typeof part === "string" && lone.test(part)) wrong(path, `has half a surrogate pair, ${express} in UTF-8: use toWellFormed()`);
    if (typeof part !== "object" || part === null) return;
    if (open.has(part)) wrong(path, `contains itself, ${express}: leave it out`);
    if (open.size >= mostDepth) wrong(what, `has more than ${mostDepth} values in each other: make it flatter`);
    open.add(part);
    for (const name of Object.keys(part)) {
      const way = Array.isArray(part) ? `[${name}]` : identifier.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`;
      look(path + way, part[name], name);
    }
    open.delete(part);
  };
  look(what, value, "");
}

function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

const base64 = (bytes) => Buffer.from(bytes).toString("base64");

/** A task as the server described it: its fields by the names of the API, and its result. */
export class Task {
  #result;

  constructor(fields, result) {
    for (const [name, value] of Object.entries(fields)) if (!(name in Task.prototype)) this[name] = value;
    this.#result = result ?? payload(fields, "result");
  }

  get finished() {
    return this.status === "complete" || this.status === "failed";
  }

  /** The result of a complete task, as a Uint8Array. */
  get bytes() {
    if (!this.#result && this.withheld) throw new Error(`task ${this.id}: this token may not see results`);
    if (!this.#result) throw new Error(`task ${this.id} has no result to read: it is ${this.status}`);
    return this.#result;
  }

  get text() {
    return new TextDecoder().decode(this.bytes);
  }

  json() {
    return JSON.parse(this.text);
  }

  /** The server left the result out, because it is large. */
  get resultMissing() {
    return this.status === "complete" && !this.#result && !this.withheld;
  }
}

function payload(fields, name) {
  if (fields[name + "_base64"] !== undefined) return new Uint8Array(Buffer.from(fields[name + "_base64"], "base64"));
  if (fields[name] !== undefined) return new TextEncoder().encode(fields[name]);
  return fields.status === "complete" && !fields[name + "_size"] && !fields.withheld ? new Uint8Array() : undefined;
}

const warned = new Set();

// warnUnserved warns, once for each queue, that its name may be misspelled. warning is the server's, if it has sent one.
function warnUnserved(queue, warning) {
  if (warned.has(queue) || warned.size >= 1000) return;
  warned.add(queue);
  console.warn(warning ? `quern: ${warning}` : `quern: no host serves the queue ${JSON.stringify(queue)}, and none is known to have done so: its tasks wait. Check the name, or deploy a plugin`);
}

// warnDropped warns, once for each topic, that nobody gets what is published to it.
function warnDropped(topic) {
  const key = `topic ${topic}`;
  if (warned.has(key) || warned.size >= 1000) return;
  warned.add(key);
  console.warn(`quern: topic ${topic}: no subscription matches, so the publication is dropped: add subscribe: [{topic: ${topic}}] to a plugin's manifest, or run quern subscription create`);
}

/** An enqueued task. */
export class Handle {
  #client;

  constructor(client, receipt, made, warning) {
    this.#client = client;
    this.id = receipt.id;
    this.queue = receipt.queue;
    // A task whose ID the client has made up is new, even if the server says that it existed: then the same request made it, whose
    // first answer was lost.
    this.existed = receipt.existed && !made.has(receipt.id);
    this.taken = receipt.taken ?? false;
    this.unserved = receipt.unserved ?? false;
    if (this.unserved) warnUnserved(this.queue, warning);
  }

  wait(options) {
    return this.#client.wait(this.id, options);
  }

  task() {
    return this.#client.task(this.id);
  }

  cancel() {
    return this.#client.cancel(this.id);
  }
}

/** A queue of a client, with the options of its tasks. Options of a call go before these. */
export class Queue {
  #client;
  #options;

  constructor(client, name, options = {}) {
    if (typeof client === "string") throw new TypeError(`new Queue(${shown(client)}): use new Client(url, { token }).queue(${shown(client)})`);
    if (options.id !== undefined) throw new TypeError("id as an option of all tasks: give it to add, because each task has its own");
    translated(options);
    this.#client = client;
    this.#options = options;
    this.name = name;
  }

  async add(parameters, options, ...more) {
    if (more.length > 0) throw new TypeError("add takes parameters and options, and no name of a job: use client.queue(name).add(parameters, options)");
    refuseName(parameters, options);
    checkOptions("add", options);
    return this.#client.enqueue(this.name, parameters, { ...this.#options, ...options });
  }

  async addBulk(items) {
    const defaults = this.#options;
    return this.#client.enqueueMany(this.name, (async function* () {
      for await (const item of items) yield { ...defaults, ...item };
    })());
  }
}

// What the methods of BullMQ are here.
for (const [type, names] of [
  [Handle, {
    waitUntilFinished: "wait({ timeout }), and json() or text of the task that it returns", finished: "wait({ timeout })", getState: "(await task()).status",
    isCompleted: "(await task()).status", isFailed: "(await task()).status", remove: "cancel()", discard: "cancel()",
    json: "(await wait()).json()",
  }],
  [Queue, {
    enqueue: "add(parameters, options)", enqueueMany: "addBulk(items)", getJob: "client.task(id)", upsertJobScheduler: "quern schedule create",
    process: "a plugin, whose handler runs the tasks: quern plugin new NAME --lang javascript", on: "wait of the handle that add returns",
    pause: "quern queue pause", resume: "quern queue resume", drain: "quern task cancel", clean: "quern queue purge", obliterate: "quern queue purge",
    getJobs: "quern task ls", getJobCounts: "quern queue show", getWaiting: "quern task ls", getFailed: "quern task ls", close: "no call: there is nothing to close",
  }],
]) {
  for (const [name, instead] of Object.entries(names)) {
    Object.defineProperty(type.prototype, name, { value() { throw new TypeError(`there is no ${name}: use ${instead}`); }, configurable: true, writable: true });
  }
}

/** A client of the API of a host (--admin) or of `quern admin`. */
export class Client {
  #url;
  #headers;
  #timeout;
  #retries;
  #fetch;

  constructor(url, options = {}) {
    checkOptions("new Client", options, ["token", "tenant", "timeout", "retries", "fetch"]);
    let { token = "", tenant = "blueque", timeout = 30_000, retries = 5, fetch = globalThis.fetch } = options ?? {};
    if (/^rediss?:/.test(url)) throw new TypeError("the URL is that of Redis, and Client speaks HTTP: give the URL of `quern dev`, or of a host with --admin");
    if (!/^https?:\/\//.test(url) || !URL.canParse(url)) throw new TypeError(`the URL of the server ${shown(url)}: use one like http://127.0.0.1:9465`);
    if (new URL(url).search || new URL(url).hash) throw new TypeError("the URL of the server has a query or a fragment: leave that out");
    if (new URL(url).username) throw new TypeError("the URL of the server has a user: leave that out, and give a token");
    token = token.trim();
    if (!/^[!-~]*$/.test(token)) throw new TypeError("the token has characters that no token has: give it as it was printed");
    this.#url = url.replace(/\/+$/, "");
    this.#headers = token ? { Authorization: `Bearer ${token}` } : {};
    this.#timeout = timeout;
    this.#retries = retries;
    this.#fetch = fetch;
    this.tenant = tenant;
  }

  queue(name, options) {
    return new Queue(this, name, options);
  }

  async enqueue(queue, parameters, options = {}) {
    checkOptions("enqueue", options);
    return (await this.enqueueMany(queue, [{ ...options, parameters }]))[0];
  }

  async enqueueMany(queue, items) {
    const handles = [];
    let tasks = [], made = new Set(), size = 0;
    const send = async () => {
      const { items, [warningOf]: warning } = await this.#json("POST", ["queues", queue, "tasks", "batch"], {
        json: { tasks },
        check: ({ items }) => Array.isArray(items) && items.length === tasks.length && items.every((one) => one && isText(one, "id", "queue")),
      });
      for (const receipt of items) handles.push(new Handle(this, receipt, made, warning));
      tasks = [];
      made = new Set();
      size = 0;
    };
    for await (const { parameters, ...options } of items) {
      const task = translated(options), bytes = encoded(parameters), text = textOf(bytes);
      if (text === undefined) task.parameters_base64 = base64(bytes);
      else task.parameters = text;
      const length = JSON.stringify(task).length;
      if (tasks.length > 0 && (tasks.length === batchTasks || size + length > batchBytes)) await send();
      if (!options.id) made.add(task.id);
      if (length > batchBytes) {
        const receipt = await this.#enqueueAlone(queue, task, bytes);
        handles.push(new Handle(this, receipt, made, receipt[warningOf]));
        continue;
      }
      tasks.push(task);
      size += length;
    }
    if (tasks.length > 0) await send();
    return handles;
  }

  // #enqueueAlone enqueues a task that is too large for a batch: the body is its parameters as they are.
  #enqueueAlone(queue, { labels = {}, headers = {}, after = [], parameters, parameters_base64, ...query }, body) {
    const search = new URLSearchParams(query);
    for (const [there, pairs] of [["label", labels], ["header", headers]]) {
      for (const [name, value] of Object.entries(pairs)) {
        if (name.includes("=")) throw new TypeError(`${there} ${JSON.stringify(name)}: a task of this size takes no names with =`);
        search.append(there, `${name}=${value}`);
      }
    }
    for (const id of after) search.append("after", id);
    if (String(search).length > queryBytes) {
      throw new TypeError(`a task of this size takes at most ${queryBytes} bytes of key, labels, headers and IDs in after`);
    }
    return this.#json("POST", ["queues", queue, "tasks"], { search, body, check: (receipt) => isText(receipt, "id", "queue") });
  }

  async task(id) {
    return this.#withResult(await this.#task(id));
  }

  async wait(id, options = {}) {
    checkWait(options);
    const { timeout = Infinity, signal } = options;
    const end = performance.now() + timeout;
    for (;;) {
      const left = Math.max(0, Math.min(longPoll, (end - performance.now()) / 1000));
      const search = new URLSearchParams({ wait_seconds: left.toFixed(3) });
      const task = await this.#task(id, { search, wait: left, signal, end });
      if (task.status === "failed") throw new TaskFailed(task, await this.#causeOf(task));
      if (task.finished) return this.#withResult(task);
      if (performance.now() >= end) throw new WaitTimeout(`task ${id} is ${task.status} after ${timeout} ms${await this.#reasonOf(task)}`);
    }
  }

  // #causeOf describes the task that failed by itself and so made this one fail, "" if none did or it cannot be read.
  async #causeOf(task) {
    let cause = "";
    try {
      for (let n = 0, id; n < mostCauses && (id = culpritOf(task)); n++) {
        task = await this.#task(id);
        cause = `${task.queue}: ${headline(task)}`;
      }
    } catch {
      // deleted, or without the right to look
    }
    return cause;
  }

  // #reasonOf says why a task has not ended, "" if that is not known. It asks about the queue of a pending task.
  async #reasonOf(task) {
    const left = (task.after?.of ?? 0) - (task.after?.ended ?? 0);
    if (task.after?.open) return ": it is open, and waits for quern task await --close";
    if (task.after?.blocked && left > 0) return `: it waits for ${left} ${left === 1 ? "task" : "tasks"}`;
    if (task.status === "scheduled" && task.eta) return `: it is due in ${Math.max(0, Math.ceil(task.eta - Date.now() / 1000))} s${task.last_error ? `, after ${task.last_error.message.split("\n", 1)[0]}` : ""}`;
    if (task.status !== "pending") return "";
    try {
      const { listeners, paused, pending } = await this.#json("GET", ["queues", task.queue], { end: performance.now() });
      if (listeners === 0) return `: no host serves the queue ${task.queue}`;
      return paused ? `: the queue ${task.queue} is paused` : `: ${pending} ${pending === 1 ? "task is" : "tasks are"} pending in the queue ${task.queue}`;
    } catch {
      return ""; // as without the right to look
    }
  }

  async cancel(id) {
    try {
      return (await this.#json("POST", ["tasks", id, "cancel"])).ended;
    } catch (error) {
      // a repeated request, whose first answer was lost, or somebody else's
      if (error.status === 409 && (await this.task(id)).reason === "cancelled") return true;
      throw error;
    }
  }

  async publish(topic, payload, options) {
    checkOptions("publish", options, ["id", "attributes", "parent", "traceparent", "tracestate"]);
    const { id, attributes = {}, parent, traceparent, tracestate } = options ?? {};
    const search = new URLSearchParams({ id: id || crypto.randomUUID() });
    for (const [name, value] of Object.entries({ parent, traceparent, tracestate })) if (value) search.set(name, value);
    for (const [name, value] of Object.entries(attributes)) search.append("attribute", `${name}=${value}`);
    const check = (answer) => isText(answer, "id", "topic");
    const answer = await this.#json("POST", ["topics", topic, "publications"], { search, body: encoded(payload), check });
    const subscribers = answer.subscribers ?? 0, dropped = subscribers === 0 && !answer.existed;
    if (dropped) warnDropped(answer.topic);
    return { id: answer.id, topic: answer.topic, existed: answer.existed && Boolean(id), subscribers, dropped };
  }

  async #task(id, how) {
    const check = (fields) => isText(fields, "id", "queue", "status") && typeof (fields.error ?? {}) === "object";
    return new Task(await this.#json("GET", ["tasks", id], { ...how, check }));
  }

  async #withResult(task) {
    return task.resultMissing ? new Task(task, (await this.#send("GET", ["tasks", task.id, "result"])).bytes) : task;
  }

  // #json returns the object of an answer, which check accepts.
  async #json(method, path, { check = () => true, ...how } = {}) {
    const answer = await this.#send(method, path, how);
    let fields;
    try {
      fields = JSON.parse(new TextDecoder().decode(answer.bytes));
    } catch {
      throw notOurs(answer);
    }
    if (typeof fields !== "object" || fields === null || Array.isArray(fields) || !check(fields)) throw notOurs(answer);
    return Object.assign(fields, { [warningOf]: answer.warning });
  }

  // #send sends a request, which may be repeated, until it is answered: what it makes has an ID of the client's. end is when the
  // caller waits no longer. The answer is its bytes, with what was asked.
  async #send(method, path, { search, body, json, wait = 0, signal, end = Infinity } = {}) {
    for (const name of [this.tenant, ...path]) {
      if (typeof name !== "string" || ["", ".", ".."].includes(name)) throw new TypeError(`the name ${String(name)}: use a text that is not empty, . or ..`);
    }
    const where = ["v1", "tenants", this.tenant, ...path].map(encodeURIComponent).join("/");
    const url = `${this.#url}/${where}${search ? "?" + search : ""}`, asked = `${method} ${this.#url}/${where}`;
    const headers = { ...this.#headers };
    if (body) headers["Content-Type"] = "application/octet-stream";
    if (json) headers["Content-Type"] = "application/json";
    let pause = 100;
    for (let left = this.#retries; ; left--) {
      const limit = Math.min(this.#timeout + wait * 1000, Math.max(0, end - performance.now()) + 500);
      const patience = AbortSignal.timeout(Math.ceil(limit));
      let answer, bytes, after = 0;
      try {
        answer = await this.#fetch(url, {
          method, headers, body: json ? JSON.stringify(json) : body, redirect: "manual",
          signal: signal ? AbortSignal.any([signal, patience]) : patience,
        });
        bytes = new Uint8Array(await answer.arrayBuffer());
      } catch (error) {
        if (signal?.aborted) throw error;
        const why = `no answer from ${this.#url}: ${reasonOf(error)}: is quern dev, or a host with --admin, running there?`;
        if (left <= 0) throw new APIError(0, "unreachable", why, { cause: error });
        if (performance.now() + pause > end) throw new WaitTimeout(why, { cause: error });
      }
      if (bytes) {
        if (answer.ok) return { asked, bytes, warning: answer.headers.get("Quern-Warning") };
        if (!busy.includes(answer.status) || left <= 0) throw problem(answer.status, { asked, bytes });
        after = Math.min(Number(answer.headers.get("Retry-After")) * 1000 || 0, longestPause);
        if (performance.now() + Math.max(after, pause) > end) throw problem(answer.status, { asked, bytes });
      }
      await sleep(Math.max(after, pause * (0.5 + Math.random() / 2)), signal);
      pause = Math.min(pause * 2, 5000);
    }
  }
}

// The methods that take no more arguments than these, and how they are called. All but queue return promises.
for (const [type, methods] of [
  [Handle, { wait: [1, "wait({ timeout: 1000 })"], task: [0, "task()"], cancel: [0, "cancel()"] }],
  [Queue, { addBulk: [1, "addBulk([{ parameters, ...options }])"] }],
  [Client, {
    queue: [2, "queue(name, options)"], enqueue: [3, "enqueue(queue, parameters, options)"], task: [1, "task(id)"], cancel: [1, "cancel(id)"],
    enqueueMany: [2, "enqueueMany(queue, [{ parameters, ...options }])"], wait: [2, "wait(id, { timeout: 1000 })"],
    publish: [3, "publish(topic, payload, options)"],
  }],
]) {
  for (const [name, [most, usage]] of Object.entries(methods)) {
    const method = type.prototype[name];
    type.prototype[name] = { [name](...given) {
      if (given.length <= most) return Reflect.apply(method, this, given);
      const error = new TypeError(`${name}: ${given.length} ${given.length === 1 ? "argument" : "arguments"}: write ${usage}`);
      if (name === "queue") throw error;
      return Promise.reject(error);
    } }[name];
  }
}

// reasonOf says why there was no answer. An error of a connection to several addresses has no message, but one for each.
function reasonOf({ message, cause }) {
  const { code, message: own } = cause?.errors?.[0] ?? cause ?? {};
  return { ECONNREFUSED: "connection refused", ENOTFOUND: "no such host", ECONNRESET: "connection reset" }[code] || own || code || message;
}

/** A webhook does not come from the holder of the secret, or is a recording: answer 401. */
export class SignatureError extends Error {
  constructor(message) {
    super(message);
    this.name = "SignatureError";
  }
}

/** Checks the signature of a webhook, by Standard Webhooks, and returns its ID, which is the same whenever it is delivered again. */
export function verify(headers, body, secret, { tolerance = 300_000 } = {}) {
  if (typeof body !== "string" && !ArrayBuffer.isView(body) && !(body instanceof ArrayBuffer)) {
    const kind = body === undefined ? "missing" : `of type ${typeof body}`;
    throw new TypeError(`verify: the body is ${kind}: give the bytes of the request as they came, in Express by express.raw({ type: "*/*" })`);
  }
  const keys = [secret].flat().map(keyOf);
  const given = typeof headers?.get === "function" ? headers : new Map(Object.entries(headers ?? {}).map(([name, value]) => [name.toLowerCase(), value]));
  const [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => {
    const value = given.get(name);
    if (!value) throw new SignatureError(`the header ${name} is missing: the webhook is not signed, or a proxy has removed it`);
    return value;
  });
  const age = Math.abs(Date.now() - Number(timestamp) * 1000);
  if (!/^\d+$/.test(timestamp)) throw new SignatureError(`webhook-timestamp ${shown(timestamp)}: expected seconds of Unix time`);
  if (age > tolerance) throw new SignatureError(`webhook-timestamp is ${Math.round(age / 1000)} s away, more than ${tolerance / 1000} s: a recording, or a wrong clock`);
  const bytes = encoded(body);
  for (const key of keys) {
    const expected = Buffer.from("v1," + createHmac("sha256", key).update(`${id}.${timestamp}.`).update(bytes).digest("base64"));
    for (const one of signatures.split(" ").map((text) => Buffer.from(text))) {
      if (one.length === expected.length && timingSafeEqual(one, expected)) return id;
    }
  }
  throw new SignatureError("webhook-signature: not of this secret, or not of this body: give the body as it came");
}

// keyOf returns the bytes of a secret, which is a text of Standard Webhooks.
function keyOf(secret) {
  const [, text] = /^whsec_([A-Za-z0-9+/]+=*)$/.exec(typeof secret === "string" ? secret.trim() : "") ?? [];
  const key = Buffer.from(text ?? "", "base64");
  if (key.length < 24 || key.length > 64) throw new TypeError("verify: the secret: use whsec_ and the base64 of 24 to 64 bytes, as in the host's file webhook.NAME");
  return key;
}

const shownCharacters = 80;

// notOurs is the error for an answer that is not the API's.
function notOurs({ asked, bytes }, status) {
  const text = new TextDecoder().decode(bytes.subarray(0, 4 * shownCharacters));
  const start = text === "" ? "no body" : JSON.stringify(text.slice(0, shownCharacters)) + (text.length > shownCharacters ? "…" : "");
  const what = status === undefined ? start : `HTTP status ${status}, ${start}`;
  return new APIError(status ?? 0, "", `${asked} answered ${what}, which is not an answer of Quern's API: check the URL`);
}

const isText = (fields, ...names) => names.every((name) => typeof fields[name] === "string");

function problem(status, answer) {
  const { bytes } = answer;
  let body;
  try {
    body = JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    // no answer of the API
  }
  if (!body?.status) return notOurs(answer, status);
  const type = String(body.type ?? "").split(":").pop();
  const details = (Array.isArray(body.errors) ? body.errors : []).map((e) => `${String(e?.location ?? "").replace(/^(body|query)\./, "")}: ${e?.message ?? ""}`);
  const text = [body.detail || body.title, ...details].join("; ");
  return type === "no-task" ? new NoTaskError(status, type, `${text}: quern task ls shows those of a queue`) : new APIError(status, type, text);
}

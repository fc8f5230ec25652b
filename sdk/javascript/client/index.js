// Producers for Quern in JavaScript: enqueue tasks, wait for their results, publish, cancel. It needs Node.js 20.3 or later, for fetch and AbortSignal.any.

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
  constructor(task) {
    const message = task.error?.message ?? "no message";
    super(`task ${task.id} failed (${task.reason ?? "error"}): ${message.split("\n", 1)[0]}`);
    this.name = "TaskFailed";
    this.task = task;
  }
}

/** A task has not ended in time. */
export class WaitTimeout extends Error {
  constructor(message) {
    super(message);
    this.name = "WaitTimeout";
  }
}

// How many tasks, and about how many bytes of them, one request of a batch has. The server takes 1,000 tasks and 16 MiB.
const batchTasks = 1000, batchBytes = 8 << 20;

// How long the server is asked to wait for a task's end before it answers, in seconds.
const longPoll = 20;

// The options whose values the API takes as they are, and those that it takes as seconds, by its names.
const plain = ["id", "key", "priority", "maxAttempts", "backoff", "maxReschedules", "when", "open", "deadQueue", "parent", "traceparent"];
const durations = ["delay", "timeout", "backoffBase", "backoffMin", "backoffMax", "maxAge"];
const others = ["labels", "headers", "at", "deadline", "jitter", "unique", "after"];

const busy = [429, 502, 503, 504];
const snake = (name) => name.replace(/[A-Z]/g, (letter) => "_" + letter.toLowerCase());
const seconds = (time) => (time instanceof Date ? time.getTime() / 1000 : time);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// translated returns the options by the names and in the units of the API, with an ID, so that the request may be repeated.
function translated(options) {
  for (const name of Object.keys(options)) {
    if (![...plain, ...durations, ...others].includes(name)) {
      throw new TypeError(`unknown option ${JSON.stringify(name)}: use ${[...plain, ...durations, ...others].sort().join(", ")}`);
    }
  }
  if (options.delay !== undefined && options.at !== undefined) throw new TypeError("both delay and at: give one of them");
  const out = { id: crypto.randomUUID() };
  for (const name of plain) if (options[name] !== undefined) out[snake(name)] = options[name];
  for (const name of durations) if (options[name] !== undefined) out[snake(name) + "_seconds"] = options[name];
  for (const name of ["at", "deadline"]) if (options[name] !== undefined) out[name] = seconds(options[name]);
  for (const name of ["labels", "headers", "after"]) if (options[name] !== undefined) out[name] = options[name];
  if (options.jitter === false) out.no_jitter = true;
  if (options.unique) {
    const unique = typeof options.unique === "object" ? options.unique : options.unique === true ? {} : { key: options.unique };
    out.unique = true;
    if (unique.key) out.unique_key = unique.key;
    if (unique.duration !== undefined) out.unique_for_seconds = unique.duration;
  }
  return out;
}

// encoded returns what the handler gets: bytes as they are, a string as UTF-8, undefined as nothing, anything else as JSON.
function encoded(parameters) {
  if (parameters === undefined || parameters === null) return new Uint8Array();
  if (parameters instanceof ArrayBuffer) return new Uint8Array(parameters);
  if (ArrayBuffer.isView(parameters)) return new Uint8Array(parameters.buffer, parameters.byteOffset, parameters.byteLength);
  return new TextEncoder().encode(typeof parameters === "string" ? parameters : JSON.stringify(parameters));
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
    Object.assign(this, fields);
    this.#result = result ?? payload(fields, "result");
  }

  get finished() {
    return this.status === "complete" || this.status === "failed";
  }

  /** The result of a complete task, as a Uint8Array. */
  get bytes() {
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

/** An enqueued task. `existed`: it was there before, and nothing was enqueued. */
export class Handle {
  #client;

  constructor(client, id, queue, existed) {
    this.#client = client;
    this.id = id;
    this.queue = queue;
    this.existed = existed;
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

/** A queue of a client. */
export class Queue {
  #client;

  constructor(client, name) {
    this.#client = client;
    this.name = name;
  }

  add(parameters, options) {
    return this.#client.enqueue(this.name, parameters, options);
  }

  addBulk(items) {
    return this.#client.enqueueMany(this.name, items);
  }
}

/** A client of the API of a host (--admin) or of `quern admin`. */
export class Client {
  #url;
  #headers;
  #timeout;
  #retries;
  #fetch;

  constructor(url, { token = "", tenant = "blueque", timeout = 30, retries = 5, fetch = globalThis.fetch } = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#headers = token ? { Authorization: `Bearer ${token}` } : {};
    this.#timeout = timeout;
    this.#retries = retries;
    this.#fetch = fetch;
    this.tenant = tenant;
  }

  queue(name) {
    return new Queue(this, name);
  }

  async enqueue(queue, parameters, options = {}) {
    const { labels, headers, after, ...query } = translated(options);
    const search = new URLSearchParams(query);
    for (const [name, value] of Object.entries(labels ?? {})) search.append("label", `${name}=${value}`);
    for (const [name, value] of Object.entries(headers ?? {})) search.append("header", `${name}=${value}`);
    for (const id of after ?? []) search.append("after", id);
    const answer = await this.#json("POST", ["queues", queue, "tasks"], { search, body: encoded(parameters) });
    return handle(this, options.id ? undefined : query.id, answer);
  }

  async enqueueMany(queue, items) {
    const handles = [];
    let tasks = [], made = new Set(), size = 0;
    const send = async () => {
      const answer = await this.#json("POST", ["queues", queue, "tasks", "batch"], { json: { tasks } });
      answer.items.forEach((item) => handles.push(handle(this, made.has(item.id) ? item.id : undefined, item)));
      tasks = [];
      made = new Set();
      size = 0;
    };
    for await (const { parameters, ...options } of items) {
      const line = translated(options), bytes = encoded(parameters), text = textOf(bytes);
      if (text === undefined) line.parameters_base64 = base64(bytes);
      else line.parameters = text;
      if (tasks.length > 0 && (tasks.length === batchTasks || size + bytes.length > batchBytes)) await send();
      tasks.push(line);
      if (!options.id) made.add(line.id);
      size += bytes.length;
    }
    if (tasks.length > 0) await send();
    return handles;
  }

  async task(id) {
    return this.#withResult(new Task(await this.#json("GET", ["tasks", id])));
  }

  async wait(id, { timeout = Infinity, signal } = {}) {
    const end = performance.now() + timeout * 1000;
    for (;;) {
      const left = Math.max(0, Math.min(longPoll, (end - performance.now()) / 1000));
      const search = new URLSearchParams({ wait_seconds: left.toFixed(3) });
      const task = new Task(await this.#json("GET", ["tasks", id], { search, wait: left, signal }));
      if (task.status === "failed") throw new TaskFailed(task);
      if (task.finished) return this.#withResult(task);
      if (performance.now() >= end) throw new WaitTimeout(`task ${id} is ${task.status} after ${timeout} seconds`);
    }
  }

  async cancel(id) {
    return (await this.#json("POST", ["tasks", id, "cancel"])).ended;
  }

  async publish(topic, payload, { id, attributes = {} } = {}) {
    const search = new URLSearchParams({ id: id ?? crypto.randomUUID() });
    for (const [name, value] of Object.entries(attributes)) search.append("attribute", `${name}=${value}`);
    const answer = await this.#json("POST", ["topics", topic, "publications"], { search, body: encoded(payload) });
    return { id: answer.id, topic: answer.topic, existed: answer.existed && id !== undefined };
  }

  async #withResult(task) {
    if (!task.resultMissing) return task;
    return new Task(task, new Uint8Array(await (await this.#send("GET", ["tasks", task.id, "result"])).arrayBuffer()));
  }

  async #json(...call) {
    return (await this.#send(...call)).json();
  }

  // #send sends a request that may be repeated: what it changes has an ID of the client's.
  async #send(method, path, { search, body, json, wait = 0, signal } = {}) {
    const where = ["v1", "tenants", this.tenant, ...path].map(encodeURIComponent).join("/");
    const url = `${this.#url}/${where}${search ? "?" + search : ""}`;
    const headers = { ...this.#headers };
    if (body) headers["Content-Type"] = "application/octet-stream";
    if (json) headers["Content-Type"] = "application/json";
    let pause = 100;
    for (let left = this.#retries; ; left--) {
      const patience = AbortSignal.timeout(Math.ceil((this.#timeout + wait) * 1000));
      let answer, asked = 0;
      try {
        answer = await this.#fetch(url, {
          method, headers, body: json ? JSON.stringify(json) : body, signal: signal ? AbortSignal.any([signal, patience]) : patience,
        });
      } catch (error) {
        if (signal?.aborted) throw error;
        if (left <= 0) throw new APIError(0, "unreachable", `no answer from ${this.#url}: ${error.cause?.message ?? error.message}`, { cause: error });
      }
      if (answer) {
        if (answer.ok) return answer;
        const error = problem(answer.status, await answer.json().catch(() => undefined));
        if (!busy.includes(answer.status) || left <= 0) throw error;
        asked = Number(answer.headers.get("Retry-After")) * 1000 || 0;
      }
      await sleep(Math.max(asked, pause * (0.5 + Math.random() / 2)));
      pause = Math.min(pause * 2, 5000);
    }
  }
}

// handle returns the handle of a task. made is the ID that the client has made up for it, if it has: a task of that ID is new, even
// if the server says that it existed, because then the same request made it, whose first answer was lost.
function handle(client, made, receipt) {
  return new Handle(client, receipt.id, receipt.queue, receipt.existed && receipt.id !== made);
}

function problem(status, body) {
  if (!body?.status) return new APIError(status, "", `HTTP status ${status}, which is not an answer of Quern's API: check the URL`);
  const type = String(body.type ?? "").split(":").pop();
  const details = (body.errors ?? []).map((e) => `${e.location ?? ""}: ${e.message ?? ""}`);
  const text = [body.detail || body.title, ...details].join("; ");
  return new (type === "no-task" ? NoTaskError : APIError)(status, type, text);
}

// Runs handlers in Node, with services in memory. testing.d.ts describes it.

import { format } from "node:util";

import { bytesOf, isBytes, jsonOf, parseJSON } from "./lib/bytes.js";
import { Database } from "./lib/database.js";
import { COMPLETE } from "./lib/errors.js";
import { bytes, plain, text } from "./lib/native.js";
import { shown } from "./lib/sdk.js";
import { shared } from "./lib/shared.js";

const { Failure, QuernError, SQLError, statusOf, answerTo, native, runs, task } = shared;

const STATUSES = { 1: "failed", 65: "fatal", 75: "retry" };
const services = ["config", "secrets", "kv", "http", "databases", "queues", "topics", "checkpoints"];
const fields = ["id", "queue", "tenant", "plugin", "attempt", "maxAttempts", "reschedules", "deadline", "key", "parent", "previousError", "traceparent", "headers", "after", "cancelled"];

function known(what, given, names) {
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) throw new TypeError(`${what}: ${name}: expected ${names.join(", ")}`);
  }
}

class TestHost {
  config = {};
  secrets = {};
  kv = {};
  http = undefined;
  databases = {};
  queues = undefined;
  topics = undefined;
  checkpoints = {};
  enqueued = [];
  published = [];

  #open = new Map();

  constructor(given) {
    known("testHost", given, services);
    Object.assign(this, given);
    Object.defineProperty(this, "ends", { value: new Map() }); // of values with a ttl
  }

  async run(handler, input, given = {}) {
    if (typeof handler !== "function") throw new TypeError(`run: the handler is ${typeof handler}: import the default export of its module`);
    known("run", given, fields);
    const run = new Run(this, input, given);
    const release = watch();
    const code = await runs.run(run, () => call(handler, run)).finally(release);
    let complete = code === COMPLETE;
    for (const database of this.#open.values()) {
      const answer = complete ? database.commit(run) : database.rollback(run);
      if (!complete || Array.isArray(answer)) continue;
      complete = false;
      run.thrown = new SQLError(answer);
      run.error = `commit: ${run.thrown.message}`;
    }
    if (complete) {
      this.enqueued.push(...run.enqueued);
      this.published.push(...run.published);
    }
    return new Result(run, complete ? "complete" : STATUSES[code] ?? "failed", complete);
  }

  // Returns a database, and connects to it if need be.
  connected(name) {
    if (!this.#open.has(name)) this.#open.set(name, new Database(this.databases[name]));
    return this.#open.get(name);
  }

  async close() {
    const all = [...this.#open.values()];
    this.#open.clear();
    await Promise.all(all.map((database) => database.close()));
  }
}

const made = shared.testHost !== undefined; // by another copy of this package
shared.testHost ??= (given = {}) => new TestHost(given);
export const testHost = shared.testHost;

class Run {
  log = [];
  progress = [];
  enqueued = [];
  published = [];
  output = new Uint8Array();
  error = "";
  thrown = undefined;
  delay = undefined;
  key = false;

  constructor(host, input, given) {
    const {
      id = "test", queue = "test", tenant = "default", plugin = "test", attempt = 1, maxAttempts = 0, reschedules = 0, deadline, key = "", parent = "",
      previousError = "", traceparent = "", headers = {}, after = {}, cancelled = false,
    } = given;
    this.host = host;
    this.id = id;
    this.input = bytes(input).slice();
    this.cancelled = cancelled;
    const all = Object.entries({ ...headers, ...(traceparent && { traceparent }) }).sort(([a], [b]) => (a < b ? -1 : 1));
    const ends = Object.entries(after).map(([id, result]) => `${id} ${result === null ? "failed" : "complete"}\n`);
    this.texts = [id, queue, tenant, plugin, previousError, parent, key, traceparent, all.map(([name, value]) => `${name}: ${value}\n`).join(""), ends.join("")];
    this.numbers = [attempt, maxAttempts, deadline?.getTime() ?? 0, Infinity, reschedules];
    this.results = new Map(Object.entries(after).map(([id, result]) => [id, result === null ? undefined : bytes(result)]));
  }
}

// A promise that is rejected without a handler fails the run that it comes from, as in the sandbox, and so does a timer that throws.
// Nobody else learns of it: test runners would fail as well.
const others = { unhandledRejection: [], uncaughtException: [] }; // the listeners that were there before
let watched = 0; // how many runs go on

const caught = Object.keys(others).map((event) => [event, (reason, about) => {
  const run = runs.getStore();
  if (run?.reject) return run.reject(reason, event === "unhandledRejection");
  if (others[event].length === 0) throw reason;
  for (const listener of others[event]) Reflect.apply(listener, process, [reason, about]);
}]);

// Returns the function that ends the watch of one run.
function watch() {
  if (watched++ === 0) {
    for (const [event, listener] of caught) {
      others[event].push(...process.rawListeners(event));
      process.removeAllListeners(event).on(event, listener);
    }
  }
  return () => {
    if (--watched > 0) return;
    for (const [event, listener] of caught) {
      process.removeListener(event, listener);
      for (const other of others[event].splice(0)) process.on(event, other);
    }
  };
}

const immediate = globalThis.setImmediate; // that of tests may be a fake

// Returns what the handler returns, when its pending jobs are done. Throws the reason of a rejected promise without a handler, and what
// a timer throws.
async function settled(handler, run) {
  const unhandled = new Promise((_, reject) => {
    run.reject = (reason, rejected) => {
      run.unhandled = rejected;
      reject(reason);
    };
  });
  const jobs = async () => {
    const result = await handler(task);
    await new Promise((done) => immediate(done));
    return result;
  };
  try {
    return await Promise.race([jobs(), unhandled]);
  } finally {
    run.reject = undefined; // what comes later is not the task's any more
  }
}

// Calls the handler as the engine's main.js does, and returns the status.
async function call(handler, run) {
  try {
    const result = await settled(handler, run);
    if (result !== undefined) native.output(typeof result === "string" ? result : isBytes(result) ? bytesOf(result) : jsonOf(result, "result"));
    return COMPLETE;
  } catch (error) {
    run.thrown = error;
    run.error = error instanceof Failure ? error.message : error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    if (run.unhandled) run.error = `unhandled rejection: ${run.error}`;
    return statusOf(error);
  }
}

const FAILED = { failed: "failed", fatal: "failed for good", retry: "asked to run again" };

class Result {
  constructor(run, status, complete) {
    this.status = status;
    this.output = complete ? run.output : new Uint8Array();
    this.error = run.error;
    this.thrown = run.thrown;
    this.delay = run.delay;
    this.key = run.key;
    this.log = run.log;
    this.progress = run.progress;
    this.enqueued = complete ? run.enqueued : [];
    this.published = complete ? run.published : [];
    this.checkpoint = run.host.checkpoints[run.id] === undefined ? undefined : plain(run.host.checkpoints[run.id]);
  }
  text() {
    if (this.status !== "complete") throw new Error(`task ${FAILED[this.status]}: ${this.error}`, { cause: this.thrown });
    return text(this.output);
  }
  json() { return parseJSON(this.text(), "the result is not JSON"); }
}

// While a task runs, console writes to its log as well, and fetch asks the test's function.

if (!made) for (const [name, level] of Object.entries({ trace: 0, debug: 1, log: 2, info: 2, warn: 3, error: 4 })) {
  const print = console[name];
  console[name] = (...values) => {
    if (runs.getStore()) for (const line of format(...values).split("\n")) native.log(level, line);
    print.apply(console, values);
  };
}

const fetchOfNode = globalThis.fetch;

if (!made) globalThis.fetch = async (input, init) => {
  const run = runs.getStore();
  if (!run) return fetchOfNode(input, init);
  const request = new Request(input, init);
  const sent = { method: request.method, url: request.url, headers: Object.fromEntries(request.headers), body: plain(await request.arrayBuffer()) };
  let answer;
  try {
    answer = await answerTo(run.host, sent);
  } catch (error) {
    if (!(error instanceof QuernError)) throw error;
    throw Object.assign(new TypeError(`fetch: ${error.message.replace("http:", `${sent.method} ${shown(sent.url)}:`)}`), { code: error.code });
  }
  const { status = 200, headers = {}, body } = answer;
  const response = new Response([204, 205, 304].includes(status) ? null : bytes(body), { status });
  for (const [name, values] of Object.entries(headers)) for (const value of [values].flat()) response.headers.append(name, value);
  const json = async () => parseJSON(await response.text(), `fetch: the answer of ${sent.method} ${shown(sent.url)} is not JSON`);
  return Object.defineProperties(response, { url: { value: request.url }, json: { value: json } });
};

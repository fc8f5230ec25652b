// The module "@quern/sdk". index.d.ts describes it.

import { native } from "#native";
import { bytesOf, isBytes, jsonOf, parseJSON } from "./bytes.js";
import { Failure, Fatal, members, named, QuernError, Retry, SQLError } from "./errors.js";
import { parametersOf, rowsOf } from "./sql.js";

const levels = ["trace", "debug", "info", "warn", "error"];

// What JSON makes of the values of a log line's fields.
const field = (_, value) => (value instanceof Error ? `${value.name}: ${value.message}` : typeof value === "bigint" ? String(value) : value);

function log(level, text, fields) {
  const number = typeof level === "number" ? level : levels.indexOf(level);
  if (typeof level !== "number" && number < 0) throw new QuernError("EINVAL", "log", `level ${String(level)}: use ${levels.join(", ")}`);
  native.log(number, String(text), fields === undefined ? undefined : JSON.stringify(fields, field));
}
levels.forEach((name, number) => (log[name] = (text, fields) => log(number, text, fields)));

function progress(fraction, message = "") {
  native.progress(Number(fraction), String(message));
}

const checkpoint = {
  save(value) { native.checkpointSave(encoded(value, "checkpoint")); },
  load() { return native.checkpointLoad(); },
  text() { return textIn(native.checkpointLoad()); },
  json() { return jsonIn(native.checkpointLoad()); },
};

// The bytes of what a function of the host gets: a string or bytes as they are, else JSON.
const encoded = (value, what) => (typeof value === "string" || isBytes(value) ? bytesOf(value) : jsonOf(value, what));

const textIn = (bytes) => bytes && native.decode(bytes);
const jsonIn = (bytes) => (bytes ? JSON.parse(native.decode(bytes)) : undefined);

// A number of milliseconds, rounded up.
function milliseconds(value, what) {
  if (typeof value === "number" && Number.isFinite(value)) return Math.ceil(value);
  throw new TypeError(`${what}: ${String(value)}: write a number of milliseconds`);
}

// Calls a function of the host. Its error names what was asked for, and the verb if the handler called another function.
export function asking(name, call, verb) {
  try {
    return call();
  } catch (error) {
    throw named(error, name, verb);
  }
}

const ttlOf = (options) => (options?.ttl === undefined ? 0 : milliseconds(options.ttl, "ttl"));

class Bucket {
  #name;
  constructor(name) { this.#name = String(name); }
  get name() { return this.#name; }
  #ask(call, key, ...more) {
    key = String(key);
    return asking(`${this.#name}/${key}`, () => native[call](this.#name, key, ...more));
  }
  get(key) { return this.#ask("kvGet", key); }
  text(key) { return textIn(this.get(key)); }
  json(key) { return jsonIn(this.get(key)); }
  set(key, value, options) { this.#ask("kvSet", key, encoded(value, "value"), ttlOf(options)); }
  delete(key) { return this.#ask("kvDelete", key); }

  increment(key, delta = 1) {
    if (typeof delta !== "bigint" && !Number.isSafeInteger(delta)) throw new TypeError(`increment by ${String(delta)}: use a whole number below 2 ** 53, or a BigInt`);
    const sum = this.#ask("kvIncrement", key, BigInt(delta));
    if (typeof delta === "bigint") return sum;
    if (Number.isSafeInteger(Number(sum))) return Number(sum);
    throw new RangeError(`kv increment ${this.#name}/${String(key)}: the sum is ${sum}, which a number does not hold: add a BigInt, as in increment(key, 1n)`);
  }

  swap(key, old, value, options) {
    const answer = this.#ask("kvSwap", key, old === undefined || old === null ? undefined : encoded(old, "old value"), encoded(value, "value"), ttlOf(options));
    if (answer === true) return;
    const error = named(new QuernError("ECONFLICT", "kv_swap"), `${this.#name}/${key}`);
    error.present = answer;
    throw error;
  }

  list({ prefix = "", after = "", limit = 1000 } = {}) { return this.#ask("kvList", prefix, String(after), limit); }
}

const kv = (bucket) => new Bucket(bucket);

class Database {
  #name;
  constructor(name) { this.#name = String(name); }
  get name() { return this.#name; }

  query(statement, parameters = []) {
    const values = parametersOf(parameters);
    return rowsOf(asking(this.#name, () => native.sql(this.#name, String(statement), values, `sql ${this.#name}`)));
  }
  queryRow(statement, parameters) { return this.query(statement, parameters)[0]; }
  execute(statement, parameters) { return this.query(statement, parameters).affected; }

  commit() { this.#commit("", ""); }
  #commit(step, value) { rowsOf(asking(this.#name, () => native.sqlCommit(this.#name, step, value))); }
  rollback() { asking(this.#name, () => native.sqlRollback(this.#name)); }

  async once(step, run) {
    step = String(step);
    const stored = () => asking(`${this.#name}/${step}`, () => native.sqlStep(this.#name, step));
    let value = stored();
    if (value !== undefined) return jsonIn(value.length > 0 ? value : undefined);
    try {
      value = jsonOf(await run(), `the value of step ${step}`) ?? "";
    } catch (error) {
      this.rollback();
      throw error;
    }
    try {
      this.#commit(step, value);
    } catch (error) {
      if (!(error instanceof QuernError && error.code === "ECONFLICT")) throw error;
      value = native.decode(stored()); // another run was faster
    }
    return value === "" ? undefined : JSON.parse(value);
  }
}

const database = (name) => new Database(name);

// An answer to an HTTP request.
class HTTPAnswer {
  #what;
  constructor(status, headers, body, what) {
    this.status = status;
    this.headers = headers;
    this.body = body;
    this.#what = what;
  }
  text() { return native.decode(this.body); }
  json() { return parseJSON(this.text(), `http: the answer of ${this.#what} is not JSON`); }
}

// A URL for errors, without what may be secret.
export const shown = (url) => String(url).replace(/[?#].*$/s, "").replace(/\/\/[^/]*@/, "//");

export function http(request) {
  if (typeof request === "string") request = { url: request };
  const { method = "GET", url, headers, body, timeout, ...others } = request;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw new TypeError(`http: ${unknown}: a request has method, url, headers, body and timeout`);
  const head = { method, url: String(url), headers };
  if (timeout !== undefined) head.timeout_ms = milliseconds(timeout, "timeout");
  const what = `${method} ${shown(head.url)}`;
  const answer = asking(what, () => native.http(JSON.stringify(head), bytesOf(body), what));
  const size = new DataView(answer.buffer, answer.byteOffset).getUint32(0, true);
  const { status, headers: received } = JSON.parse(native.decode(answer.subarray(4, 4 + size)));
  return new HTTPAnswer(status, received, answer.subarray(4 + size), what);
}

const enqueueOptions = {
  id: ["id", String],
  key: ["key", String],
  labels: ["labels", (labels) => labels],
  headers: ["headers", (headers) => headers],
  after: ["after", (ids) => ids],
  when: ["when", String],
  priority: ["priority", Number],
  delay: ["delay_ms", (ms) => milliseconds(ms, "delay")],
  at: ["at_ms", (time) => milliseconds(time instanceof Date ? time.getTime() : time, "at")],
  maxAttempts: ["max_attempts", Number],
  timeout: ["timeout_ms", (ms) => milliseconds(ms, "timeout")],
  unique: ["unique", uniqueOf],
};

// The option unique: true, or an object with key and duration. "for" was the name of duration.
function uniqueOf(unique) {
  if (unique === false) return undefined;
  if (unique === true) return {};
  if (typeof unique !== "object" || unique === null) throw new TypeError(`unique: ${String(unique)}: use true, or { key, duration }`);
  const { key, for: before, duration = before, ...others } = unique;
  for (const name of Object.keys(others)) throw new TypeError(`unique.${name}: unique has key and duration (in milliseconds)`);
  if (key !== undefined && typeof key !== "string") throw new TypeError(`unique.key: ${String(key)}: use a string`);
  if (duration !== undefined && !(duration === 0 || (duration >= 1000 && duration <= MOST_UNIQUE))) {
    throw new RangeError(`unique.duration: ${String(duration)}: use milliseconds, 1000 to ${MOST_UNIQUE} (100 years)`);
  }
  return { key, for_ms: duration === undefined ? undefined : milliseconds(duration, "unique.duration") };
}

const MOST_UNIQUE = 100 * 365 * 86_400_000;

function enqueue(queue, body, options) {
  let encodedOptions;
  if (options !== undefined) {
    const object = {};
    for (const [name, value] of Object.entries(options)) {
      const option = enqueueOptions[name];
      if (!option) throw new TypeError(`enqueue: ${name}: options are ${Object.keys(enqueueOptions).join(", ")}`);
      if (value !== undefined) object[option[0]] = option[1](value);
    }
    encodedOptions = JSON.stringify(object);
  }
  return asking(queue, () => native.enqueue(String(queue), encoded(body, "body"), encodedOptions));
}

function publish(topic, body, options = {}) {
  const { id, attributes, ...others } = options;
  for (const name of Object.keys(others)) throw new TypeError(`publish: ${name}: options are id, attributes`);
  const encodedOptions = JSON.stringify({ topic: String(topic), id, attributes });
  return asking(topic, () => native.enqueue("", encoded(body, "body"), encodedOptions), "publish");
}

const secrets = {
  get(name) { return native.decode(secrets.bytes(name)); },
  bytes(name) { return asking(name, () => native.secretGet(String(name))); },
};

const config = { get(name) { return native.configGet(String(name)); } };

members.set("kv(...)", Object.getOwnPropertyNames(Bucket.prototype));
for (const [name, object] of Object.entries({ log, checkpoint, secrets, config })) members.set(name, Object.keys(object));

export const sdk = { Failure, Retry, Fatal, QuernError, SQLError, log, progress, checkpoint, kv, database, http, enqueue, publish, secrets, config };

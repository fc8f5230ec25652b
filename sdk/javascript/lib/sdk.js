// The module "@quern/sdk". index.d.ts describes it.

import { native } from "#native";
import { optionsOf, quoted, taking } from "./arguments.js";
import { bytesOf, isBytes, jsonOf, parseJSON } from "./bytes.js";
import { Failure, Fatal, members, named, QuernError, Retry, SQLError } from "./errors.js";
import { parametersOf, rowsOf } from "./sql.js";

const levels = ["trace", "debug", "info", "warn", "error"];

// What JSON makes of the values of a log line's fields.
const field = (_, value) => (value instanceof Error ? `${value.name}: ${value.message}` : typeof value === "bigint" ? String(value) : value);

function write(level, text, fields) {
  const number = typeof level === "number" ? level : levels.indexOf(level);
  if (typeof level !== "number" && number < 0) throw new QuernError("EINVAL", "log", `level ${String(level)}: use ${levels.join(", ")}`);
  if (fields instanceof Error || (typeof fields !== "object" && fields !== undefined)) {
    throw new TypeError(`log: fields ${fields instanceof Error ? String(fields) : quoted(fields)}: use an object, such as { ${fields instanceof Error ? "error" : "id: 7"} }`);
  }
  native.log(number, String(text), fields === undefined ? undefined : JSON.stringify(fields, field));
}
const log = taking(2, 3, "log(level, text, { name: value })", write);
levels.forEach((name, number) => (log[name] = taking(1, 2, `log.${name}(text, { name: value })`, (text, fields) => write(number, text, fields))));

const progress = taking(1, 2, "progress(0.5, message)", (fraction, message = "") => native.progress(Number(fraction), String(message)));

const checkpoint = {
  save: taking(1, 1, "checkpoint.save(value)", (value) => native.checkpointSave(encoded(value, "checkpoint"))),
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

function ttlOf(call, options) {
  const { ttl } = optionsOf(call, options, ["ttl"]);
  return ttl === undefined ? 0 : milliseconds(ttl, "ttl");
}

// Has the methods of a class refuse what they do not take, by their names: the fewest and the most arguments, and those as they are written.
function takingAll(type, on, methods) {
  for (const [name, [least, most, given]] of Object.entries(methods)) {
    type.prototype[name] = taking(least, most, `${on}.${name}(${given})`, type.prototype[name]);
  }
}

class Bucket {
  #name;
  constructor(name) { this.#name = String(name); }
  get name() { return this.#name; }
  #ask(call, key, ...more) {
    if (key === undefined || key === null) throw new TypeError(`kv(${quoted(this.#name)}): key ${key}: use a string`);
    key = String(key);
    return asking(`${this.#name}/${key}`, () => native[call](this.#name, key, ...more));
  }
  get(key) { return this.#ask("kvGet", key); }
  text(key) { return textIn(this.get(key)); }
  json(key) { return jsonIn(this.get(key)); }
  set(key, value, options) { this.#ask("kvSet", key, encoded(value, "value"), ttlOf("kv(...).set", options)); }
  delete(key) { return this.#ask("kvDelete", key); }

  increment(key, delta = 1) {
    if (typeof delta !== "bigint" && !Number.isSafeInteger(delta)) throw new TypeError(`increment by ${String(delta)}: use a whole number below 2 ** 53, or a BigInt`);
    const sum = this.#ask("kvIncrement", key, BigInt(delta));
    if (typeof delta === "bigint") return sum;
    if (Number.isSafeInteger(Number(sum))) return Number(sum);
    throw new RangeError(`kv increment ${this.#name}/${String(key)}: the sum is ${sum}, which a number does not hold: add a BigInt, as in increment(key, 1n)`);
  }

  swap(key, old, value, options) {
    const answer = this.#ask("kvSwap", key, old === undefined || old === null ? undefined : encoded(old, "old value"), encoded(value, "value"), ttlOf("kv(...).swap", options));
    if (answer === true) return;
    const error = named(new QuernError("ECONFLICT", "kv_swap"), `${this.#name}/${key}`);
    error.present = answer;
    throw error;
  }

  list(options) {
    const { prefix = "", after = "", limit = 1000 } = optionsOf("kv(...).list", options, ["prefix", "after", "limit"]);
    return this.#ask("kvList", prefix, String(after), limit);
  }
}
takingAll(Bucket, "kv(...)", {
  get: [1, 1, "key"], text: [1, 1, "key"], json: [1, 1, "key"], delete: [1, 1, "key"], set: [2, 3, "key, value, { ttl }"],
  increment: [1, 2, "key, delta"], swap: [3, 4, "key, old, value, { ttl }"], list: [0, 1, "{ prefix, after, limit }"],
});

const kv = taking(1, 1, "kv(bucket)", (bucket) => new Bucket(bucket));

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

const statement = [1, 2, "statement, [parameter, ...]"];
takingAll(Database, "database(...)", { query: statement, queryRow: statement, execute: statement, once: [2, 2, "step, () => value"] });

const database = taking(1, 1, "database(name)", (name) => new Database(name));

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

function send(request) {
  if (typeof request === "string") request = { url: request };
  if (typeof request !== "object" || request === null) throw new TypeError(`http: ${quoted(request)}: use a URL, or { method, url, headers, body, timeout }`);
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

export const http = taking(1, 1, "http({ method, url, headers, body, timeout })", send);

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
  fairKey: ["fair_key", String],
  fairWeight: ["fair_weight", Number],
  concurrencyKey: ["concurrency_key", String],
  maxConcurrent: ["max_concurrent", Number],
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

const enqueue = taking(1, 3, "enqueue(queue, body, { delay })", (queue, body, options) => {
  let encodedOptions;
  if (options !== undefined) {
    const object = {};
    for (const [name, value] of Object.entries(optionsOf("enqueue", options, Object.keys(enqueueOptions)))) {
      const option = enqueueOptions[name];
      if (value !== undefined) object[option[0]] = option[1](value);
    }
    encodedOptions = JSON.stringify(object);
  }
  return asking(queue, () => native.enqueue(String(queue), encoded(body, "body"), encodedOptions));
});

const publish = taking(1, 3, "publish(topic, body, { id, attributes })", (topic, body, options) => {
  const { id, attributes } = optionsOf("publish", options, ["id", "attributes"]);
  const encodedOptions = JSON.stringify({ topic: String(topic), id, attributes });
  return asking(topic, () => native.enqueue("", encoded(body, "body"), encodedOptions), "publish");
});

const secret = (name) => asking(name, () => native.secretGet(String(name)));
const secrets = {
  get: taking(1, 1, "secrets.get(name)", (name) => native.decode(secret(name))),
  bytes: taking(1, 1, "secrets.bytes(name)", secret),
};

const config = { get: taking(1, 1, "config.get(name)", (name) => native.configGet(String(name))) };

members.set("kv(...)", Object.getOwnPropertyNames(Bucket.prototype));
for (const [name, object] of Object.entries({ log, checkpoint, secrets, config })) members.set(name, Object.keys(object));

export const sdk = { Failure, Retry, Fatal, QuernError, SQLError, log, progress, checkpoint, kv, database, http, enqueue, publish, secrets, config };

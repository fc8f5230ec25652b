// The functions of the host in Node: services in memory, for the task that testing.js runs. The limits are those of sdk/ABI.md.

import { AsyncLocalStorage } from "node:async_hooks";

import { QuernError } from "./errors.js";

const KiB = 1 << 10, MiB = 1 << 20;
const YEAR = 365 * 86_400_000;
const MIN = -(2n ** 63n), MAX = 2n ** 63n - 1n;
const LEVELS = ["trace", "debug", "info", "warn", "error"];
const PRINTABLE = /^[!-~]{1,128}$/;

// The run of the task that is running. Asynchronous handlers keep theirs when others run beside.
export const runs = new AsyncLocalStorage();

const encoder = new TextEncoder();

export function bytes(value) {
  if (typeof value === "string") return encoder.encode(value);
  if (value === undefined || value === null) return new Uint8Array();
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return encoder.encode(JSON.stringify(value));
}

export const text = (value) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes(value));

// Returns what a test compares: a string if the bytes are UTF-8, else a copy of them.
export function plain(value) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes(value));
  } catch {
    return bytes(value).slice();
  }
}

function refuse(code, call, message) {
  throw new QuernError(code, call, message);
}

function running(call) {
  return runs.getStore() ?? refuse("ESTATE", call, "there is no task: run the handler by testHost().run(handler, input) of @quern/sdk/testing");
}

const isText = (value) => encoder.encode(value).length <= 256 && !/\p{Cc}/u.test(value);
const named = (patterns, name) => patterns === undefined || patterns.some((p) => new RegExp("^" + p.split("*").map(quote).join(".*") + "$").test(name));
const quote = (part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const shown = (value) => JSON.stringify(value);

// A bucket that the test grants.
class Bucket {
  constructor(call, name, ...keys) {
    this.host = running(call).host;
    this.call = call;
    this.name = name;
    if (name === "" || !isText(name)) refuse("EINVAL", call, `bucket ${shown(name)}: expected 1 to 256 bytes without control characters`);
    for (const key of keys) {
      if (key === "" || !isText(key)) refuse("EINVAL", call, `key ${shown(key)}: expected 1 to 256 bytes without control characters`);
    }
    if (!Object.hasOwn(this.host.kv, name)) refuse("EDENIED", call, `grant the bucket to the test: testHost({ kv: { ${shown(name)}: {} } })`);
    this.values = this.host.kv[name];
  }
  get(key) {
    if (!Object.hasOwn(this.values, key)) return undefined;
    if (performance.now() >= (this.host.ends.get(`${this.name}\0${key}`) ?? Infinity)) {
      this.delete(key);
      return undefined;
    }
    return bytes(this.values[key]);
  }
  check(value, ttl) {
    if (ttl < 0) refuse("EINVAL", this.call, `a ttl of ${ttl}: expected milliseconds, 0 or more`);
    if (bytes(value).length > 512 * KiB) refuse("ETOOBIG", this.call, "the value has more than 512 KiB");
  }
  set(key, value, ttl) {
    this.check(value, ttl);
    this.values[key] = plain(value);
    if (ttl > 0) this.host.ends.set(`${this.name}\0${key}`, performance.now() + ttl);
    else this.host.ends.delete(`${this.name}\0${key}`);
  }
  delete(key) {
    this.host.ends.delete(`${this.name}\0${key}`);
    delete this.values[key];
  }
}

const compare = (a, b) => Buffer.compare(bytes(a), bytes(b));

// The options of enqueue by the names that handlers use.
const optionNames = { delay_ms: "delay", at_ms: "at", max_attempts: "maxAttempts", timeout_ms: "timeout",
  fair_key: "fairKey", fair_weight: "fairWeight", concurrency_key: "concurrencyKey", max_concurrent: "maxConcurrent" };

function optionsOf(options) {
  const entries = Object.entries(options).map(([name, value]) => [optionNames[name] ?? name, value]);
  const result = Object.fromEntries(entries);
  if (result.unique) {
    const { key, for_ms } = result.unique;
    result.unique = key === undefined && for_ms === undefined ? true : { ...(key !== undefined && { key }), ...(for_ms !== undefined && { duration: for_ms }) };
  }
  return result;
}

function checkOptions(options) {
  const within = (value, low, high) => value === undefined || (value >= low && value <= high);
  const printable = "1 to 128 printable ASCII characters without spaces";
  for (const [name, value, valid, range] of [
    ["id", options.id, options.id === undefined || options.id === "" || PRINTABLE.test(options.id), printable],
    ["after", options.after, (options.after ?? []).every((id) => PRINTABLE.test(id)), `IDs of ${printable}`],
    ["when", options.when, [undefined, "complete", "ended", "any", "failed"].includes(options.when), "complete, ended, any or failed"],
    ["when", options.when, options.when === undefined || options.after !== undefined, "it together with after"],
    ["priority", options.priority, within(options.priority, 0, 100), "0 to 100"],
    ["delay", options.delay_ms, within(options.delay_ms, 0, Infinity), "0 or more milliseconds"],
    ["delay", options.delay_ms, !(options.delay_ms && options.at_ms), "delay or at, not both"],
    ["at", options.at_ms, within(options.at_ms, 0, 253402300800000 - 1), "a time from 1970 to 9999"],
    ["maxAttempts", options.max_attempts, within(options.max_attempts, 0, 1_000_000), "0 to 1000000"],
    ["timeout", options.timeout_ms, within(options.timeout_ms, 0, 100 * YEAR), "0 milliseconds to 100 years"],
    ...[["fair", "fairKey", "fairWeight", "fair_weight", 1000], ["concurrency", "concurrencyKey", "maxConcurrent", "max_concurrent", 1_000_000]].flatMap(
      ([of, key, number, member, most]) => [
        [key, options[`${of}_key`], bytes(options[`${of}_key`] ?? "").length <= 256, "at most 256 bytes"],
        [number, options[member], within(options[member], 0, most), `0 to ${most}`],
        [number, options[member], !options[member] || options[`${of}_key`], `it together with ${key}`]]),
  ]) {
    if (!valid) refuse("EINVAL", "enqueue", `option ${name}: ${shown(value)}: expected ${range}`);
  }
}

function publish(run, { topic, id, attributes = {} }, body) {
  if (!PRINTABLE.test(topic) || topic.includes("*")) refuse("EINVAL", "enqueue", `topic ${shown(topic)}: expected 1 to 128 printable ASCII characters without spaces and *`);
  if (!named(run.host.topics, topic)) refuse("EDENIED", "enqueue", `grant the topic to the test: testHost({ topics: [${shown(topic)}] })`);
  if (id && !PRINTABLE.test(id)) refuse("EINVAL", "enqueue", `id ${shown(id)}: expected 1 to 128 printable ASCII characters without spaces`);
  const odd = Object.entries(attributes).find(([name, value]) => !/^[a-z0-9]+$/.test(name) || /\p{Cc}/u.test(value));
  if (odd) refuse("EINVAL", "enqueue", `attribute ${odd[0]}: expected a name of a-z and 0-9, and printable text`);
  id ||= crypto.randomUUID();
  run.published.push({ topic, body: plain(body), id, attributes });
  return id;
}

// Calls use with a database that the test gives, and the run.
function database(call, name, use) {
  const run = running(call);
  if (!Object.hasOwn(run.host.databases, name)) {
    const url = "postgres://USER@HOST/DATABASE";
    refuse("EDENIED", call, `give the database to the test: testHost({ databases: { ${shown(name)}: "${url}" } }), or test in the engine: quern plugin test --database ${name}=${url}`);
  }
  return use(run.host.connected(name), run);
}

export const native = {
  input: () => running("input_read").input.slice(),
  inputText: () => text(running("input_read").input),
  inputJSON() {
    const { input } = running("input_read");
    let valid;
    try {
      valid = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(input);
    } catch {
      throw new SyntaxError("invalid UTF-8");
    }
    return JSON.parse(valid);
  },
  output(value) { running("output_write").output = bytes(value).slice(); },
  setError(value) { running("error_set").error = value; },
  retryAfter(ms) { Object.assign(running("retry_after"), { delay: Math.abs(ms), key: ms < 0 }); },
  taskText: (field) => running("task_text").texts[field],
  taskNumber: (field) => running("task_number").numbers[field],
  cancelled: () => running("cancelled").cancelled,

  log(level, line, fields) {
    if (!LEVELS[level]) refuse("EINVAL", "log", `level ${level}: expected 0 to 4`);
    if (fields !== undefined && bytes(fields).length > 3 * KiB) refuse("ETOOBIG", "log", "the fields have more than 3 KiB");
    runs.getStore()?.log.push({ level: LEVELS[level], text: line, fields: fields === undefined ? {} : JSON.parse(fields) });
  },
  progress(fraction, message) {
    if (Number.isNaN(fraction)) refuse("EINVAL", "progress", "NaN: use 0 to 1, such as 0.5");
    const run = running("progress"), shown = Math.min(Math.max(fraction, 0), 1);
    if (fraction !== shown) run.log.push({ level: "warn", text: `progress ${fraction}: use 0 to 1, such as 0.5`, fields: {} });
    run.progress.push({ fraction: shown, message });
  },
  checkpointSave(value) {
    const { host, id } = running("checkpoint_save");
    if (bytes(value).length > MiB) refuse("ETOOBIG", "checkpoint_save", "the checkpoint has more than 1 MiB");
    host.checkpoints[id] = plain(value);
  },
  checkpointLoad() {
    const { host, id } = running("checkpoint_load");
    return Object.hasOwn(host.checkpoints, id) ? bytes(host.checkpoints[id]) : undefined;
  },
  configGet(name) {
    const config = runs.getStore()?.host.config ?? {};
    return Object.hasOwn(config, name) ? String(config[name]) : undefined;
  },
  secretGet(name) {
    const { secrets } = running("secret_get").host;
    if (!Object.hasOwn(secrets, name)) refuse("EDENIED", "secret_get", `grant the secret to the test: testHost({ secrets: { ${shown(name)}: "..." } })`);
    return bytes(secrets[name]).slice();
  },

  kvGet: (bucket, key) => new Bucket("kv_get", bucket, key).get(key)?.slice(),
  kvSet(bucket, key, value, ttl) { new Bucket("kv_set", bucket, key).set(key, value, ttl); },
  kvDelete(bucket, key) {
    const there = new Bucket("kv_delete", bucket, key);
    const found = there.get(key) !== undefined;
    if (found) there.delete(key);
    return found;
  },
  kvIncrement(bucket, key, delta) {
    const there = new Bucket("kv_increment", bucket, key);
    const value = there.get(key);
    const number = value === undefined ? "0" : text(value);
    if (!/^(0|-?[1-9][0-9]*)$/.test(number) || BigInt(number) < MIN || BigInt(number) > MAX) refuse("ECONFLICT", "kv_increment", "the value is no number of 64 bits");
    const sum = BigInt(number) + delta;
    if (sum < MIN || sum > MAX) refuse("ELIMIT", "kv_increment", "the sum is no number of 64 bits");
    there.values[key] = String(sum); // the ttl stays
    return sum;
  },
  kvSwap(bucket, key, old, value, ttl) {
    const there = new Bucket("kv_swap", bucket, key);
    there.check(value, ttl);
    const present = there.get(key);
    if (present === undefined ? old !== undefined : old === undefined || compare(present, old) !== 0) return present?.slice();
    there.set(key, value, ttl);
    return true;
  },
  kvList(bucket, prefix, after, limit) {
    const there = new Bucket("kv_list", bucket);
    if (!(limit >= 1 && limit <= 1000)) refuse("EINVAL", "kv_list", `a limit of ${limit}: expected 1 to 1000`);
    for (const part of [prefix, after]) if (!isText(part)) refuse("EINVAL", "kv_list", "a prefix or a key has at most 256 bytes without control characters");
    return Object.keys(there.values).filter((key) => key.startsWith(prefix) && compare(key, after) > 0 && there.get(key) !== undefined).sort(compare).slice(0, limit);
  },

  http(head, body) {
    const { method, url, headers = {} } = JSON.parse(head);
    const { host } = running("http");
    const target = URL.canParse(url) ? new URL(url) : undefined;
    if (!/^https?:$/.test(target?.protocol) || target.username !== "") refuse("EINVAL", "http", "expected a URL with http or https and a host, without a user");
    if (!/^[A-Z]+$/.test(method) || ["CONNECT", "TRACE"].includes(method)) refuse("EINVAL", "http", `method ${shown(method)}: expected one in capital letters, and not CONNECT or TRACE`);
    const answer = answerTo(host, { method, url, headers: lowered(headers), body: plain(body) });
    if (typeof answer?.then === "function") throw new TypeError("http of testHost: http of @quern/sdk waits for its answer, so the function must not be async");
    const described = encoder.encode(JSON.stringify({ status: answer.status ?? 200, headers: lists(answer.headers) }));
    const all = Buffer.concat([new Uint8Array(4), described, bytes(answer.body)]);
    all.writeUInt32LE(described.length);
    return new Uint8Array(all);
  },

  sql: (name, statement, parameters) => database("sql", name, (there, run) => there.query(run, statement, parameters)),
  sqlCommit: (name, step, value) =>
    database("sql_commit", name, (there, run) => (step === "" ? there.commit(run) : there.commitStep(run, step, bytes(value)))),
  sqlRollback(name) { database("sql_rollback", name, (there, run) => there.rollback(run)); },
  sqlStep: (name, step) => database("sql_step", name, (there, run) => there.step(run, step)?.slice()),

  enqueue(queue, body, encoded) {
    const run = running("enqueue");
    const options = encoded ? JSON.parse(encoded) : {};
    if (queue === "" && "topic" in options) return publish(run, options, body);
    if (!PRINTABLE.test(queue)) refuse("EINVAL", "enqueue", `queue ${shown(queue)}: expected 1 to 128 printable ASCII characters without spaces`);
    if (!named(run.host.queues, queue)) refuse("EDENIED", "enqueue", `grant the queue to the test: testHost({ queues: [${shown(queue)}] })`);
    checkOptions(options);
    const { id, ...others } = options;
    run.enqueued.push({ queue, body: plain(body), id: id || crypto.randomUUID(), options: optionsOf(others) });
    return run.enqueued.at(-1).id;
  },
  dependencyResult(id) {
    const { results } = running("dependency_result");
    if (!results.has(id)) refuse("EINVAL", "dependency_result", `give the test its result: run(handler, input, { after: { ${shown(id)}: ... } })`);
    return results.get(id)?.slice() ?? refuse("ENOTFOUND", "dependency_result", `task ${id} failed and has no result`);
  },

  encode: bytes,
  decode: text,
  source: () => undefined,
  around: () => undefined,
};

const lowered = (headers) => Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [name.toLowerCase(), [value].flat().join(", ")]));
const lists = (headers) => Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [name.toLowerCase(), [value].flat().map(String)]));

// Returns what the test's function answers to a request, or a promise of it.
export function answerTo(host, request) {
  if (host.http === undefined) {
    refuse("EDENIED", "http", "answer the requests of the test: testHost({ http: ({ method, url, headers, body }) => ({ status: 200, body: \"\" }) })");
  }
  return host.http(request);
}

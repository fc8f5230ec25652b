// Errors of handlers and of the host, and the text that a failed task gets.

import { native } from "#native";
import { optionsOf } from "./arguments.js";
import { around, mapped } from "./sourcemap.js";

const meanings = {
  EINVAL: "an argument is invalid; the task's log has the details",
  EDENIED: "the manifest or the host does not allow it; the task's log names the line to add",
  ENOTFOUND: "there is none of that name",
  ETOOBIG: "it is larger than its limit",
  EQUOTA: "there is no room for more",
  ECONFLICT: "the present value is not the expected one",
  ECANCELED: "another host has taken over the task",
  EAGAIN: "the service behind it is unavailable; the task's log has the details",
  ESTATE: "there is no task yet: call it within the handler",
  ELIMIT: "too many, or too deep; the task's log has the details",
};

const REFUSAL = 10; // the field of task_text with why the host last refused a call
let asking = false;

// Returns why the host refused the call that has just failed with this code, or why a dependency has no result; "" if it does not
// tell: an older host answers EINVAL.
function refusal(code, call) {
  const told = ["EINVAL", "EDENIED", "EQUOTA", "EAGAIN", "ELIMIT"].includes(code) || (code === "ENOTFOUND" && call === "dependency_result");
  if (asking || !told) return "";
  asking = true;
  try {
    return native.taskText(REFUSAL) ?? "";
  } catch {
    return "";
  } finally {
    asking = false;
  }
}

// What handlers call, by the name in sdk/ABI.md, where that is not its words: kv_get is "kv get".
const calls = { secret_get: "secrets.get", config_get: "config.get", dependency_result: "resultOf" };
const verbOf = (call) => calls[call] ?? call.replaceAll("_", " ");

// An error of the host. code and call are the names of the error and of the function in sdk/ABI.md.
export class QuernError extends Error {
  constructor(code, call, why = refusal(code, call) || (meanings[code] ?? "the host gave an unknown answer")) {
    super(`${verbOf(call)}: ${why} (${code})`);
    this.code = code;
    this.call = call;
  }
}

// Adds to an error of the host what was asked for. verb is what the handler called.
export function named(error, name, verb) {
  if (!(error instanceof QuernError)) return error;
  let rest = error.message.slice(verbOf(error.call).length);
  if (error.call === "http") rest = rest.replace(/^: [A-Z]+ https?:\S+: /, ": "); // name has the request, with its path
  error.message = `${verb ?? verbOf(error.call)} ${name}${rest}`;
  return error;
}

// An error of PostgreSQL. What it does not have is "". fields are those of PostgreSQL's protocol, by their letters.
export class SQLError extends Error {
  constructor({ C: sqlstate = "", M: message = "", D: detail = "", H: hint = "", P: position = 0, ...more }) {
    super(`${message}${detail && `: ${detail}`} (SQLSTATE ${sqlstate})`);
    const { s: schema = "", t: table = "", c: column = "", d: dataType = "", n: constraint = "" } = more;
    Object.assign(this, { sqlstate, detail, hint, position: Number(position), schema, table, column, dataType, constraint });
  }
}

// What handlers throw to fail the attempt with this message alone. If there is another attempt, it comes after options.delay
// milliseconds if that is set.
export class Failure extends Error {
  constructor(message, options, more = []) {
    super(message, options);
    const { delay } = optionsOf(this.name, options, ["delay", ...more, "cause"]);
    if (delay !== undefined && !(typeof delay === "number" && delay >= 0)) {
      throw new RangeError(`delay of ${this.name}: ${String(delay)}: write milliseconds, 0 or more`);
    }
    this.delay = delay;
  }
}

// What handlers throw to run again later, without counting an attempt. With options.key all other waiting tasks with the key of this one
// wait as long.
export class Retry extends Failure {
  constructor(message, options) {
    super(message, options, ["key"]);
    const key = options?.key ?? false;
    if (typeof key !== "boolean" || (key && !(this.delay > 0))) {
      throw new RangeError(`key of Retry: ${String(key)}: write true, and a delay for the tasks with this key`);
    }
    this.key = key;
  }
}

// What handlers throw if another attempt would fail as well.
export class Fatal extends Failure {}

for (const [type, name] of [[QuernError, "QuernError"], [SQLError, "SQLError"], [Failure, "Failure"], [Retry, "Retry"], [Fatal, "Fatal"]]) {
  Object.defineProperty(type.prototype, "name", { value: name, configurable: true, writable: true });
}

const COMPLETE = 0, FAILED = 1, FATAL = 65, RETRY = 75;
const MOST_CAUSES = 5, MOST_DELAY = 365 * 24 * 3600 * 1000;
// A longer message comes behind the frames: the host cuts texts, when it has replaced secrets in them.
const LONG_MESSAGE = 2000;
// So a text is cut here only where it is far longer than what the host shows.
const MOST_TEXT = 64 << 10;
const SHOWN_FRAMES = 10; // before a long message
const UNREADABLE = "(its text cannot be read)";

// Returns the status with which an error ends the task. The outermost Failure, Retry or Fatal counts.
export function statusOf(error) {
  let status = FAILED;
  attempt(() => {
    for (let n = 0; n < MOST_CAUSES && error instanceof Error; n++, error = error.cause) {
      if (!(error instanceof Failure)) continue;
      status = error instanceof Fatal ? FATAL : error instanceof Retry ? RETRY : FAILED;
      if (status !== FATAL && error.delay > 0) native.retryAfter((error.key ? -1 : 1) * Math.min(Math.ceil(error.delay), MOST_DELAY));
      return;
    }
  });
  return status;
}

export { COMPLETE, FAILED };

// Reads an error, which may run the user's code: getters, traps of a proxy. What that throws is not the task's error.
function attempt(read, otherwise) {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

// Returns what a person reads of an error: name, message, where it was thrown in the user's sources, and its causes. A Failure
// is meant to happen, so it has its message alone. rejected is defined if it is the reason of a rejected promise that
// has no handler: the frames of the rejection.
export function textOf(error, rejected) {
  const text = textWithCauses(error);
  return rejected === undefined ? text : `unhandled rejection: ${text}${rejected && "\n" + rejected}`;
}

function textWithCauses(error) {
  const parts = [];
  do {
    parts.push(attempt(() => oneText(error), UNREADABLE));
    error = attempt(() => (error instanceof Error ? error.cause : undefined));
  } while (error !== undefined && parts.length < MOST_CAUSES);
  return parts.join("\ncaused by: ");
}

function oneText(error) {
  const head = headOf(error);
  if (!(error instanceof Error) || error instanceof Failure) return head;
  const frames = attempt(() => framesOf(error), "");
  const name = attempt(() => String(error.name), "Error");
  if (frames !== "" && (head.length > LONG_MESSAGE || name === "InternalError")) { // QuickJS's, as when memory was denied
    return `${cut(name)} [${places(frames, SHOWN_FRAMES)}]: ${head.startsWith(name + ": ") ? head.slice(name.length + 2) : head}`;
  }
  const errors = error instanceof AggregateError ? attempt(() => error.errors.slice(0, MOST_CAUSES).map((e) => `\n  * ${headOf(e).split("\n")[0]}`).join(""), "") : "";
  return head + (frames === "" ? "" : "\n" + frames) + errors;
}

const places = (frames, most) => frames.split("\n", most).map((line) => line.trim().replace(/^at /, "")).join(" < ");

// What to use in the place of what Node has, by the name that is not defined.
const missing = {
  Buffer: 'use Uint8Array and TextEncoder, or run npm install buffer and import { Buffer } from "buffer"',
  process: "a plugin has no process of Node: throw Fatal or Failure instead of process.exit; process.env has what capabilities.env of the manifest lists",
  require: "use import",
  __dirname: 'a plugin has no folder: import the file itself, as in import text from "./a.txt"',
  __filename: 'a plugin has no folder: import the file itself, as in import text from "./a.txt"',
  setImmediate: "use setTimeout",
  Intl: "a plugin has no Intl: use a package such as dayjs",
  WebSocket: "a plugin has no sockets: use fetch",
  XMLHttpRequest: "use fetch",
  FormData: "use URLSearchParams, or build the body yourself",
  Worker: "a plugin has one thread: enqueue a task for each part",
  ReadableStream: "a plugin has no streams: read a whole body by text, json or bytes",
  window: "a plugin is no browser: use another package",
  document: "a plugin is no browser: use another package",
};

function remedyOf(error, message) {
  if (error instanceof TypeError && /^not a (function|constructor)$/.test(message)) return attempt(() => notCallable(error, message)) ?? message;
  const name = error instanceof ReferenceError ? /^'?(\w+)'? is not defined$/.exec(message)?.[1] : undefined;
  return name !== undefined && Object.hasOwn(missing, name) ? `${message}: ${missing[name]}` : message;
}

// The names of what objects of the SDK have, by the text of what comes before the last dot of a call.
export const members = new Map();

// Says what is called and is no function, as V8 does; undefined if it is not known. Of a function that a native one calls, such as that
// of map, only the place is known.
function notCallable(error, message) {
  const [before, after] = around(linesOf(error)[0]) ?? [""];
  const called = /^new ([\w$.]+)/.exec(after)?.[1] ?? calleeOf(before, after);
  const constructs = message === "not a constructor";
  if (!called || constructs !== /^new /.test(after)) return undefined;
  if (!/\/app\/handler\.js:/.test(rawLines(error)[0])) return `${message}: near ${called}(`;
  if (constructs) return `${called} is not a constructor`;
  const [, owner, name] = /^(.+?)\??\.([\w$]+)$/.exec(called) ?? [];
  const meant = owner && nearest(name, members.get(owner) ?? []);
  return `${called} is not a function${meant ? `: did you mean ${meant}?` : ""}`;
}

// Returns the expression that is called at a place of the source, such as kv(...).incr, of the text in front of its last name and from
// there on; undefined if it is not one of names.
function calleeOf(before, after) {
  let [called] = /^#?[\w$]+/.exec(after) ?? [];
  for (let dot; called && (dot = /\??\.$/.exec(before)); ) {
    called = dot[0] + called;
    before = before.slice(0, dot.index);
    for (let group; (group = /(\([^()]*\)|\[[^[\]]*\])$/.exec(before)); before = before.slice(0, group.index)) {
      called = (group[0].length > 2 && group[0][0] === "(" ? "(...)" : group[0]) + called;
    }
    const [name] = /[\w$]+$/.exec(before) ?? [];
    if (name === undefined) return (/^[[(]/.test(called) ? "" : "(intermediate value)") + called;
    called = name + called;
    before = before.slice(0, -name.length);
  }
  return called;
}

// Returns the name that is most like one, undefined if none is.
function nearest(name, names) {
  const [[far, meant] = []] = names.map((one) => [distance(name.toLowerCase(), one.toLowerCase()), one]).sort(([a], [b]) => a - b);
  return far <= Math.max(1, name.length / 3) ? meant : undefined;
}

// The number of letters to insert, remove or replace between two texts.
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, n) => n);
  for (let i = 1; i <= a.length; i++) {
    row = row.reduce((next, up, j) => [...next, j === 0 ? i : Math.min(up + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1))], []);
  }
  return row[b.length];
}

function headOf(error) {
  if (!(error instanceof Error)) return cut(typeof error === "string" ? error : `thrown: ${shown(error)}`);
  const message = remedyOf(error, attempt(() => String(error.message), UNREADABLE));
  if (error instanceof Failure) return cut(message);
  const name = attempt(() => String(error.name), "Error");
  return cut(message === "" ? name : `${name}: ${message}`);
}

// Returns the error's stack without the engine's own frames, in terms of the user's sources.
export function framesOf(error) {
  return mapped(linesOf(error).map((line) => line.replace("at handler_default (", "at handler ("))).join("\n"); // esbuild's name of a default export
}

function linesOf(error) {
  const lines = rawLines(error).filter((line) => !/\(quern:|\(native\)$|^ {4}at <input>/.test(line));
  const makers = attempt(() => constructorsOf(error), []);
  const first = lines.findIndex((line) => !makers.includes(/^ {4}at (\S+) \(/.exec(line)?.[1]));
  return lines.slice(Math.max(first, 0));
}

// The names of the constructors of an error's classes, which are no place where it is thrown.
function constructorsOf(error) {
  const names = [];
  for (let type = error.constructor; typeof type === "function" && type !== Error && names.length < MOST_CAUSES; type = Object.getPrototypeOf(type)) names.push(type.name);
  return names;
}

function rawLines(error) {
  const stack = Object.hasOwn(error, "stack") ? error.stack : Reflect.apply(engineStack, error, []);
  return typeof stack === "string" ? stack.split("\n").filter((line) => line.startsWith("    at ")) : [];
}

const engineStack = Object.getOwnPropertyDescriptor(Error.prototype, "stack")?.get; // undefined in Node

// Has error.stack begin with name and message, as in Node, and show positions in the user's sources. They are looked up when it is read.
export function installStack() {
  const { set } = Object.getOwnPropertyDescriptor(Error.prototype, "stack");
  Object.defineProperty(Error.prototype, "stack", {
    get() {
      const stack = Reflect.apply(engineStack, this, []);
      return typeof stack === "string" ? `${attempt(() => String(this), "Error")}\n${framesOf({ stack })}`.trimEnd() : stack;
    },
    set, configurable: true,
  });
}

// Returns the first places of framesOf, each a line, for quern_where.
export const placesOf = (error) => framesOf(error).split("\n", 3).map((line) => line.trim().replace(/^at /, "")).join("\n");

const cut = (text) => text.slice(0, MOST_TEXT);

function shown(value) {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

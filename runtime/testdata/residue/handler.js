// Looks for what another task has left, and leaves all that it can. Its input is an ending and a canary; "" is a warm call.
// It returns what differs from task to task and what must not, or fails with what it has found.
import { Fatal, Retry, log, progress } from "@quern/sdk";

const pattern = /canary-\d{6}/g;
const state = { list: [], map: new Map(), set: new Set(), bytes: new Uint8Array(64), kept: null };
const weak = new WeakMap([[state, ""]]);
const sticky = /x/g;
const symbol = Symbol("residue");
class Shelf { static items = []; }
let variable = "";

function* counter() { for (let n = 0; ; n++) yield n; }
const counted = counter();
values(); // what has drawn before the snapshot

// The ways to a value that a task may change: what is reachable by own keys.
function text(value, depth, seen = new Set()) {
  if (typeof value === "string") return value;
  if (typeof value === "symbol") return String(value);
  if (value === null || (typeof value !== "object" && typeof value !== "function") || seen.has(value) || depth === 0) return "";
  seen.add(value);
  let all = "";
  if (value instanceof Map || value instanceof Set) for (const item of value) all += text(item, depth - 1, seen) + " ";
  if (value instanceof Uint8Array) return new TextDecoder("latin1").decode(value);
  for (const key of Reflect.ownKeys(value)) {
    const own = Object.getOwnPropertyDescriptor(value, key);
    all += String(key) + " " + ("value" in own ? text(own.value, depth - 1, seen) : "") + " ";
  }
  return all;
}

function* look() {
  const places = {
    "a global": globalThis, "the module": state, "a class": Shelf, "a variable": variable, "a weak map": weak.get(state),
    "a regular expression": sticky, "a function": look, "Object": Object.prototype, "Array": Array.prototype, "String": String.prototype,
    "Promise": Promise.prototype, "JSON": JSON, "Math": Math, "console": console, "the sdk's errors": Retry.prototype,
  };
  for (const [name, place] of Object.entries(places)) for (const found of text(place, place === state ? 4 : 2).match(pattern) ?? []) yield `${found} in ${name}`;
}

// What each task finds in the same state.
function same() {
  return [
    Object.getOwnPropertyNames(globalThis).sort().join(), sticky.lastIndex, counted.next().value, Error.stackTraceLimit,
    Reflect.ownKeys(Array.prototype).length, Reflect.ownKeys(Object.prototype).length, typeof JSON.parse, [1, 2].map((n) => n * 2).join(),
    Object.isFrozen(Map.prototype), symbol in state, state.bytes.join(""), globalThis.performance.now() < 60_000,
  ].join(" ");
}

// What is another value in each task.
function values() {
  return {
    random: Math.random(), randomUUID: crypto.randomUUID(), bytes: crypto.getRandomValues(new Uint8Array(8)).join(),
    time: Date.now() / 1000,
  };
}

function leave(own) {
  state.list.push(own);
  state.map.set(own, own);
  state.set.add(own);
  state.bytes.set(new TextEncoder().encode(own));
  // The string in both of its widths, as a rope, an atom, an array, and much of it; kept and freed.
  state.kept = [own + "", own + "𝄞", { [own]: own }, Symbol.for(own), new Array(1000).fill(own + "!"), own.repeat(20_000), () => own];
  (own + "ā").repeat(20_000);
  (own + "b").repeat(500).split("").length;
  state[symbol] = own;
  Shelf.items.push(own);
  Shelf[own] = own;
  variable = own;
  weak.set(state, own);
  sticky.test("xx");
  sticky.left = look.left = own;
  globalThis.left = globalThis[own] = own;
  for (const prototype of [Object.prototype, Array.prototype, String.prototype, Promise.prototype, Retry.prototype]) {
    Object.defineProperty(prototype, own, { value: own, configurable: true });
  }
  JSON.left = Math.left = console.left = own;
  Object.freeze(Map.prototype);
  Error.stackTraceLimit = 1;
  counted.next();
  setTimeout(() => { throw new Error(own); }, 0);
  setInterval(() => log.info(own), 1);
  queueMicrotask(() => { variable = own; });
  new Promise(() => own);
  progress(0.5, own);
  console.count("residue");
  console.log(own);
  Math.random = () => 0.5;
  Date.now = () => 0;
}

function deeper(own) { return deeper(own) + own; }

function end(ending, own, report) {
  switch (ending) {
    case "complete": return report;
    case "fatal": throw new Fatal(own);
    case "retry": throw new Retry(own, { delay: 3000 });
    case "error": throw new TypeError(own);
    case "recursion": return deeper(own);
    case "memory": for (;;) state.list.push(new Uint8Array(50_000).fill(own.charCodeAt(0)), own.repeat(5000));
    case "loop": for (;;);
    default: throw new Fatal("no ending " + ending);
  }
}

export default function (task) {
  if (!task.text()) return void values();
  const [ending, own] = task.text().split(" ");
  const found = [...new Set(look())];
  if (found.length > 0) throw new Fatal("found " + found.join(", "));
  const report = JSON.stringify({ state: same(), values: values() });
  leave(own);
  return end(ending, own, report);
}

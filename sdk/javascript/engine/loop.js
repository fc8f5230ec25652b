// The event loop: pending jobs, timers, and promises that are rejected without a handler.

import { framesOf, placesOf } from "../lib/errors.js";

// Timers as a heap by their time, those of equal times by their ids; each knows its place.
const timers = [];
const byID = new Map(); // the ids as strings: the hashes of small numbers are much the same
let lastTimer = 0;
let call = 0; // whose timers they are
let began = 0; // of that call, by native.now
// Milliseconds. The place of a timer of at least so long, or that is set so long after the call began, is noted for a task that is stopped.
const LONG = 1000;

// Forgets the timers that another call has left: the start, or a warm call.
function enter() {
  if (call === native.call()) return;
  call = native.call();
  began = native.now();
  timers.length = 0;
  byID.clear();
}

function add(callback, delay, repeat, parameters) {
  enter();
  if (typeof callback !== "function") throw new TypeError(`a timer calls a function, not ${typeof callback}`);
  delay = Number(delay);
  delay = delay >= 1 ? Math.min(delay, 2 ** 31 - 1) : repeat ? 1 : 0;
  const now = native.now();
  const timer = { id: ++lastTimer, due: now + delay, callback, parameters, every: repeat ? delay : undefined, set: undefined };
  if (repeat || delay >= LONG || now - began >= LONG) timer.set = new Error(); // only its stack counts
  byID.set(String(timer.id), timer);
  place(timer, timers.length);
  return timer.id;
}

const before = (a, b) => a.due < b.due || (a.due === b.due && a.id < b.id);

// Puts a timer into the heap, whose place at is free: there, above or below.
function place(timer, at) {
  for (let up; at > 0 && before(timer, (up = timers[(at - 1) >> 1])); ) at = move(up, at);
  for (;;) {
    let down = timers[2 * at + 1];
    const other = timers[2 * at + 2];
    if (other && before(other, down)) down = other;
    if (!down || before(timer, down)) break;
    at = move(down, at);
  }
  timers[at] = timer;
  timer.at = at;
}

// Moves a timer to a free place of the heap, and returns the one that is free then.
function move(timer, to) {
  const from = timer.at;
  timers[to] = timer;
  timer.at = to;
  return from;
}

function remove(timer) {
  byID.delete(String(timer.id));
  const last = timers.pop();
  if (last !== timer) place(last, timer.at);
}

export const setTimeout = (callback, delay = 0, ...parameters) => add(callback, delay, false, parameters);
export const setInterval = (callback, delay = 0, ...parameters) => add(callback, delay, true, parameters);

export function clearTimeout(id) {
  const timer = byID.get(String(id));
  if (timer) remove(timer);
}

// Describes what the next timer is and where it was set, for quern_where; undefined if that is not known.
export function nextTimer() {
  const [timer] = timers;
  if (!timer?.set || call !== native.call()) return undefined;
  return `${timer.every === undefined ? "setTimeout" : "setInterval (the handler's promise is not settled)"}\n${placesOf(timer.set)}`;
}

// Waits for the next timer and calls it. Returns false if there is none.
function tick() {
  enter();
  const timer = timers[0];
  if (!timer) return false;
  const wait = timer.due - native.now();
  if (wait > 0) native.sleep(Math.ceil(wait), nextTimer());
  if (timer.every === undefined) {
    remove(timer);
  } else {
    timer.due = native.now() + timer.every;
    place(timer, 0);
  }
  timer.callback(...timer.parameters);
  return true;
}

// Reasons of rejected promises that have no handler, by the promise. One that is left fails its call.
const unhandled = new Map();
let thrown; // the reason that runJobs has thrown, with the place of its rejection if it has no stack of its own

export function onRejection(promise, reason, handled) {
  if (handled) unhandled.delete(promise);
  else unhandled.set(promise, { reason, frames: reason instanceof Error ? "" : framesOf(new Error()) });
}

// Returns the frames where a promise was rejected if the error is the reason of one without a handler, else undefined.
export const rejectedAt = (error) => (thrown !== undefined && thrown.reason === error ? thrown.frames : undefined);

// Runs pending jobs. Throws what nobody else would learn of: what a job throws, and why a promise without a handler was
// rejected.
export function runJobs() {
  native.runJobs();
  if (unhandled.size === 0) return;
  thrown = unhandled.values().next().value;
  throw thrown.reason;
}

const then = Promise.prototype.then;

// Waits for a promise: returns its value or throws its reason. what names it in the error of one that is never settled.
export function settle(promise, what) {
  let outcome;
  Reflect.apply(then, promise, [(value) => (outcome = { value }), (error) => (outcome = { error })]);
  for (;;) {
    runJobs();
    if (outcome) {
      if ("error" in outcome) throw outcome.error;
      return outcome.value;
    }
    if (!tick()) throw new Error(`${what} is never settled: it waits for something, but no timer or job is left that could settle it`);
  }
}

// The event loop: pending jobs, timers, and promises that are rejected without a handler.

// Timers in the order of their time, those of equal times in the order in which they were set.
const timers = [];
let lastTimer = 0;
let call = 0; // whose timers they are

// Forgets the timers that another call has left: the start, or a warm call.
function enter() {
  if (call === native.call()) return;
  call = native.call();
  timers.length = 0;
}

function add(callback, delay, repeat, parameters) {
  enter();
  if (typeof callback !== "function") throw new TypeError(`a timer calls a function, not ${typeof callback}`);
  delay = Number(delay);
  delay = delay >= 1 ? Math.min(delay, 2 ** 31 - 1) : repeat ? 1 : 0;
  const timer = { id: ++lastTimer, due: native.now() + delay, callback, parameters, every: repeat ? delay : undefined };
  insert(timer);
  return timer.id;
}

function insert(timer) {
  let at = timers.length;
  while (at > 0 && timers[at - 1].due > timer.due) at--;
  timers.splice(at, 0, timer);
}

export const setTimeout = (callback, delay = 0, ...parameters) => add(callback, delay, false, parameters);
export const setInterval = (callback, delay = 0, ...parameters) => add(callback, delay, true, parameters);

export function clearTimeout(id) {
  const at = timers.findIndex((timer) => timer.id === id);
  if (at >= 0) timers.splice(at, 1);
}

// Waits for the next timer and calls it. Returns false if there is none.
function tick() {
  enter();
  const timer = timers.shift();
  if (!timer) return false;
  const wait = timer.due - native.now();
  if (wait > 0) native.sleep(Math.ceil(wait));
  if (timer.every !== undefined) {
    timer.due = native.now() + timer.every;
    insert(timer);
  }
  timer.callback(...timer.parameters);
  return true;
}

// Reasons of rejected promises that have no handler, by the promise. One that is left fails its call.
const unhandled = new Map();

export function onRejection(promise, reason, handled) {
  if (handled) unhandled.delete(promise);
  else unhandled.set(promise, reason);
}

// Runs pending jobs. Throws what nobody else would learn of: what a job throws, and why a promise without a handler was
// rejected.
export function runJobs() {
  native.runJobs();
  if (unhandled.size > 0) throw unhandled.values().next().value;
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

// Event and EventTarget, as far as AbortSignal needs them, and AbortController.

import { clearTimeout, setTimeout } from "./loop.js";

export class Event {
  #prevented = false;
  target = null;
  currentTarget = null;
  constructor(type, { bubbles = false, cancelable = false } = {}) {
    this.type = String(type);
    this.bubbles = Boolean(bubbles);
    this.cancelable = Boolean(cancelable);
    this.timeStamp = native.now();
  }
  get defaultPrevented() { return this.#prevented; }
  preventDefault() { if (this.cancelable) this.#prevented = true; }
  stopPropagation() {}
  stopImmediatePropagation() { this.stopped = true; }
}

export class EventTarget {
  #listeners = [];

  addEventListener(type, listener, options) {
    if (listener === null || listener === undefined) return;
    const { once = false, signal } = typeof options === "object" && options !== null ? options : {};
    if (signal?.aborted || this.#listeners.some((l) => l.type === type && l.listener === listener)) return;
    this.#listeners.push({ type, listener, once });
    signal?.addEventListener("abort", () => this.removeEventListener(type, listener), { once: true });
  }

  removeEventListener(type, listener) {
    this.#listeners = this.#listeners.filter((l) => l.type !== type || l.listener !== listener);
  }

  dispatchEvent(event) {
    event.target = event.currentTarget = this;
    const listeners = this.#listeners.filter((l) => l.type === event.type);
    const handler = this["on" + event.type];
    if (typeof handler === "function") listeners.unshift({ listener: handler });
    for (const { type, listener, once } of listeners) {
      if (once) this.removeEventListener(type, listener);
      if (typeof listener === "function") listener.call(this, event);
      else listener.handleEvent(event);
      if (event.stopped) break;
    }
    event.currentTarget = null;
    return !event.defaultPrevented;
  }
}

const secret = Symbol("only AbortSignal and AbortController make signals");
// When signals of AbortSignal.timeout end, on the clock of native.now: a request takes no longer than that.
const ends = new WeakMap();

export const endOf = (signal) => ends.get(signal) ?? Infinity;

let abort; // aborts a signal

export class AbortSignal extends EventTarget {
  #aborted = false;
  #reason = undefined;
  onabort = null;

  static {
    abort = (signal, reason = new DOMException("This operation was aborted", "AbortError")) => {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason;
      signal.dispatchEvent(new Event("abort"));
    };
  }

  constructor(key) {
    if (key !== secret) throw new TypeError("Illegal constructor: use new AbortController().signal");
    super();
  }
  get aborted() {
    // While the guest waits for the host no timer runs.
    if (!this.#aborted && native.now() >= endOf(this)) abort(this, timedOut());
    return this.#aborted;
  }
  get reason() { return this.aborted ? this.#reason : undefined; }
  throwIfAborted() { if (this.aborted) throw this.#reason; }

  static abort(reason) {
    const signal = new AbortSignal(secret);
    abort(signal, reason);
    return signal;
  }

  static timeout(ms) {
    if (!(ms >= 0)) throw new RangeError(`AbortSignal.timeout: ${String(ms)}: write milliseconds, 0 or more`);
    const signal = new AbortSignal(secret);
    ends.set(signal, native.now() + ms);
    const timer = setTimeout(() => abort(signal, timedOut()), ms);
    signal.addEventListener("abort", () => clearTimeout(timer));
    return signal;
  }

  static any(signals) {
    const result = new AbortSignal(secret);
    for (const signal of signals) {
      if (signal.aborted) {
        abort(result, signal.reason);
        return result;
      }
      signal.addEventListener("abort", () => abort(result, signal.reason), { once: true });
    }
    ends.set(result, Math.min(...[...signals].map(endOf), Infinity));
    return result;
  }
}

const timedOut = () => new DOMException("The operation was aborted due to timeout", "TimeoutError");

export class AbortController {
  #signal = new AbortSignal(secret);
  get signal() { return this.#signal; }
  abort(reason) { abort(this.#signal, reason); }
}

// What handlers find in globalThis beside the language.

import { structuredClone } from "./clone.js";
import { console } from "./console.js";
import { crypto, CryptoKey } from "./crypto.js";
import { TextDecoder, TextEncoder } from "./encoding.js";
import { AbortController, AbortSignal, Event, EventTarget } from "./events.js";
import { Blob, fetch, Headers, Request, Response } from "./fetch.js";
import { installStack } from "../lib/errors.js";
import { installLocale } from "./locale.js";
import { clearTimeout, setInterval, setTimeout } from "./loop.js";
import { install as installURL } from "./url.js";

// Its origin is the first use in a task: before, nobody could have read the clock.
const performance = {
  now: native.elapsed,
  get timeOrigin() { return Date.now() - native.elapsed(); },
};

export function installGlobals() {
  const globals = {
    AbortController, AbortSignal, Blob, CryptoKey, Event, EventTarget, Headers, Request, Response, TextDecoder, TextEncoder,
    clearInterval: clearTimeout, clearTimeout, console, crypto, fetch, performance, setInterval, setTimeout, structuredClone,
  };
  for (const [name, value] of Object.entries(globals)) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }
  delete globalThis.SharedArrayBuffer; // nothing to share it with, and no Atomics
  installURL();
  installLocale();
  installStack();
  Object.defineProperty(Math, "random", { value: native.draw, writable: true, configurable: true });
}

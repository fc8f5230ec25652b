import { console } from "./console.js";
import * as loop from "./loop.js";

const timers = { setTimeout: loop.setTimeout, setInterval: loop.setInterval, clearTimeout: loop.clearTimeout, clearInterval: loop.clearTimeout };

// Defines what handlers find in globalThis beside the language.
export function installGlobals() {
  for (const [name, value] of Object.entries({ ...timers, console })) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }
  Object.defineProperty(Math, "random", { value: native.draw, writable: true, configurable: true });
}

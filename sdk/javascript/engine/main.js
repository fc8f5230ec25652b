// The engine's JavaScript, evaluated before the snapshot: it sets up what handlers see, and loads the user's module.

import { bytesOf, isBytes, jsonOf } from "../lib/bytes.js";
import { COMPLETE, FAILED, placesOf, QuernError, statusOf, textOf } from "../lib/errors.js";
import { installGlobals } from "./globals.js";
import { nextTimer, onRejection, rejectedAt, runJobs, settle } from "./loop.js";
import { sdk } from "../lib/sdk.js";
import { mapped } from "../lib/sourcemap.js";
import { task } from "../lib/task.js";
import { prepare } from "./url.js";

const HANDLER = "/app/handler.js";

let exported; // the handler
let startError; // the text of an error of the start: every task fails with it
let spare = new ArrayBuffer(256 << 10); // freed when memory is short, to tell the error

// Ends a task whose handler has thrown a value or returned it, and returns its status.
function endTask(threw, value) {
  if (startError !== undefined) {
    native.setError(startError);
    return FAILED;
  }
  try {
    if (threw) throw value;
    let result = value;
    if (result instanceof Promise || typeof result?.then === "function") {
      result = settle(Promise.resolve(result), "the handler's promise");
    } else {
      runJobs();
    }
    if (result !== undefined) native.output(typeof result === "string" ? result : isBytes(result) ? bytesOf(result) : jsonOf(result, "result", () => ofHandler(exported)));
    return COMPLETE;
  } catch (error) {
    spare = undefined;
    const status = statusOf(error);
    native.setError(textOf(error, rejectedAt(error)));
    return status;
  }
}

// Returns where the handler is: a line for each frame of the user's functions, innermost first; "" if none runs. The host writes "at"
// before it, and may stop the handler later.
function whereabouts() {
  const places = placesOf(new Error()) || nextTimer();
  return places ? "or after " + places : "";
}

// What follows a part of a function's result in errors: the function, with its place in the user's sources.
function ofHandler({ name, fileName, lineNumber, columnNumber }) {
  return ` of ${handlerName(name)} (${mapped([`${fileName}:${lineNumber}:${columnNumber}`])[0]})`;
}

// esbuild gives a default export without a name that of its file.
const handlerName = (name) => (/^(default|handler_default)?$/.test(name) ? "the handler" : name);

// Adds to the error of an import that @quern/sdk does not have what it has.
function explain(error) {
  const [, name] = /^Could not find export '(.*)' in module '@quern\/sdk'$/.exec(error?.message) ?? [];
  if (name !== undefined) error.message = `@quern/sdk has no ${name}: it has ${Object.keys(sdk).sort().join(", ")}`;
  return error;
}

function start() {
  const source = native.readFile(HANDLER);
  if (source === undefined) throw new Error(`there is no ${HANDLER}: build the plugin with quern plugin build`);
  prepare(native.decode(source));
  const [exports, done] = native.evaluate(source, HANDLER);
  settle(done, "an await at the top level of the module");
  const handler = (exported = exports.default);
  if (typeof handler !== "function") {
    throw new TypeError(`handler.js exports ${handler === undefined ? "no default" : `a default of type ${typeof handler}`}: write export default function (task) { ... }`);
  }
  native.serve(handler, task);
}

installGlobals();
native.begin(endTask, (call, code) => new QuernError(code, call), onRejection, whereabouts);
native.provide("@quern/sdk", sdk);
try {
  start();
} catch (error) {
  startError = "the plugin did not start: " + textOf(explain(error), rejectedAt(error));
  for (const line of startError.split("\n")) native.log(4, line);
}

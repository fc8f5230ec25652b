// console writes to the task's log, with the levels of quern_v1.

import { framesOf } from "../lib/errors.js";
import { format, inspect } from "./inspect.js";

const TRACE = 0, DEBUG = 1, INFO = 2, WARN = 3, ERROR = 4;

let indent = "";
const counts = new Map();
const begun = new Map();

// Writes each line of the text as one of the log.
function write(level, text) {
  for (const line of text.split("\n")) native.log(level, indent + line);
}

const at = (level) => (...values) => write(level, format(values));
const elapsed = (label) => `${label}: ${(native.now() - begun.get(label)).toFixed(3)} ms`;

function group(...values) {
  if (values.length > 0) write(INFO, format(values));
  indent += "  ";
}

export const console = {
  trace(...values) { write(TRACE, ["Trace: " + format(values), framesOf(new Error())].join("\n").trimEnd()); },
  debug: at(DEBUG),
  log: at(INFO),
  info: at(INFO),
  warn: at(WARN),
  error: at(ERROR),
  assert(condition, ...values) { if (!condition) write(ERROR, values.length === 0 ? "Assertion failed" : "Assertion failed: " + format(values)); },
  dir(value) { write(INFO, inspect(value, 0)); },
  dirxml: at(INFO),
  table: at(INFO),
  group,
  groupCollapsed: group,
  groupEnd() { indent = indent.slice(2); },
  count(label = "default") {
    counts.set(label, (counts.get(label) ?? 0) + 1);
    write(INFO, `${label}: ${counts.get(label)}`);
  },
  countReset(label = "default") { counts.delete(label); },
  time(label = "default") { begun.set(label, native.now()); },
  timeLog(label = "default", ...values) { if (begun.has(label)) write(INFO, format([elapsed(label), ...values])); },
  timeEnd(label = "default") {
    if (begun.has(label)) write(INFO, elapsed(label));
    begun.delete(label);
  },
};

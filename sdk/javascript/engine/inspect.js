// How console shows values.

import { framesOf } from "../lib/errors.js";
import { isURL } from "./url.js";

const DEPTH = 4, ITEMS = 100, WIDTH = 100;

// Returns the text of a value. Strings are quoted within others.
export function inspect(value, depth = 0, seen = []) {
  switch (typeof value) {
    case "string": return depth === 0 ? value : JSON.stringify(value);
    case "bigint": return `${value}n`;
    case "function": return `[${/^class\b/.test(Function.prototype.toString.call(value)) ? "class" : "Function"}${value.name ? " " + value.name : " (anonymous)"}]`;
    case "object": return value === null ? "null" : inspectObject(value, depth, seen);
    default: return Object.is(value, -0) ? "-0" : String(value);
  }
}

function inspectObject(value, depth, seen) {
  if (seen.includes(value)) return "[Circular]";
  if (value instanceof Error) return inspectError(value, depth, seen);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
  if (value instanceof RegExp) return String(value);
  if (value instanceof Promise) return "Promise {}";
  if (value instanceof String || value instanceof Number || value instanceof Boolean) return `[${value.constructor.name}: ${inspect(value.valueOf(), 1)}]`;
  if (isURL(value)) return `URL { ${value.href} }`;
  const name = nameOf(value);
  if (depth >= DEPTH) return Array.isArray(value) ? "[Array]" : `[${name || "Object"}]`;
  const inner = (v) => inspect(v, depth + 1, [...seen, value]);
  if (Array.isArray(value)) return list(name === "Array" ? "" : name + " ", "[", items(value, value.length, inner), "]");
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) return list(`${name}(${value.length}) `, "[", items(value, value.length, inner), "]");
  if (value instanceof ArrayBuffer) return `ArrayBuffer { byteLength: ${value.byteLength} }`;
  if (value instanceof Map) return list(`Map(${value.size}) `, "{", items(value, value.size, ([k, v]) => `${inner(k)} => ${inner(v)}`), "}");
  if (value instanceof Set) return list(`Set(${value.size}) `, "{", items(value, value.size, inner), "}");
  const entries = typeof value[Symbol.iterator] === "function" && typeof value.entries === "function" && Object.keys(value).length === 0 ? iterated(value, inner) : properties(value, inner);
  return list(name === "Object" ? "" : name === "" ? "[Object: null prototype] " : name + " ", "{", entries, "}");
}

function inspectError(error, depth, seen) {
  const frames = framesOf(error);
  let text = `${error.name}: ${error.message}` + (frames === "" ? "" : "\n" + frames);
  const own = Object.keys(error).filter((key) => key !== "stack" && key !== "message" && key !== "name" && key !== "cause");
  if (own.length > 0) text += " " + list("", "{", own.map((key) => `${key}: ${inspect(error[key], depth + 1, [...seen, error])}`), "}");
  if (error.cause !== undefined) text += `\ncaused by: ${inspect(error.cause, depth + 1, [...seen, error])}`;
  return text;
}

function nameOf(value) {
  const prototype = Object.getPrototypeOf(value);
  return prototype === null ? "" : (prototype.constructor?.name ?? "Object");
}

function items(values, size, inner) {
  const texts = [];
  for (const value of values) {
    if (texts.length === ITEMS) {
      texts.push(`… ${size - ITEMS} more`);
      break;
    }
    texts.push(inner(value));
  }
  return texts;
}

const iterated = (value, inner) => items(value.entries(), Infinity, ([k, v]) => `${inner(k)} => ${inner(v)}`);

function properties(value, inner) {
  const keys = Reflect.ownKeys(value).filter((key) => Object.prototype.propertyIsEnumerable.call(value, key));
  return items(keys, keys.length, (key) => {
    const { get, set, value: v } = Object.getOwnPropertyDescriptor(value, key);
    const shown = get || set ? `[${get && set ? "Getter/Setter" : get ? "Getter" : "Setter"}]` : inner(v);
    const name = typeof key === "symbol" ? `[${String(key)}]` : /^[A-Za-z_$][\w$]*$/.test(key) ? key : JSON.stringify(key);
    return `${name}: ${shown}`;
  });
}

// Puts texts on one line, or each on its own if that would be long.
function list(name, open, texts, close) {
  if (texts.length === 0) return name + open + close;
  const line = texts.join(", ");
  if (line.length <= WIDTH && !line.includes("\n")) return open === "[" ? `${name}[ ${line} ]` : `${name}{ ${line} }`;
  return `${name}${open}\n  ${texts.join(",\n").replaceAll("\n", "\n  ")}\n${close}`;
}

// Returns the text of console's arguments: %s, %d, %i, %f, %j, %o, %O and %c in the first one stand for those behind it.
export function format(values) {
  const rest = [...values];
  const texts = [];
  if (typeof rest[0] === "string" && rest.length > 1) {
    const pattern = rest.shift();
    texts.push(
      pattern.replace(/%([sdifjoOc%])/g, (all, kind) => {
        if (kind === "%") return "%";
        if (rest.length === 0) return all;
        const value = rest.shift();
        switch (kind) {
          case "s": return typeof value === "string" ? value : inspect(value, 1);
          case "d": return typeof value === "bigint" ? `${value}n` : String(Number(value));
          case "i": return typeof value === "bigint" ? `${value}n` : String(Number.parseInt(value, 10));
          case "f": return String(Number.parseFloat(value));
          case "j": return JSON.stringify(value) ?? "undefined";
          case "c": return "";
          default: return inspect(value, 1);
        }
      }),
    );
  }
  for (const value of rest) texts.push(inspect(value));
  return texts.join(" ");
}

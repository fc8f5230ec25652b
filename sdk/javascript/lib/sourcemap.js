// Positions of /app/handler.js in the user's sources. The map is read and decoded when the first error needs it.

import { native } from "#native";

const BUNDLE = "/app/handler.js";

// Replaces positions of the bundle in lines of a stack by those of the sources.
export function mapped(lines) {
  const map = load();
  return lines.map((line) =>
    line.replace(/(\/app\/handler\.js):(\d+)(?::(\d+))?/, (_, file, row, column) => {
      const found = map && lookUp(map, Number(row) - 1, Number(column ?? 1) - 1);
      return found ?? (column ? `handler.js:${row}:${column}` : `handler.js:${row}`);
    }),
  );
}

// Returns the text of the bundle around the position in a line of a stack, such as kv("a").incr(, or "".
export function excerpt(line) {
  const [, row, column] = /\/app\/handler\.js:(\d+):(\d+)/.exec(line) ?? [];
  const source = column && native.readFile(BUNDLE);
  const text = source && native.decode(source).split("\n")[row - 1];
  return text ? /[\w$.[\]("')]{0,40}$/.exec(text.slice(0, column - 1))[0] + /^[\w$.[\]]{0,40}\(?/.exec(text.slice(column - 1))[0] : "";
}

function load() {
  try {
    const text = native.readFile(BUNDLE + ".map");
    if (text === undefined) return undefined;
    const map = JSON.parse(native.decode(text));
    if (!Array.isArray(map.sources) || typeof map.mappings !== "string") return undefined;
    return { sources: map.sources.map((source) => named(source, map.sourceRoot)), rows: map.mappings.split(";"), states: undefined };
  } catch {
    return undefined; // a broken map costs names, not the error
  }
}

// The file's name as the user knows it: without the way from the bundle to the sources.
function named(source, root) {
  const path = (root ? root.replace(/\/?$/, "/") : "") + (source ?? "");
  return path.replace(/^(\.?\.\/)+/, "");
}

// Returns "source:row:column" of a position, both counted from 0. Rows of a map build on each other.
function lookUp(map, row, column) {
  const state = { source: 0, row: 0, column: 0 };
  let best;
  for (let at = 0; at <= row && at < map.rows.length; at++) {
    let generated = 0;
    if (map.rows[at] === "") continue;
    for (const segment of map.rows[at].split(",")) {
      const numbers = decode(segment);
      generated += numbers[0];
      if (numbers.length >= 4) {
        state.source += numbers[1];
        state.row += numbers[2];
        state.column += numbers[3];
      }
      if (at === row && generated <= column && numbers.length >= 4) best = { ...state };
    }
  }
  const source = best && map.sources[best.source];
  return source === undefined ? undefined : `${source}:${best.row + 1}:${best.column + 1}`;
}

const digits = new Map([..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"].map((c, i) => [c, i]));

// Decodes a segment of base64 VLQ numbers.
function decode(segment) {
  const numbers = [];
  let number = 0, shift = 0;
  for (const c of segment) {
    const digit = digits.get(c) ?? 0;
    number |= (digit & 31) << shift;
    shift += 5;
    if (digit & 32) continue;
    numbers.push(number & 1 ? -(number >>> 1) : number >>> 1);
    number = shift = 0;
  }
  return numbers;
}

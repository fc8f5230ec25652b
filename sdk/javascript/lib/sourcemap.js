// Positions of the bundle in the user's sources.

import { native } from "#native";

// Replaces positions of the bundle in lines of a stack by those of the sources.
export function mapped(lines) {
  return lines.map((line) =>
    line.replace(/\/app\/(handler\.js:(\d+)(?::(\d+))?)/, (_, place, row, column) => native.source(Number(row), Number(column ?? 1)) ?? place),
  );
}

// Returns the text of the bundle in front of the position in a line of a stack, and behind it; undefined if there is none.
export function around(line) {
  const [, row, column] = /\/app\/handler\.js:(\d+):(\d+)/.exec(line) ?? [];
  return column && native.around(Number(row), Number(column));
}

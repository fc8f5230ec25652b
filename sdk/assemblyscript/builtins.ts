// What the compiler calls by itself; asconfig.json puts these in the place of functions that a host of the Web would have.
import * as sys from "./sys";
import { setError } from "./errors";
import { error, info } from "./log";

// throw, assert, an index out of range: the message, file and line are the task's error. Before there is a task, they are logged.
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const text = (message ? message : "abort") + " (" + (file ? file : "?") + ":" + line.toString() + ":" + column.toString() + ")";
  if (!setError(text)) error(text);
  unreachable();
}

// Seeds Math.random at its first use.
export function seed(): f64 {
  const word = memory.data(8);
  sys.random(word, 8);
  return reinterpret<f64>((load<u64>(word) >> 12) | 0x3ff0000000000000); // from 1 to 2
}

export function trace(message: string, n: i32 = 0, a0: f64 = 0, a1: f64 = 0, a2: f64 = 0, a3: f64 = 0, a4: f64 = 0): void {
  const numbers: StaticArray<f64> = [a0, a1, a2, a3, a4];
  for (let i = 0; i < n; i++) message += " " + numbers[i].toString();
  info(message);
}

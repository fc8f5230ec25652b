// Values of PostgreSQL: parameters of statements, and rows of answers.

import { native } from "#native";
import { isBytes, bytesOf, jsonOf } from "./bytes.js";
import { SQLError } from "./errors.js";

const NULL = 0, TEXT = 1, BYTES = 2;

// Returns the parameters as values of sdk/ABI.md.
export function parametersOf(parameters) {
  if (!Array.isArray(parameters)) throw new TypeError(`parameters are an array, not ${typeof parameters}: write query(statement, [42])`);
  const values = parameters.map((value, n) => {
    if (value === null) return [NULL, new Uint8Array()];
    return isBytes(value) ? [BYTES, new Uint8Array(bytesOf(value))] : [TEXT, native.encode(textOf(`parameter ${n + 1}`, value))];
  });
  const all = new Uint8Array(values.reduce((size, [, data]) => size + 5 + data.length, 0));
  const view = new DataView(all.buffer);
  let at = 0;
  for (const [kind, data] of values) {
    view.setUint8(at, kind);
    view.setUint32(at + 1, data.length, true);
    all.set(data, at + 5);
    at += 5 + data.length;
  }
  return all;
}

// Returns PostgreSQL's text format of a value.
function textOf(what, value) {
  switch (typeof value) {
    case "string": return value;
    case "boolean": case "number": case "bigint": return String(value);
    case "undefined": throw new TypeError(`${what} is undefined: write null for NULL`);
    case "object": break;
    default: throw new TypeError(`${what} is a ${typeof value}: write String(...)`);
  }
  if (Array.isArray(value)) return `{${value.map((item) => itemOf(what, item)).join(",")}}`;
  if (!(value instanceof Date)) return jsonOf(value, what);
  if (Number.isNaN(value.getTime())) throw new TypeError(`${what} is an invalid Date`);
  return value.toISOString();
}

// Returns an element of an array.
function itemOf(what, item) {
  if (item === null) return "NULL";
  if (Array.isArray(item)) return textOf(what, item);
  if (typeof item === "object" && !isBytes(item) && !(item instanceof Date)) {
    throw new TypeError(`${what} is an array with an object: write JSON.stringify(...) of the array for json, or of each object for json[]`);
  }
  const text = isBytes(item) ? hexOf(item) : textOf(what, item);
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}

const hexOf = (value) => "\\x" + Array.from(new Uint8Array(bytesOf(value)), (byte) => byte.toString(16).padStart(2, "0")).join("");

// Returns the rows of an answer of the host's function, in which values are texts or bytes. Throws an error of the database.
export function rowsOf(answer) {
  if (!Array.isArray(answer)) throw new SQLError(answer);
  const [affected, names, oids, found] = answer;
  const twice = names.find((name, n) => names.indexOf(name) < n);
  if (twice !== undefined) throw new TypeError(`two columns are called ${twice}: give them names by AS`);
  names.forEach((name, n) => {
    const convert = types.get(oids[n]);
    if (convert) for (const row of found) if (row[name] !== null) row[name] = convert(row[name]);
  });
  const columns = names.map((name, n) => ({ name, oid: oids[n] }));
  return Object.defineProperties(found, { affected: { value: affected }, columns: { value: columns } }); // not in comparisons
}

const bool = (text) => text === "t";

function int8(text) {
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : BigInt(text);
}

// A Date has milliseconds. It does not express infinity, and years before 1 and after 9999 are written in another way.
const timestamptz = (text) => (/^\d{4}-.{14}(\.\d+)?[+-]\d\d(:\d\d)?$/.test(text) ? new Date(text.replace(" ", "T").replace(/[+-]\d\d$/, "$&:00")) : text);

const bytea = (text) => Uint8Array.from(text.slice(2).match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));

// Returns the function that reads arrays, in PostgreSQL's text format, such as {1,NULL,"a b"}. Bounds before it, such as [0:1]=, are left out.
const arrayOf = (convert = (text) => text) => (text) => {
  const token = /[{},]|"((?:[^"\\]|\\.)*)"|[^{},"]+/gs;
  token.lastIndex = text.indexOf("{");
  const open = [[]];
  for (let found = token.exec(text); found; found = token.exec(text)) {
    const [part, quoted] = found;
    if (part === "{") open.push([]);
    else if (part === "}") open.at(-2).push(open.pop());
    else if (quoted !== undefined) open.at(-1).push(convert(quoted.replace(/\\(.)/gs, "$1")));
    else if (part !== ",") open.at(-1).push(part === "NULL" ? null : convert(part));
  }
  return open[0][0];
};

// What makes values of texts, by the OID of a type and that of its arrays. All others stay texts: a number would change a numeric, and a
// Date has no days without a time zone.
const types = new Map();
for (const [oid, array, convert] of [
  [16, 1000, bool], [21, 1005, Number], [23, 1007, Number], [20, 1016, int8], [700, 1021, Number], [701, 1022, Number], [1700, 1231],
  [25, 1009], [1043, 1015], [1042, 1014], [114, 199, JSON.parse], [3802, 3807, JSON.parse], [2950, 2951], [1082, 1182], [1083, 1183],
  [1114, 1115], [1184, 1185, timestamptz],
]) {
  if (convert) types.set(oid, (text) => convert(text));
  types.set(array, arrayOf(convert && ((text) => convert(text))));
}
types.set(1001, arrayOf(bytea));

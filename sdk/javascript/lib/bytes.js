// Bytes of JavaScript values.

export const isBytes = (value) => ArrayBuffer.isView(value) || value instanceof ArrayBuffer;

// Returns what the native functions take: a string, a Uint8Array or an ArrayBuffer. Undefined and null are no bytes.
export function bytesOf(value) {
  if (typeof value === "string" || value === undefined || value === null) return value;
  if (value instanceof Uint8Array || value instanceof ArrayBuffer) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  throw new TypeError(`bytes are a string, a Uint8Array or an ArrayBuffer, not ${typeof value}: use JSON.stringify for others`);
}

const remedies = { bigint: "use String", function: "call it", symbol: "use String", Map: "use Object.fromEntries", Set: "use Array.from", Promise: "await it" };
const kindOf = (value) => (typeof value === "object" ? Object.prototype.toString.call(value).slice(8, -1) : typeof value);
const MOST_DEPTH = 500; // of values in each other that are searched

// Returns the JSON of a value; undefined for undefined. Errors name the part that JSON does not express by its path: what is a noun such
// as "result". whose returns what follows the path, such as " of run".
export function jsonOf(value, what, whose = () => "") {
  if (value === undefined) return undefined;
  const kind = kindOf(value);
  const refused = ([path, is, remedy]) => new TypeError(`${path === what ? `the ${what}` : path}${whose()} ${is}, which JSON does not express: ${remedy}`);
  if (Object.hasOwn(remedies, kind) && typeof value.toJSON !== "function") throw refused([what, `is a ${kind}`, remedies[kind]]);
  let text;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    const found = error instanceof TypeError && culprit(what, value, []);
    throw found ? refused(found) : error;
  }
  const found = text?.includes("null") && culprit(what, value, []); // JSON.stringify writes null for NaN
  if (found) throw refused(found);
  return text;
}

// Returns the path of the first BigInt, NaN, infinity, or value within itself, with what is wrong and the remedy.
function culprit(path, value, open) {
  if (typeof value?.toJSON === "function") return undefined;
  if (typeof value === "bigint") return [path, "is a bigint", remedies.bigint];
  if (typeof value === "number" && !Number.isFinite(value)) return [path, `is ${value}`, "use null, or String"];
  if (typeof value !== "object" || value === null || open.length > MOST_DEPTH) return undefined;
  if (open.includes(value)) return [path, "contains itself", "leave it out"];
  for (const name of Object.keys(value)) {
    const way = Array.isArray(value) ? `[${name}]` : /^[\w$]+$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`;
    const found = culprit(path + way, value[name], [...open, value]);
    if (found !== undefined) return found;
  }
}

const MOST_SHOWN = 60; // characters of a text that is not JSON

// Parses JSON. The error of a text that is none says what is wrong, and how the text begins.
export function parseJSON(text, wrong) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SyntaxError(notJSON(text, wrong, error));
  }
}

export function notJSON(text, wrong, { message }) {
  if (text === "") return `${wrong}: it is empty`;
  if (/^invalid UTF-8/.test(message)) return `${wrong}: ${message}`;
  return `${wrong}: it begins with ${JSON.stringify(text.slice(0, MOST_SHOWN))} (${message})`;
}

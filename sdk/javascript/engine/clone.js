// structuredClone.

const errors = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

const refused = (value) => new DOMException(`${typeof value === "symbol" ? String(value) : typeof value === "function" ? `function ${value.name}` : Object.prototype.toString.call(value)} could not be cloned.`, "DataCloneError");

export function structuredClone(value, options) {
  if (arguments.length === 0) throw new TypeError("structuredClone: there is no value");
  const known = new Map();
  const clone = copy(value, known);
  for (const buffer of options?.transfer ?? []) {
    if (!(buffer instanceof ArrayBuffer)) throw refused(buffer);
    buffer.transfer();
  }
  return clone;
}

function copy(value, known) {
  if (typeof value === "symbol" || typeof value === "function") throw refused(value);
  if (typeof value !== "object" || value === null) return value;
  if (known.has(value)) return known.get(value);
  const keep = (clone) => (known.set(value, clone), clone);

  if (Array.isArray(value)) return properties(value, keep(new Array(value.length)), known);
  if (value instanceof Date) return keep(new Date(value.getTime()));
  if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
  if (value instanceof Boolean || value instanceof Number || value instanceof String || value instanceof BigInt) return keep(Object(value.valueOf()));
  if (value instanceof ArrayBuffer) return keep(value.slice(0));
  if (ArrayBuffer.isView(value)) {
    const buffer = copy(value.buffer, known);
    return keep(new value.constructor(buffer, value.byteOffset, value instanceof DataView ? value.byteLength : value.length));
  }
  if (value instanceof Map) {
    const clone = keep(new Map());
    for (const [k, v] of [...value]) clone.set(copy(k, known), copy(v, known));
    return clone;
  }
  if (value instanceof Set) {
    const clone = keep(new Set());
    for (const v of [...value]) clone.add(copy(v, known));
    return clone;
  }
  if (value instanceof Error) {
    const error = keep(new (errors[value.name] ?? Error)(value.message));
    Object.defineProperty(error, "stack", { value: value.stack, writable: true, configurable: true });
    if ("cause" in value) Object.defineProperty(error, "cause", { value: copy(value.cause, known), writable: true, configurable: true });
    return error;
  }
  if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet || value instanceof WeakRef) throw refused(value);
  return properties(value, keep({}), known);
}

function properties(value, clone, known) {
  for (const key of Object.keys(value)) clone[key] = copy(value[key], known);
  return clone;
}

// Bytes of JavaScript values.

export const isBytes = (value) => ArrayBuffer.isView(value) || value instanceof ArrayBuffer;

// Returns what the native functions take: a string, a Uint8Array or an ArrayBuffer. Undefined and null are no bytes.
export function bytesOf(value) {
  if (typeof value === "string" || value === undefined || value === null) return value;
  if (value instanceof Uint8Array || value instanceof ArrayBuffer) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  throw new TypeError(`bytes are a string, a Uint8Array or an ArrayBuffer, not ${typeof value}: use JSON.stringify for others`);
}

// Returns the JSON of a value; undefined for undefined.
export function jsonOf(value, what) {
  if (value === undefined) return undefined;
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`${what} is a ${typeof value}, which JSON cannot express`);
  return text;
}

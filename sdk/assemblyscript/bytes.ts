// Bytes and texts.
import * as sys from "./sys";

/** A text as UTF-8. Half a surrogate pair becomes U+FFFD. */
export function utf8(text: string): ArrayBuffer {
  return String.UTF8.encode(text, false, String.UTF8.ErrorMode.REPLACE);
}

/** The bytes of a string (as UTF-8), an ArrayBuffer, a Uint8Array or a StaticArray<u8>. */
export function bytesOf<T>(value: T): ArrayBuffer {
  if (isString<T>()) {
    return utf8(changetype<string>(value));
  } else if (value instanceof ArrayBuffer) {
    return value;
  } else if (value instanceof Uint8Array) {
    const whole = value.byteOffset == 0 && value.byteLength == value.buffer.byteLength;
    return whole ? value.buffer : value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength);
  } else if (value instanceof StaticArray<u8>) {
    const copy = new ArrayBuffer(value.length);
    memory.copy(changetype<usize>(copy), changetype<usize>(value), value.length);
    return copy;
  } else {
    return ERROR("a result, and what is written, sent or stored, is string, ArrayBuffer, Uint8Array or StaticArray<u8>");
  }
}

/** The text in a range of memory. A byte that is no UTF-8 becomes U+FFFD. */
export function textAt(ptr: usize, size: usize): string {
  const end = ptr + size;
  const wrong = faults(ptr, end);
  if (wrong == 0) return String.UTF8.decodeUnsafe(ptr, size);
  const mended = new ArrayBuffer(<i32>size + 2 * wrong); // whole: memory is never freed
  for (let to = changetype<usize>(mended); ptr < end; ) {
    const length = sequence(ptr, end);
    if (length > 0) {
      memory.copy(to, ptr, length);
      to += length;
      ptr += length;
    } else {
      store<u16>(to, 0xbfef); // U+FFFD
      store<u8>(to, 0xbd, 2);
      to += 3;
      ptr++;
    }
  }
  return String.UTF8.decode(mended);
}

/** How many bytes of a range of memory are no UTF-8. */
function faults(ptr: usize, end: usize): i32 {
  let count = 0;
  while (ptr < end) {
    const length = sequence(ptr, end);
    if (length == 0) count++;
    ptr += max(length, 1);
  }
  return count;
}

/** The length of the character of UTF-8 at an address; 0 if there is none. */
function sequence(ptr: usize, end: usize): usize {
  const first = load<u8>(ptr);
  if (first < 0x80) return 1;
  const length: usize = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length == 0 || ptr + length > end) return 0;
  for (let i: usize = 1; i < length; i++) {
    if ((load<u8>(ptr + i) & 0xc0) != 0x80) return 0;
  }
  const second = load<u8>(ptr + 1);
  const overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const outside = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return overlong || outside ? 0 : length;
}

/** Whether a buffer is UTF-8. */
export function isUTF8(buffer: ArrayBuffer): bool {
  const ptr = changetype<usize>(buffer);
  return faults(ptr, ptr + buffer.byteLength) == 0;
}

export function textOf(buffer: ArrayBuffer): string {
  return textAt(changetype<usize>(buffer), buffer.byteLength);
}

/** The content of the slot, of a size that a function has answered; nothing if that is an error. */
export function slot(size: i32): ArrayBuffer {
  const buffer = new ArrayBuffer(max(size, 0));
  if (size > 0) sys.result_read(0, changetype<usize>(buffer), size);
  return buffer;
}

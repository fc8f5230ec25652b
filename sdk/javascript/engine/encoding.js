// TextEncoder and TextDecoder.

import { bytesOf } from "../lib/bytes.js";

export class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return native.encode(String(text)); }

  encodeInto(text, target) {
    text = String(text);
    let read = 0, written = 0;
    for (const character of text) {
      const bytes = native.encode(character);
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      written += bytes.length;
      read += character.length;
    }
    return { read, written };
  }
}

const labels = {
  "utf-8": ["utf-8", "utf8", "unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "x-unicode20utf8"],
  "utf-16le": ["utf-16le", "utf-16", "ucs-2", "csunicode", "iso-10646-ucs-2", "unicode", "unicodefeff"],
  "windows-1252": ["windows-1252", "latin1", "iso-8859-1", "iso8859-1", "iso88591", "iso_8859-1", "ascii", "us-ascii", "l1", "cp1252", "x-cp1252", "ansi_x3.4-1968", "cp819", "csisolatin1", "ibm819", "iso-ir-100"],
};

// What windows-1252, which the Encoding Standard means by latin1, has in the place of 0x80 to 0x9f.
const high = "\u20ac\x81\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\x8d\u017d\x8f\x90\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\x9d\u017e\u0178";

const PIECE = 4096; // arguments of one call

function latin1(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += PIECE) text += String.fromCharCode(...bytes.subarray(at, at + PIECE));
  return text.replace(/[\x80-\x9f]/g, (c) => high[c.charCodeAt(0) - 0x80]);
}

function utf16(bytes) {
  let text = "";
  for (let at = 0; at + 1 < bytes.length; at += 2 * PIECE) {
    const units = [];
    for (let i = at; i < Math.min(at + 2 * PIECE, bytes.length - 1); i += 2) units.push(bytes[i] | (bytes[i + 1] << 8));
    text += String.fromCharCode(...units);
  }
  return text;
}

// How many bytes at the end may be the beginning of a character.
function unfinished(encoding, bytes) {
  if (encoding === "windows-1252") return 0;
  if (encoding === "utf-16le") {
    const odd = bytes.length % 2;
    const last = bytes[bytes.length - odd - 1];
    return odd + (bytes.length > 1 && last >= 0xd8 && last <= 0xdb ? 2 : 0);
  }
  for (let n = 1; n <= Math.min(3, bytes.length); n++) {
    const byte = bytes[bytes.length - n];
    if (byte < 0x80) return 0;
    if (byte >= 0xc0) return n < (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) ? n : 0;
  }
  return 0;
}

export class TextDecoder {
  #encoding;
  #fatal;
  #ignoreBOM;
  #kept = new Uint8Array();
  #begun = false;

  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    const wanted = String(label).trim().toLowerCase();
    this.#encoding = Object.keys(labels).find((name) => labels[name].includes(wanted));
    if (!this.#encoding) throw new RangeError(`TextDecoder: ${label}: the encodings are utf-8, utf-16le and latin1`);
    this.#fatal = Boolean(fatal);
    this.#ignoreBOM = Boolean(ignoreBOM);
  }
  get encoding() { return this.#encoding; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#ignoreBOM; }

  decode(input, { stream = false } = {}) {
    let bytes = input === undefined ? new Uint8Array() : bytesOf(input);
    if (typeof bytes === "string" || bytes === null) throw new TypeError("TextDecoder decodes an ArrayBuffer or a view of one");
    if (bytes instanceof ArrayBuffer) bytes = new Uint8Array(bytes);
    if (this.#kept.length > 0) {
      const all = new Uint8Array(this.#kept.length + bytes.length);
      all.set(this.#kept);
      all.set(bytes, this.#kept.length);
      bytes = all;
    }
    const keep = stream ? unfinished(this.#encoding, bytes) : 0;
    this.#kept = bytes.slice(bytes.length - keep);
    let text = this.#decoded(keep > 0 ? bytes.subarray(0, bytes.length - keep) : bytes);
    if (text === undefined) {
      this.#kept = new Uint8Array();
      this.#begun = false;
      throw new TypeError(`TextDecoder: the bytes are not valid ${this.#encoding}`);
    }
    if (!this.#begun && !this.#ignoreBOM && this.#encoding !== "windows-1252" && text[0] === "\ufeff") text = text.slice(1);
    this.#begun = stream && (this.#begun || bytes.length > keep);
    return text;
  }

  #decoded(bytes) {
    if (this.#encoding === "utf-8") return native.decode(bytes, this.#fatal);
    if (this.#encoding === "windows-1252") return latin1(bytes);
    const text = utf16(bytes) + (bytes.length % 2 ? "\ufffd" : "");
    if (this.#fatal && (bytes.length % 2 || !text.isWellFormed())) return undefined;
    return text.toWellFormed();
  }
}

// crypto: random numbers of the host, digests, and HMAC, which is made of them.

import { bytesOf, isBytes } from "../lib/bytes.js";

const MOST_RANDOM = 65536;
const algorithms = { "SHA-1": { bits: 1, block: 64, size: 20 }, "SHA-256": { bits: 256, block: 64, size: 32 }, "SHA-384": { bits: 384, block: 128, size: 48 }, "SHA-512": { bits: 512, block: 128, size: 64 } };
const secret = Symbol("only subtle makes keys");

const unsupported = (what) => new DOMException(`${what}: there are SHA-1, SHA-256, SHA-384 and SHA-512, and HMAC with them`, "NotSupportedError");

const nameOf = (algorithm) => String(typeof algorithm === "object" && algorithm !== null ? algorithm.name : algorithm).toUpperCase();

function hashOf(algorithm) {
  const name = nameOf(algorithm);
  if (!algorithms[name]) throw unsupported(name);
  return name;
}

function asArray(value) {
  if (!isBytes(value)) throw new TypeError("subtle takes an ArrayBuffer or a view of one");
  return value instanceof ArrayBuffer ? new Uint8Array(value) : bytesOf(value);
}

const sum = (hash, bytes) => native.digest(algorithms[hash].bits, bytes);

function joined(a, b) {
  const all = new Uint8Array(a.length + b.length);
  all.set(a);
  all.set(b, a.length);
  return all;
}

// RFC 2104.
function hmac(hash, key, data) {
  const { block } = algorithms[hash];
  const padded = new Uint8Array(block);
  padded.set(key.length > block ? sum(hash, key) : key);
  return sum(hash, joined(padded.map((b) => b ^ 0x5c), sum(hash, joined(padded.map((b) => b ^ 0x36), data))));
}

const fromBase64URL = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
const toBase64URL = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");

let bytesOfKey;

export class CryptoKey {
  static { bytesOfKey = (key) => key.#bytes; }
  #bytes;
  constructor(key, bytes, algorithm, extractable, usages) {
    if (key !== secret) throw new TypeError("Illegal constructor: use crypto.subtle.importKey");
    this.#bytes = bytes;
    this.type = "secret";
    this.algorithm = algorithm;
    this.extractable = Boolean(extractable);
    this.usages = [...usages];
  }
  get [Symbol.toStringTag]() { return "CryptoKey"; }
}

function checked(algorithm, key, usage) {
  if (nameOf(algorithm) !== "HMAC") throw unsupported(nameOf(algorithm));
  if (!(key instanceof CryptoKey) || !key.usages.includes(usage)) throw new DOMException(`the key may not ${usage}`, "InvalidAccessError");
  return [key.algorithm.hash.name, bytesOfKey(key)];
}

function newKey(bytes, algorithm, extractable, usages) {
  if (nameOf(algorithm) !== "HMAC") throw unsupported(nameOf(algorithm));
  return new CryptoKey(secret, bytes, { name: "HMAC", hash: { name: hashOf(algorithm.hash) }, length: bytes.length * 8 }, extractable, usages);
}

class SubtleCrypto {
  async digest(algorithm, data) { return sum(hashOf(algorithm), asArray(data)).buffer; }

  async importKey(format, data, algorithm, extractable, usages) {
    if (format === "raw") return newKey(asArray(data).slice(), algorithm, extractable, usages);
    if (format === "jwk" && data?.kty === "oct") return newKey(fromBase64URL(data.k), algorithm, extractable, usages);
    throw unsupported(`a key in the format ${format}`);
  }

  async generateKey(algorithm, extractable, usages) {
    const { block } = algorithms[hashOf(algorithm.hash)];
    return newKey(crypto.getRandomValues(new Uint8Array(algorithm.length ? Math.ceil(algorithm.length / 8) : block)), algorithm, extractable, usages);
  }

  async exportKey(format, key) {
    if (!key.extractable) throw new DOMException("the key is not extractable", "InvalidAccessError");
    const bytes = bytesOfKey(key);
    if (format === "raw") return bytes.slice().buffer;
    if (format === "jwk") return { kty: "oct", k: toBase64URL(bytes), alg: "HS" + key.algorithm.hash.name.slice(4), ext: true, key_ops: key.usages };
    throw unsupported(`a key in the format ${format}`);
  }

  async sign(algorithm, key, data) {
    const [hash, bytes] = checked(algorithm, key, "sign");
    return hmac(hash, bytes, asArray(data)).buffer;
  }

  async verify(algorithm, key, signature, data) {
    const [hash, bytes] = checked(algorithm, key, "verify");
    const want = hmac(hash, bytes, asArray(data)), got = asArray(signature);
    let different = want.length ^ got.length;
    for (let i = 0; i < want.length; i++) different |= want[i] ^ got[i];
    return different === 0;
  }
}

export const crypto = {
  subtle: new SubtleCrypto(),

  getRandomValues(array) {
    if (!ArrayBuffer.isView(array) || array instanceof DataView || array instanceof Float32Array || array instanceof Float64Array) {
      throw new DOMException("getRandomValues fills an array of integers", "TypeMismatchError");
    }
    if (array.byteLength > MOST_RANDOM) throw new DOMException(`getRandomValues fills ${MOST_RANDOM} bytes at most, not ${array.byteLength}`, "QuotaExceededError");
    native.random(bytesOf(array));
    return array;
  },

  // RFC 9562, version 4.
  randomUUID() {
    const bytes = new Uint8Array(16);
    native.random(bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
  },
};

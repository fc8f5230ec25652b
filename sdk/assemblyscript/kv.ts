// The tenant's key-value store.
import * as sys from "./sys";
import { bytesOf, slot, textAt, textOf, utf8 } from "./bytes";
import { check, Errno, Failure } from "./errors";
import { found } from "./task";

/** What a swap found. */
export class Swap {
  /** The new value is set: the old one was the expected one, or there was none as expected. */
  done: bool = false;
  /** The other value, if there is one. */
  present: ArrayBuffer | null = null;
}

/**
 * A bucket, which the manifest has to grant. Keys are 1 to 256 bytes of UTF-8 without control characters, values at most 512 KiB. A value
 * to set is a string or bytes.
 */
export class Bucket {
  private bucket: ArrayBuffer;

  constructor(readonly name: string) {
    this.bucket = utf8(name);
  }

  /** The value of a key; null if there is none. */
  get(key: string, failure: Failure | null = null): ArrayBuffer | null {
    const b = this.bucket, k = utf8(key);
    return found("kv_get", sys.kv_get(changetype<usize>(b), b.byteLength, changetype<usize>(k), k.byteLength), failure, key, this.name);
  }

  /** The value of a key as UTF-8; null if there is none. */
  text(key: string, failure: Failure | null = null): string | null {
    const value = this.get(key, failure);
    return value ? textOf(value) : null;
  }

  /** Sets a value, for ttl milliseconds if that is above 0. EQUOTA if the bucket has no room. */
  set<T>(key: string, value: T, ttl: i64 = 0, failure: Failure | null = null): void {
    const b = this.bucket, k = utf8(key), v = bytesOf(value);
    const answer = sys.kv_set(
      changetype<usize>(b), b.byteLength, changetype<usize>(k), k.byteLength, changetype<usize>(v), v.byteLength, ttl,
    );
    check("kv_set", answer, failure, key, this.name);
  }

  /** Deletes a value, and returns whether there was one. */
  delete(key: string, failure: Failure | null = null): bool {
    const b = this.bucket, k = utf8(key);
    const answer = sys.kv_delete(changetype<usize>(b), b.byteLength, changetype<usize>(k), k.byteLength);
    return check("kv_delete", answer, failure, key, this.name) == 1;
  }

  /** Adds to a decimal number, 0 if there is none, and returns the sum. ECONFLICT for another value. */
  increment(key: string, delta: i64 = 1, failure: Failure | null = null): i64 {
    const b = this.bucket, k = utf8(key), sum = memory.data(8);
    const answer = sys.kv_increment(changetype<usize>(b), b.byteLength, changetype<usize>(k), k.byteLength, delta, sum);
    return check("kv_increment", answer, failure, key, this.name) < 0 ? 0 : load<i64>(sum);
  }

  /** Sets a value like set if the present one equals old, or if there is none and old is null. */
  swap<T>(key: string, old: ArrayBuffer | null, value: T, ttl: i64 = 0, failure: Failure | null = null): Swap {
    const b = this.bucket, k = utf8(key), v = bytesOf(value);
    const answer = sys.kv_swap(
      changetype<usize>(b), b.byteLength, changetype<usize>(k), k.byteLength,
      changetype<usize>(old), old ? <usize>old.byteLength : <usize>-1, changetype<usize>(v), v.byteLength, ttl,
    );
    const swap = new Swap();
    const refused = answer == Errno.ECONFLICT || answer == Errno.ENOTFOUND;
    swap.done = check("kv_swap", refused ? 0 : answer, failure, key, this.name) == 0 && !refused;
    if (answer == Errno.ECONFLICT) swap.present = slot(sys.result_size());
    return swap;
  }

  /** At most limit (1 to 1000) keys that begin with prefix and sort after the key after, in byte order. */
  list(prefix: string = "", after: string = "", limit: i32 = 1000, failure: Failure | null = null): string[] {
    const b = this.bucket, p = utf8(prefix), a = utf8(after), keys: string[] = [];
    const size = check("kv_list", sys.kv_list(
      changetype<usize>(b), b.byteLength, changetype<usize>(p), p.byteLength, changetype<usize>(a), a.byteLength, limit,
    ), failure, prefix, this.name);
    const list = slot(size);
    for (let at = changetype<usize>(list), end = at + list.byteLength; at < end; ) {
      const length = load<u32>(at);
      keys.push(textAt(at + 4, length));
      at += 4 + length;
    }
    return keys;
  }
}

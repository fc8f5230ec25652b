// Calls with any pointers and numbers, which the typed functions do not allow.
import { sys } from "@quern/assemblyscript";
import { bytes, number } from "./words";

const SIZE = 1 << 17;
const scratch = memory.data(SIZE); // where & points

/** The first bytes of the memory that & points to. */
export function peek(size: i32): ArrayBuffer {
  const copy = new ArrayBuffer(min(size, SIZE));
  memory.copy(changetype<usize>(copy), scratch, copy.byteLength);
  return copy;
}

let a: StaticArray<i64> = new StaticArray<i64>(9);

function p(i: i32): usize {
  return <usize>a[i];
}

/** Calls a function with the words behind its name, and returns its answer. */
export function call(words: string[]): i32 {
  a = new StaticArray<i64>(9);
  for (let i = 2, n = 0; i < words.length; i++) {
    const word = words[i];
    if (word.startsWith("@")) {
      const text = bytes(word.substring(1));
      a[n++] = changetype<usize>(text);
      a[n++] = text.byteLength;
    } else {
      a[n++] = word == "&" ? scratch : word == "nan" ? 0 : number(word);
    }
  }
  const name = words[1];
  if (name == "result_read") return sys.result_read(<u32>a[0], p(1), p(2));
  if (name == "result_size") return sys.result_size();
  if (name == "input_size") return sys.input_size();
  if (name == "input_read") return sys.input_read(<u32>a[0], p(1), p(2));
  if (name == "output_write") return sys.output_write(p(0), p(1));
  if (name == "error_set") return sys.error_set(p(0), p(1));
  if (name == "retry_after") return sys.retry_after(a[0]);
  if (name == "task_text") return sys.task_text(<i32>a[0]);
  if (name == "task_number") return sys.task_number(<i32>a[0], p(1));
  if (name == "cancelled") return sys.cancelled();
  if (name == "log") return sys.log(<i32>a[0], p(1), p(2), p(3), p(4));
  if (name == "progress") return sys.progress(words[2] == "nan" ? NaN : <f64>a[0] / 100, p(1), p(2));
  if (name == "checkpoint_save") return sys.checkpoint_save(p(0), p(1));
  if (name == "checkpoint_load") return sys.checkpoint_load();
  if (name == "kv_get") return sys.kv_get(p(0), p(1), p(2), p(3));
  if (name == "kv_set") return sys.kv_set(p(0), p(1), p(2), p(3), p(4), p(5), a[6]);
  if (name == "kv_delete") return sys.kv_delete(p(0), p(1), p(2), p(3));
  if (name == "kv_increment") return sys.kv_increment(p(0), p(1), p(2), p(3), a[4], p(5));
  if (name == "kv_swap") return sys.kv_swap(p(0), p(1), p(2), p(3), p(4), p(5), p(6), p(7), a[8]);
  if (name == "kv_list") return sys.kv_list(p(0), p(1), p(2), p(3), p(4), p(5), <i32>a[6]);
  if (name == "http") return sys.http(p(0), p(1), p(2), p(3));
  if (name == "sql") return sys.sql(p(0), p(1), p(2), p(3), p(4), p(5));
  if (name == "sql_commit") return sys.sql_commit(p(0), p(1), p(2), p(3), p(4), p(5));
  if (name == "sql_rollback") return sys.sql_rollback(p(0), p(1));
  if (name == "sql_step") return sys.sql_step(p(0), p(1), p(2), p(3));
  if (name == "config_get") return sys.config_get(p(0), p(1));
  if (name == "secret_get") return sys.secret_get(p(0), p(1));
  if (name == "clock") return sys.clock(<i32>a[0], p(1));
  if (name == "sleep") return sys.sleep(a[0]);
  if (name == "random") return sys.random(p(0), p(1));
  if (name == "enqueue") return sys.enqueue(p(0), p(1), p(2), p(3), p(4), p(5));
  if (name == "dependency_result") return sys.dependency_result(p(0), p(1));
  return -1;
}

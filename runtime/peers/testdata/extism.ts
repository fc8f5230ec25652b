// What Extism's PDK for AssemblyScript does with its functions for input and output.

// @ts-ignore: decorators of the compiler
@external("extism:host/env", "input_length")
declare function inputLength(): u64;

// @ts-ignore
@external("extism:host/env", "input_load_u8")
declare function inputLoadU8(offset: u64): u32;

// @ts-ignore
@external("extism:host/env", "input_load_u64")
declare function inputLoadU64(offset: u64): u64;

// @ts-ignore
@external("extism:host/env", "alloc")
declare function alloc(size: u64): u64;

// @ts-ignore
@external("extism:host/env", "store_u8")
declare function storeU8(at: u64, value: u32): void;

// @ts-ignore
@external("extism:host/env", "store_u64")
declare function storeU64(at: u64, value: u64): void;

// @ts-ignore
@external("extism:host/env", "output_set")
declare function outputSet(at: u64, size: u64): void;

function input(): ArrayBuffer {
  const size = <i32>inputLength();
  const bytes = new ArrayBuffer(size);
  const to = changetype<usize>(bytes);
  let i = 0;
  for (; i + 8 <= size; i += 8) store<u64>(to + i, inputLoadU64(i));
  for (; i < size; i++) store<u8>(to + i, <u8>inputLoadU8(i));
  return bytes;
}

function output(bytes: ArrayBuffer): void {
  const size = bytes.byteLength, to = alloc(size), from = changetype<usize>(bytes);
  let i = 0;
  for (; i + 8 <= size; i += 8) storeU64(to + i, load<u64>(from + i));
  for (; i < size; i++) storeU8(to + i, load<u8>(from + i));
  outputSet(to, size);
}


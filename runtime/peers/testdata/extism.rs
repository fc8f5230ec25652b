// What Extism's PDK for Rust does with its functions for input and output.
use std::convert::TryInto;

#[link(wasm_import_module = "extism:host/env")]
extern "C" {
    fn input_length() -> u64;
    fn input_load_u8(offset: u64) -> u32;
    fn input_load_u64(offset: u64) -> u64;
    fn alloc(size: u64) -> u64;
    fn store_u8(at: u64, value: u32);
    fn store_u64(at: u64, value: u64);
    fn output_set(at: u64, size: u64);
}

fn input() -> Vec<u8> {
    let size = unsafe { input_length() };
    let mut bytes = Vec::with_capacity(size as usize);
    for at in (0..size & !7).step_by(8) {
        bytes.extend(unsafe { input_load_u64(at) }.to_le_bytes());
    }
    for at in size & !7..size {
        bytes.push(unsafe { input_load_u8(at) } as u8);
    }
    bytes
}

fn output(bytes: &[u8]) {
    let to = unsafe { alloc(bytes.len() as u64) };
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for (i, word) in words.enumerate() {
        unsafe { store_u64(to + 8 * i as u64, u64::from_le_bytes(word.try_into().unwrap())) };
    }
    for (i, &byte) in rest.iter().enumerate() {
        unsafe { store_u8(to + (bytes.len() - rest.len() + i) as u64, byte as u32) };
    }
    unsafe { output_set(to, bytes.len() as u64) };
}


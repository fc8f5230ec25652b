//! The functions of quern_v1 as they are; the rest of the crate is built on them. sdk/ABI.md specifies them.
//!
//! A module imports those that it calls, and no others.

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        #[cfg(target_arch = "wasm32")]
        #[link(wasm_import_module = "quern_v1")]
        extern "C" {
            $(pub fn $name($($argument: $type),*) -> i32;)*
        }
        $(
            /// Without WebAssembly there is the host of a task of [`test`](crate::test) alone.
            ///
            /// # Safety
            /// A pointer and the size behind it are those of a slice, and a pointer without one is that of an i64.
            #[cfg(not(target_arch = "wasm32"))]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn $name($($argument: $type),*) -> i32 {
                crate::test::call(stringify!($name), |host| host.$name($($argument),*))
            }
        )*
    };
}

functions! {
    result_read(offset: u32, to: *mut u8, capacity: usize);
    result_size();
    input_size();
    input_read(offset: u32, to: *mut u8, capacity: usize);
    output_write(data: *const u8, size: usize);
    error_set(text: *const u8, size: usize);
    retry_after(ms: i64);
    task_text(field: i32);
    task_number(field: i32, number: *mut i64);
    cancelled();
    log(level: i32, text: *const u8, size: usize, fields: *const u8, fields_size: usize);
    progress(fraction: f64, message: *const u8, size: usize);
    checkpoint_save(data: *const u8, size: usize);
    checkpoint_load();
    enqueue(queue: *const u8, queue_size: usize, body: *const u8, body_size: usize, options: *const u8, options_size: usize);
    dependency_result(id: *const u8, size: usize);
    kv_get(bucket: *const u8, bucket_size: usize, key: *const u8, key_size: usize);
    kv_set(bucket: *const u8, bucket_size: usize, key: *const u8, key_size: usize, value: *const u8, value_size: usize, ttl: i64);
    kv_delete(bucket: *const u8, bucket_size: usize, key: *const u8, key_size: usize);
    kv_increment(bucket: *const u8, bucket_size: usize, key: *const u8, key_size: usize, delta: i64, sum: *mut i64);
    kv_swap(bucket: *const u8, bucket_size: usize, key: *const u8, key_size: usize, old: *const u8, old_size: usize, value: *const u8, value_size: usize, ttl: i64);
    kv_list(bucket: *const u8, bucket_size: usize, prefix: *const u8, prefix_size: usize, after: *const u8, after_size: usize, limit: i32);
    http(head: *const u8, head_size: usize, body: *const u8, body_size: usize);
    sql(database: *const u8, database_size: usize, statement: *const u8, statement_size: usize, parameters: *const u8, parameters_size: usize);
    sql_commit(database: *const u8, database_size: usize, step: *const u8, step_size: usize, value: *const u8, value_size: usize);
    sql_rollback(database: *const u8, size: usize);
    sql_step(database: *const u8, database_size: usize, step: *const u8, step_size: usize);
    config_get(name: *const u8, size: usize);
    secret_get(name: *const u8, size: usize);
    clock(id: i32, nanoseconds: *mut i64);
    sleep(ms: i64);
    random(to: *mut u8, size: usize);
}

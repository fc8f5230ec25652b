// The functions of quern_v1 as they are; the rest of the package is built on them. sdk/ABI.md specifies them. A module imports those
// that it calls, and no others.

@external("quern_v1", "result_read") export declare function result_read(offset: u32, to: usize, capacity: usize): i32;
@external("quern_v1", "result_size") export declare function result_size(): i32;
@external("quern_v1", "input_size") export declare function input_size(): i32;
@external("quern_v1", "input_read") export declare function input_read(offset: u32, to: usize, capacity: usize): i32;
@external("quern_v1", "output_write") export declare function output_write(data: usize, size: usize): i32;
@external("quern_v1", "error_set") export declare function error_set(text: usize, size: usize): i32;
@external("quern_v1", "retry_after") export declare function retry_after(ms: i64): i32;
@external("quern_v1", "task_text") export declare function task_text(field: i32): i32;
@external("quern_v1", "task_number") export declare function task_number(field: i32, number: usize): i32;
@external("quern_v1", "cancelled") export declare function cancelled(): i32;
@external("quern_v1", "log") export declare function log(level: i32, text: usize, size: usize, fields: usize, fieldsSize: usize): i32;
@external("quern_v1", "progress") export declare function progress(fraction: f64, message: usize, size: usize): i32;
@external("quern_v1", "checkpoint_save") export declare function checkpoint_save(data: usize, size: usize): i32;
@external("quern_v1", "checkpoint_load") export declare function checkpoint_load(): i32;
@external("quern_v1", "enqueue") export declare function enqueue(queue: usize, queueSize: usize, body: usize, bodySize: usize, options: usize, optionsSize: usize): i32;
@external("quern_v1", "dependency_result") export declare function dependency_result(id: usize, size: usize): i32;
@external("quern_v1", "kv_get") export declare function kv_get(bucket: usize, bucketSize: usize, key: usize, keySize: usize): i32;
@external("quern_v1", "kv_set") export declare function kv_set(bucket: usize, bucketSize: usize, key: usize, keySize: usize, value: usize, valueSize: usize, ttl: i64): i32;
@external("quern_v1", "kv_delete") export declare function kv_delete(bucket: usize, bucketSize: usize, key: usize, keySize: usize): i32;
@external("quern_v1", "kv_increment") export declare function kv_increment(bucket: usize, bucketSize: usize, key: usize, keySize: usize, delta: i64, sum: usize): i32;
@external("quern_v1", "kv_swap") export declare function kv_swap(bucket: usize, bucketSize: usize, key: usize, keySize: usize, old: usize, oldSize: usize, value: usize, valueSize: usize, ttl: i64): i32;
@external("quern_v1", "kv_list") export declare function kv_list(bucket: usize, bucketSize: usize, prefix: usize, prefixSize: usize, after: usize, afterSize: usize, limit: i32): i32;
@external("quern_v1", "http") export declare function http(head: usize, headSize: usize, body: usize, bodySize: usize): i32;
@external("quern_v1", "sql") export declare function sql(database: usize, databaseSize: usize, statement: usize, statementSize: usize, parameters: usize, parametersSize: usize): i32;
@external("quern_v1", "sql_commit") export declare function sql_commit(database: usize, databaseSize: usize, step: usize, stepSize: usize, value: usize, valueSize: usize): i32;
@external("quern_v1", "sql_rollback") export declare function sql_rollback(database: usize, databaseSize: usize): i32;
@external("quern_v1", "sql_step") export declare function sql_step(database: usize, databaseSize: usize, step: usize, stepSize: usize): i32;
@external("quern_v1", "config_get") export declare function config_get(name: usize, size: usize): i32;
@external("quern_v1", "secret_get") export declare function secret_get(name: usize, size: usize): i32;
@external("quern_v1", "clock") export declare function clock(id: i32, nanoseconds: usize): i32;
@external("quern_v1", "sleep") export declare function sleep(ms: i64): i32;
@external("quern_v1", "random") export declare function random(to: usize, size: usize): i32;

// Ends the task as if quern_handle had returned the status.
@external("wasi_snapshot_preview1", "proc_exit") export declare function proc_exit(status: i32): void;

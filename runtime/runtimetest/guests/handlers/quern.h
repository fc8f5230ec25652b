// The functions of quern_v1, as the handlers in C here import them; what is not called is not imported.
#pragma once
#include <stdint.h>

#define QUERN(name) __attribute__((import_module("quern_v1"), import_name(#name)))
#define HANDLER __attribute__((export_name("quern_handle")))

QUERN(result_read) int32_t result_read(uint32_t offset, void *to, uint32_t capacity);
QUERN(input_size) int32_t input_size(void);
QUERN(input_read) int32_t input_read(uint32_t offset, void *to, uint32_t capacity);
QUERN(output_write) int32_t output_write(const void *from, uint32_t size);
QUERN(error_set) int32_t error_set(const void *text, uint32_t size);
QUERN(retry_after) int32_t retry_after(int64_t milliseconds);
QUERN(task_text) int32_t task_text(int32_t field);
QUERN(task_number) int32_t task_number(int32_t field, int64_t *to);
QUERN(cancelled) int32_t cancelled(void);
QUERN(clock) int32_t quern_clock(int32_t id, int64_t *to); // clock is the C library's
QUERN(random) int32_t quern_random(void *to, uint32_t size);
QUERN(log) int32_t quern_log(int32_t level, const void *text, uint32_t size, const void *fields, uint32_t fields_size);
QUERN(progress) int32_t quern_progress(double fraction, const void *text, uint32_t size);
QUERN(checkpoint_save) int32_t checkpoint_save(const void *from, uint32_t size);
QUERN(checkpoint_load) int32_t checkpoint_load(void);
QUERN(config_get) int32_t config_get(const void *name, uint32_t size);
QUERN(secret_get) int32_t secret_get(const void *name, uint32_t size);
QUERN(kv_get) int32_t kv_get(const void *bucket, uint32_t bucket_size, const void *key, uint32_t size);
QUERN(kv_increment) int32_t kv_increment(const void *bucket, uint32_t bucket_size, const void *key, uint32_t size, int64_t delta, int64_t *to);
QUERN(http) int32_t quern_http(const void *head, uint32_t size, const void *body, uint32_t body_size);

-- Sets a value.
-- ARGV    4 key  5 value  6 milliseconds that it lives, "0" for ever  7 quota in bytes
-- RETURNS {'ok'}, {'quota', bytes that the bucket holds}, or {'tenant', bytes of all buckets, quota}
return put(ARGV[4], ARGV[5], ARGV[6], ARGV[7], sweep(ARGV[4]))

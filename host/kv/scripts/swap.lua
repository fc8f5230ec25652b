-- Sets a value if the present one is as expected.
-- ARGV    4 key  5 value  6 milliseconds that it lives, "0" for ever  7 quota in bytes
--         8 the value that is expected; none if there must be none
-- RETURNS {'ok'}, {'quota', bytes that the bucket holds}, {'tenant', bytes of all buckets, quota}, {'conflict',
--         present value}, or {'conflict'} if there is none
local more = sweep(ARGV[4])
local present = redis.call('HGET', VALUES, ARGV[4])
if present ~= (ARGV[8] or false) then return { 'conflict', present or nil } end
return put(ARGV[4], ARGV[5], ARGV[6], ARGV[7], more)

-- Reads a value.
-- ARGV    4 key
-- RETURNS {'ok', value} or {'absent'}
sweep(ARGV[4])
local value = redis.call('HGET', VALUES, ARGV[4])
if not value then return { 'absent' } end
return { 'ok', value }

-- Removes a value.
-- ARGV    4 key
-- RETURNS {'ok'} or {'absent'}
local key = ARGV[4]
sweep(key)
if redis.call('HEXISTS', VALUES, key) == 0 then return { 'absent' } end
remove({ key })
return { 'ok' }

-- Holds a queue: nothing is reserved from it for a while. A longer hold stays.
-- KEYS    1 stats
-- ARGV    1 clock override, not used  2 the second until which it is held
-- RETURNS ok
local bad = mistyped(KEYS[1], 'hash')
if bad then return bad end
local is = tonumber(redis.call('HGET', KEYS[1], 'held') or '') or 0
if is < tonumber(ARGV[2]) then redis.call('HSET', KEYS[1], 'held', ARGV[2]) end
return 'ok'

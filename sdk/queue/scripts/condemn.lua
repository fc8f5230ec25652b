-- Begins to take everything from a listener whose lease is over: from now on it cannot be renewed,
-- and reserves nothing. Begins with a removal of nothing, as renew does.
-- KEYS    1 nodes
-- ARGV    1 clock override  2 listener
-- RETURNS 'ok', or 'alive' while its lease runs
local bad = mistyped(KEYS[1], 'zset', PAUSED, 'set')
if bad then return bad end

redis.call('SREM', PAUSED, '')
local lease = redis.call('ZSCORE', KEYS[1], ARGV[2])
if not lease then return 'ok' end
if tonumber(lease) > tonumber(now(ARGV[1])) then return 'alive' end
redis.call('ZADD', KEYS[1], 0, ARGV[2])
return 'ok'

-- Begins to take everything from a listener whose lease is over: from now on it cannot be renewed,
-- and reserves nothing. Begins with a removal of nothing, as renew does.
-- KEYS    1 nodes
-- ARGV    1 clock override  2 listener, then of a far lease (see Client.FarLeases) that has stood still for its
--         length: 3 its end  4 its length in seconds
-- RETURNS 'ok', or 'alive' while its lease runs
local bad = mistyped(KEYS[1], 'zset', PAUSED, 'set')
if bad then return bad end

redis.call('SREM', PAUSED, '')
local lease = redis.call('ZSCORE', KEYS[1], ARGV[2])
if not lease then return 'ok' end
local left = tonumber(lease) - tonumber(now(ARGV[1]))
local still = ARGV[3] and tonumber(lease) == tonumber(ARGV[3]) and left > tonumber(ARGV[4])
if left > 0 and not still then return 'alive' end
redis.call('ZADD', KEYS[1], 0, ARGV[2])
return 'ok'

-- Renews a listener's lease and what it says of itself. A lease that is over but not reclaimed is
-- renewed; one that is missing is lost. Begins with a removal of nothing, because at maxmemory
-- Redis refuses a ZADD as the first write, but not after one that frees memory.
-- KEYS    1 nodes  2 node hash  3 paused queues (from which nothing is removed)
-- ARGV    1 clock override  2 listener  3 lease in seconds  4 life of the node hash in seconds
--         then what the hash says: field, value, ...
-- RETURNS 'ok' or 'lost'
local bad = mistyped(KEYS[1], 'zset', KEYS[2], 'hash', KEYS[3], 'set')
if bad then return bad end

redis.call('SREM', KEYS[3], '')
if not redis.call('ZSCORE', KEYS[1], ARGV[2]) then return 'lost' end
redis.call('ZADD', KEYS[1], string.format('%.6f', tonumber(now(ARGV[1])) + tonumber(ARGV[3])), ARGV[2])
if #ARGV > 4 then redis.call('HSET', KEYS[2], unpack(ARGV, 5)) end
redis.call('EXPIRE', KEYS[2], ARGV[4])
return 'ok'

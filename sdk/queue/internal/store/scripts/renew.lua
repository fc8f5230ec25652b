-- Renews a listener's lease and its node hash. An expired lease can still be renewed. A lease that is missing or
-- condemned (its end is 0) is lost. Begins with an SREM that removes nothing: at maxmemory, Redis refuses a ZADD as the
-- first write, but not after a command that can free memory.
-- KEYS    1 nodes
-- ARGV    1 clock override  2 listener  3 length of the lease in seconds
--         4 seconds after which the node hash expires  then the contents of the node hash: field, value, ...
-- RETURNS 'ok', 'drain' if the listener is to drain, 'lost', or 'lost drain'
local hash = NODE_ .. ARGV[2]
local bad = mistyped(KEYS[1], 'zset', hash, 'hash', PAUSED, 'set')
if bad then return bad end

redis.call('SREM', PAUSED, '')
if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or '0') == 0 then
  return redis.call('HEXISTS', hash, 'drain') == 1 and 'lost drain' or 'lost'
end
redis.call('ZADD', KEYS[1], after(now(ARGV[1]), ARGV[3]), ARGV[2])
if #ARGV > 4 then redis.call('HSET', hash, unpack(ARGV, 5)) end
redis.call('EXPIRE', hash, ARGV[4])
return redis.call('HEXISTS', hash, 'drain') == 1 and 'drain' or 'ok'

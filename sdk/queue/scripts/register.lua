-- Makes a listener known to a queue, counted once.
-- KEYS    1 nodes  2 listeners of the queue  3 queues
-- ARGV    1 clock override  2 listener  3 queue  4 lease in seconds
-- RETURNS 1 if it was added, 0 if it was there
local bad = mistyped(KEYS[1], 'zset', KEYS[2], 'set', KEYS[3], 'zset')
if bad then return bad end

redis.call('ZADD', KEYS[1], string.format('%.6f', tonumber(now(ARGV[1])) + tonumber(ARGV[4])), ARGV[2])
local added = redis.call('SADD', KEYS[2], ARGV[2])
redis.call('ZINCRBY', KEYS[3], added, ARGV[3])
return added

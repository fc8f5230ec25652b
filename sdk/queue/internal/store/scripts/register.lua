-- Adds a listener to a queue's set, and counts it once.
-- KEYS    1 listeners of the queue  2 queues
-- ARGV    1 listener  2 queue
-- RETURNS 1 if it was added, 0 if it was in the set already
local bad = mistyped(KEYS[1], 'set', KEYS[2], 'zset')
if bad then return bad end

local added = redis.call('SADD', KEYS[1], ARGV[1])
redis.call('ZINCRBY', KEYS[2], added, ARGV[2])
return added

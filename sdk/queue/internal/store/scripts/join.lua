-- Gives a listener its first lease, before it registers with any queue.
-- KEYS    1 nodes
-- ARGV    1 clock override  2 listener  3 length of the lease in seconds
-- RETURNS 'ok'
local bad = mistyped(KEYS[1], 'zset')
if bad then return bad end

redis.call('ZADD', KEYS[1], after(now(ARGV[1]), ARGV[3]), ARGV[2])
return 'ok'

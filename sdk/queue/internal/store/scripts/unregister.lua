-- Removes a listener from a queue's set. The count goes down only if the listener was in the set.
-- KEYS    1 listeners of the queue  2 queues
-- ARGV    1 listener  2 queue
-- RETURNS 1 if it was removed, 0 if it was not in the set
local bad = mistyped(KEYS[1], 'set', KEYS[2], 'zset')
if bad then return bad end

local removed = redis.call('SREM', KEYS[1], ARGV[1])
if removed == 1 then redis.call('ZINCRBY', KEYS[2], -1, ARGV[2]) end
return removed

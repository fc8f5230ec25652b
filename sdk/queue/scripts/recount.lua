-- Sets the number of a queue's listeners right, which whoever died half-way may have left wrong, and what
-- is started.
-- KEYS    1 listeners of the queue
-- ARGV    1 queue
-- RETURNS 1 if it was wrong
local bad = mistyped(KEYS[1], 'set', QUEUES, 'zset', STARTED_ .. ARGV[1], 'set')
if bad then return bad end

unheld({ ARGV[1] })
local count = redis.call('SCARD', KEYS[1])
local score = redis.call('ZSCORE', QUEUES, ARGV[1])
if not score or tonumber(score) == count then return 0 end
redis.call('ZADD', QUEUES, count, ARGV[1])
return 1

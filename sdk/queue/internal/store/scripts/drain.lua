-- Asks a listener to reserve no more tasks, finish the running ones and leave.
-- KEYS    1 nodes
-- ARGV    1 clock override  2 listener
-- RETURNS 'ok', or 'gone' if no such listener is alive
local hash = NODE_ .. ARGV[2]
local bad = mistyped(KEYS[1], 'zset', hash, 'hash')
if bad then return bad end

local lease = redis.call('ZSCORE', KEYS[1], ARGV[2])
if not lease or tonumber(lease) < tonumber(now(ARGV[1])) then return 'gone' end
local known = redis.call('EXISTS', hash)
redis.call('HSET', hash, 'drain', '1')
if known == 0 then redis.call('EXPIRE', hash, 3600) end -- the listener's next renewal sets another expiry
announce(CONTROL)
return 'ok'

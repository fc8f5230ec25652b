-- Holds a queue: for some time, no task is reserved from it. An earlier hold is never shortened.
-- KEYS    1 stats
-- ARGV    1 clock override  2 length of the hold in seconds
-- RETURNS 'ok'
local bad = mistyped(KEYS[1], 'hash')
if bad then return bad end
local clock = now(ARGV[1])
local ends = after(clock, ARGV[2])
local is = helduntil(redis.call('HGET', KEYS[1], 'held'), clock)
if not is or tonumber(is) < tonumber(ends) then redis.call('HSET', KEYS[1], 'held', clock .. ' ' .. ends) end
return 'ok'

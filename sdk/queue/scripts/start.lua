-- Marks a reserved task as started by a process.
-- KEYS    1 reserved of the listener  2 started  3 task hash
-- ARGV    1 clock override  2 listener  3 id  4 run  5 process ID
-- RETURNS 'ok', 'lost' or 'gone'
local bad = mistyped(KEYS[1], 'list', KEYS[2], 'set', KEYS[3], 'hash')
if bad then return bad end

local hold = holder(KEYS[3], ARGV[2], ARGV[4])
if hold == 'gone' then return 'gone' end
if hold ~= 'held' or not redis.call('LPOS', KEYS[1], ARGV[3]) then return 'lost' end
local clock = now(ARGV[1])
redis.call('SADD', KEYS[2], ARGV[2] .. ' ' .. ARGV[5] .. ' ' .. ARGV[3])
redis.call('HSET', KEYS[3], 'status', 'started', 'pid', ARGV[5], 'updated', clock, 'started_at', clock)
return 'ok'

-- Records the progress of a held task.
-- KEYS    1 reserved of the listener
-- ARGV    1 clock override  2 listener  3 id  4 run, in the form that holder takes  5 progress from 0 to 1  6 message
-- RETURNS 'ok', 'lost' or 'gone'
local key = TASK_ .. ARGV[3]
local bad = mistyped(KEYS[1], 'list', key, 'hash')
if bad then return bad end

local hold = holder(key, ARGV[2], ARGV[4])
if hold == 'gone' then return 'gone' end
if hold ~= 'held' or not redis.call('LPOS', KEYS[1], ARGV[3]) then return 'lost' end
redis.call('HSET', key, 'progress', ARGV[5], 'message', ARGV[6], 'updated', now(ARGV[1]))
return 'ok'

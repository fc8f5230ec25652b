-- Stores the checkpoint of a held task for its next run. Empty bytes remove it.
-- KEYS    1 reserved of the listener
-- ARGV    1 clock override  2 listener  3 id  4 run, in the form that holder takes  5 bytes
-- RETURNS 'ok', 'lost' or 'gone'
local key = TASK_ .. ARGV[3]
local bad = mistyped(KEYS[1], 'list', key, 'hash', BYTES_ .. ARGV[3], 'hash')
if bad then return bad end

local hold = holder(key, ARGV[2], ARGV[4])
if hold == 'gone' then return 'gone' end
if hold ~= 'held' or not redis.call('LPOS', KEYS[1], ARGV[3]) then return 'lost' end
redis.call('HSET', key, 'checkpoint', #ARGV[5], 'updated', now(ARGV[1]))
if ARGV[5] == '' then
  redis.call('HDEL', BYTES_ .. ARGV[3], 'checkpoint')
else
  redis.call('HSET', BYTES_ .. ARGV[3], 'checkpoint', ARGV[5])
end
return 'ok'

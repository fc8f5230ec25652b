-- Marks a reserved task as started by a process.
-- KEYS    1 reserved of the listener
-- ARGV    1 clock override  2 queue  3 listener  4 id  5 run, in the form that holder takes  6 process ID
--         then field, value, ... of fields that decide how the task is tried again
-- RETURNS 'ok' and the time of the start, which is a part of the claim from now on; 'lost' or 'gone'
local queue, listener, id, run, pid = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local key = TASK_ .. id
local bad = mistyped(KEYS[1], 'list', STARTED_TASKS_ .. queue, 'set', key, 'hash')
if bad then return bad end

local hold, h = holder(key, listener, run)
if hold == 'lost' and h[1] == listener and h[3] == 'started' and run == (h[2] or '') .. '@' .. (h[4] or '') then
  hold = 'held' -- an earlier call has started the task, but its reply was lost
end
if hold == 'gone' then return 'gone' end
if hold ~= 'held' or not redis.call('LPOS', KEYS[1], id) then return 'lost' end
local clock = now(ARGV[1])
redis.call('SADD', STARTED_TASKS_ .. queue, listener .. ' ' .. pid .. ' ' .. id)
redis.call('HDEL', key, 'on_crash', 'max_crashes', 'dead', 'plugin', 'digest', 'version', 'release') -- of the previous holder
redis.call('HSET', key, 'status', 'started', 'pid', pid, 'updated', clock, 'started_at', clock, unpack(ARGV, 7))
return 'ok ' .. clock

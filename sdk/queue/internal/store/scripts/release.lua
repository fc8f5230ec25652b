-- Returns up to 48 held tasks of one queue to the front of the pending list, without counting an attempt. The newest
-- task comes first in the arguments, so that the oldest one ends up at the front of the list. A task marked for
-- cancellation fails.
-- KEYS    1 reserved of the listener
-- ARGV    1 clock override  2 queue  3 listener  then for each task: id, run (in the form that holder takes),
--         process ID
-- RETURNS a line for each task: 'ok', 'cancelled', 'lost' or 'gone'
local queue, listener = ARGV[2], ARGV[3]
local bad = mistyped(KEYS[1], 'list', STARTED_TASKS_ .. queue, 'set', PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set',
  FAILED_TASKS_ .. queue, 'list', STATS_ .. queue, 'hash', EXPIRY_ .. queue, 'zset')
if bad then return bad end

local clock = now(ARGV[1])
local out, released = {}, false
for at = 4, #ARGV, 3 do
  local id, run, pid = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local hold = holder(TASK_ .. id, listener, run)
  if hold == 'gone' then
    redis.call('LREM', KEYS[1], 1, id)
    redis.call('SREM', STARTED_TASKS_ .. queue, listener .. ' ' .. pid .. ' ' .. id)
    out[#out + 1] = 'gone'
  elseif hold ~= 'held' or redis.call('LREM', KEYS[1], 1, id) == 0 then
    disown(queue, listener, id, pid)
    out[#out + 1] = 'lost'
  else
    redis.call('SREM', STARTED_TASKS_ .. queue, listener .. ' ' .. pid .. ' ' .. id)
    local waits = back(queue, id, clock, 0, 'RPUSH', '', '')
    released = released or waits
    out[#out + 1] = waits and 'ok' or 'cancelled'
  end
end
if released then announce(CHANNEL_ .. queue) end
return table.concat(out, '\n')

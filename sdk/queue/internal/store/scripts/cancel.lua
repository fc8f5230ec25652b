-- Cancels a task. A waiting task is removed from its queue and fails with the reason cancelled. In a long pending list,
-- the task's ID stays, and reserve.lua drops it later. A running task is marked, and its host stops it. If no listener
-- holds the task, it fails, even if its hash says that it runs.
-- KEYS    1 task hash
-- ARGV    1 clock override  2 queue  3 id  4 the state of the task, in the form that altered takes
--         5 '1' to leave a running task alone
-- RETURNS 'ok', 'asked' (the task runs, and is marked), 'gone' (no such task in this queue), 'changed' (the task has
--         another state), 'python' (a Python listener holds it, which would ignore the mark), or the task's status, if
--         that forbids a cancel
local queue, id = ARGV[2], ARGV[3]
local bad = mistyped(SCHEDULED_TASKS_ .. queue, 'zset', FAILED_TASKS_ .. queue, 'list', STATS_ .. queue, 'hash', KEYS[1], 'hash',
  EXPIRY_ .. queue, 'zset', BLOCKED_ .. queue, 'zset')
if bad then return bad end

if not exists(queue, id) then return 'gone' end
if altered(KEYS[1], ARGV[4]) then return 'changed' end
local h = redis.call('HMGET', KEYS[1], 'status', 'node', 'priority', 'fair', 'line')
local status = h[1] or 'pending'
local clock = now(ARGV[1])
local list = RESERVED_TASKS_ .. queue .. '_' .. (h[2] or '')
if (status == 'reserved' or status == 'started') and type(redis.pcall('LPOS', list, id)) == 'number' then
  if ARGV[5] == '1' then return status end
  if not string.find(h[2] or '', '~%x%x%x%x%x%x%x%x_%d+$') then return 'python' end
  redis.call('HSET', KEYS[1], 'cancel', clock)
  announce(CONTROL)
  return 'asked'
end
if status == 'complete' or status == 'failed' then return status end
redis.call('ZREM', SCHEDULED_TASKS_ .. queue, id)
redis.call('ZREM', BLOCKED_ .. queue, id)
list = not h[4] and not h[5] and pendinglist(queue, h[3])
if list and mistyped(list, 'list') == nil and redis.call('LLEN', list) <= SEARCHED then redis.call('LREM', list, 1, id) end
if fail(queue, id, clock, 'cancelled', describe('cancelled', 'cancelled before it ran')) then retain(8) end
return 'ok'

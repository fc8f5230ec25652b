-- Deletes a finished task and its data. In a long list of finished tasks, the task's entry stays as a stale entry until
-- a purge removes it, because searching the list would take Redis too long.
-- KEYS    1 task hash
-- ARGV    1 clock override, not used  2 queue  3 id  4 the state of the task, in the form that altered takes
-- RETURNS 'ok', 'gone' (no such task in this queue), 'changed' (the task has another state), 'telling' (not deleted,
--         because some dependents do not know of its end yet, and would miss its result: call advance.lua and try
--         again), or the task's status, if that forbids a delete
local queue, id = ARGV[2], ARGV[3]
local bad = mistyped(COMPLETE_TASKS_ .. queue, 'list', FAILED_TASKS_ .. queue, 'list', TASKS_ .. queue, 'zset', KEYS[1], 'hash',
  KEYS_ .. queue, 'zset', STATS_ .. queue, 'hash', ENDED, 'zset')
if bad then return bad end

if not exists(queue, id) then return 'gone' end
if altered(KEYS[1], ARGV[4]) then return 'changed' end
local status = redis.call('HGET', KEYS[1], 'status') or 'pending'
if status ~= 'complete' and status ~= 'failed' then return status end
-- This removes nothing, but comes first: at maxmemory, Redis refuses writes that no removal precedes.
redis.call('ZREM', TASKS_ .. queue, '')
local h = redis.call('HMGET', KEYS[1], 'awaited', unpack(OWNED))
if noteuntold(id, table.remove(h, 1), status) then return 'telling' end
local list = (status == 'complete' and COMPLETE_TASKS_ or FAILED_TASKS_) .. queue
if redis.call('LLEN', list) <= SEARCHED then
  redis.call('LREM', list, 1, id)
else
  count(STATS_ .. queue, 'stale:' .. status)
end
forget(queue, { id }, { h })
announce(DONE_ .. id)
return 'ok'

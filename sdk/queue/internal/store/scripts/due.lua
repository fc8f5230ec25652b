-- Moves a block of due tasks to the pending list. Blueque's own enqueue_due_tasks can run at the same time: the one
-- that removes the ID from the sorted set moves the task. Drops an entry whose task is missing, finished, or held by a
-- listener.
-- KEYS    1 scheduled
-- ARGV    1 clock override  2 queue  3 maximum number of tasks
-- RETURNS {number of tasks moved, 1 if there may be more to do, clock, earliest eta of the remaining tasks or "", ""}
local queue = ARGV[2]
local bad = mistyped(KEYS[1], 'zset', PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set')
if bad then return bad end

local clock = now(ARGV[1])
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', clock, 'LIMIT', 0, ARGV[3])
local movable = { scheduled = true, pending = true }
local moved = 0
for _, id in ipairs(ids) do
  local key = TASK_ .. id
  local hash = redis.pcall('HMGET', key, 'status', 'priority', 'fair', 'lane')
  local status = not hash.err and hash[1]
  if movable[status] or (not hash.err and not status and redis.call('EXISTS', key) == 1) then
    redis.call('HSET', key, 'status', 'pending', 'updated', clock)
    push(queue, id, hash[2], hash[3], hash[4], 'LPUSH')
    moved = moved + 1
  end
  redis.call('ZREM', KEYS[1], id)
end
if moved > 0 then announce(CHANNEL_ .. queue) end
return { moved, #ids == tonumber(ARGV[3]) and 1 or 0, clock, redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or '', '' }

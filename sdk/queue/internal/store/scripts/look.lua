-- Counts the tasks of queues by status. The time that this takes depends on the number of listeners, not of tasks. In a
-- tenant with more than 2,000 listeners, tasks of listeners that are no longer in the queue's set are not counted as
-- reserved.
-- KEYS    1 queues
-- ARGV    1 clock override, then the queues
-- RETURNS for each queue 'WRONGTYPE ...', or
--         {scheduled, pending, reserved (not started), started, complete, failed (both with stale entries), listeners,
--         paused, age of the oldest pending task in seconds or "", {counter, value, ...}, the queue's limit or "",
--         number of scheduled tasks that are blocked};
--         if there are many listeners, only for the first queues, and at least for one
local bad = mistyped(PAUSED, 'set', NODES, 'zset', LIMITS, 'hash')
if bad then return bad end

local alive, looks = nodes(), 0

local function look(queue)
  local bad = mistyped(COMPLETE_TASKS_ .. queue, 'list', FAILED_TASKS_ .. queue, 'list', LISTENERS_ .. queue, 'set',
    STATS_ .. queue, 'hash')
  local scheduled, pending, started, held, age, blocked = 0, 0, 0, 0, 0, 0
  -- Most queues have none of these keys, so one command checks for all.
  if not bad and redis.call('EXISTS', SCHEDULED_TASKS_ .. queue, PENDING_TASKS_ .. queue, PRIORITIES_ .. queue, STARTED_TASKS_ .. queue,
    BLOCKED_ .. queue, LINE_ .. queue) > 0 then
    bad = mistyped(SCHEDULED_TASKS_ .. queue, 'zset', PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set',
      STARTED_TASKS_ .. queue, 'set', BLOCKED_ .. queue, 'zset')
    -- grow(oldest): takes the age of a list's oldest task into account. Of tasks with a fairness key it is the next one.
    local function grow(oldest)
      local times = oldest and redis.pcall('HMGET', TASK_ .. oldest, 'created', 'eta', 'retried_at') or {}
      local created = not times.err and moment(times[1])
      if created then
        -- A task that was scheduled has waited since it was due, not since it was created.
        age = math.max(age, tonumber(now(ARGV[1])) - since(created, created, times[2], times[3]))
      end
    end
    if not bad then
      local lists, fair = pendinglists(queue)
      for _, list in ipairs(lists) do
        grow(redis.call('LINDEX', list, -1))
        if fair[list] then grow(redis.call('ZRANGE', fairset(queue, fair[list]), 0, 0)[1]) end
      end
      pending = waiting(queue)
      blocked, started = redis.call('ZCARD', BLOCKED_ .. queue), redis.call('SCARD', STARTED_TASKS_ .. queue)
      scheduled = redis.call('ZCARD', SCHEDULED_TASKS_ .. queue) + blocked
    end
  end
  if bad then return bad.err end

  local listeners = redis.call('SMEMBERS', LISTENERS_ .. queue)
  local seen, all = {}, {}
  for _, some in ipairs({ listeners, alive }) do
    for _, listener in ipairs(some) do
      if not seen[listener] then
        seen[listener] = true
        all[#all + 1] = listener
      end
    end
  end
  looks = looks + #all
  for _, list in ipairs(reservedlists(queue, all)) do held = held + redis.call('LLEN', list) end
  return {
    scheduled, pending, math.max(0, held - started), started,
    redis.call('LLEN', COMPLETE_TASKS_ .. queue), redis.call('LLEN', FAILED_TASKS_ .. queue), #listeners,
    math.max(unpack(redis.call('SMISMEMBER', PAUSED, queue, '.'))), pending > 0 and string.format('%.6f', age) or '',
    redis.call('HGETALL', STATS_ .. queue), redis.call('HGET', LIMITS, queue) or '', blocked,
  }
end

local out = {}
for i = 2, #ARGV do
  if looks > 2000 then break end -- each look takes 1.5 µs
  out[#out + 1] = look(ARGV[i])
end
return out

-- Counts the tasks of a queue by state, in O(listeners), not in the number of tasks. In a tenant of more than 2,000
-- listeners, reserved leaves out what listeners hold that are not in the queue's set any more.
-- KEYS    1 pending
-- ARGV    1 clock override  2 queue
-- RETURNS {scheduled, pending, reserved (not started), started, complete, failed, listeners,
--         paused, age of the oldest pending task in seconds or "", {counter, value, ...}, most tasks that may wait or ""}
local queue = ARGV[2]
local bad = mistyped(KEYS[1], 'list', SCHEDULED_TASKS_ .. queue, 'zset', STARTED_TASKS_ .. queue, 'set', COMPLETE_TASKS_ .. queue, 'list',
  FAILED_TASKS_ .. queue, 'list', LISTENERS_ .. queue, 'set', PAUSED, 'set', NODES, 'zset', STATS_ .. queue, 'hash',
  PRIORITIES_ .. queue, 'set', LIMITS, 'hash')
if bad then return bad end

local listeners = redis.call('SMEMBERS', LISTENERS_ .. queue)
local seen, all, held = {}, {}, 0
local function note(listener)
  if seen[listener] then return end
  seen[listener] = true
  all[#all + 1] = listener
end
for _, listener in ipairs(listeners) do note(listener) end
for _, listener in ipairs(nodes()) do note(listener) end
for _, list in ipairs(reservedlists(queue, all)) do held = held + redis.call('LLEN', list) end

local pending, age = 0, 0
for _, list in ipairs(pendinglists(queue)) do
  pending = pending + redis.call('LLEN', list)
  local oldest = redis.call('LINDEX', list, -1)
  local times = oldest and redis.pcall('HMGET', TASK_ .. oldest, 'created', 'eta', 'retried_at') or {}
  local created = not times.err and moment(times[1])
  if created then
    -- A scheduled task has waited since it was due, not since it was written.
    age = math.max(age, tonumber(now(ARGV[1])) - since(created, created, times[2], times[3]))
  end
end
local started = redis.call('SCARD', STARTED_TASKS_ .. queue)
return {
  redis.call('ZCARD', SCHEDULED_TASKS_ .. queue), pending, math.max(0, held - started), started,
  redis.call('LLEN', COMPLETE_TASKS_ .. queue), redis.call('LLEN', FAILED_TASKS_ .. queue), #listeners,
  redis.call('SISMEMBER', PAUSED, queue), pending > 0 and string.format('%.6f', age) or '',
  redis.call('HGETALL', STATS_ .. queue), redis.call('HGET', LIMITS, queue) or '',
}

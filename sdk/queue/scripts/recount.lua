-- Corrects a queue's number of listeners, and its set of started tasks, after listeners that died half-way. An
-- empty queue is forgotten with its counters.
-- KEYS    1 listeners of the queue
-- ARGV    1 queue
-- RETURNS 'forgotten', or how many listeners there are
local queue = ARGV[1]
local bad = mistyped(KEYS[1], 'set', QUEUES, 'zset', STARTED_TASKS_ .. queue, 'set', PRIORITIES_ .. queue, 'set',
  PAUSED, 'set', LIMITS, 'hash', NODES, 'zset')
if bad then return bad end

-- left(): whether anything of the queue is left, of whatever type. An empty list, set or hash does not exist.
local function left()
  if redis.call('EXISTS', KEYS[1], PENDING_TASKS_ .. queue, SCHEDULED_TASKS_ .. queue, STARTED_TASKS_ .. queue, COMPLETE_TASKS_ .. queue,
    FAILED_TASKS_ .. queue, TASKS_ .. queue, EXPIRY_ .. queue, KEYS_ .. queue) > 0 then return true end
  if redis.call('SISMEMBER', PAUSED, queue) == 1 or redis.call('HEXISTS', LIMITS, queue) == 1 then return true end
  if redis.call('ZCARD', NODES) > 2000 then return true end -- some may hold its tasks
  return waiting(queue) > 0 or #reservedlists(queue, nodes()) > 0
end

unheld({ queue })
local count = redis.call('SCARD', KEYS[1])
local score = redis.call('ZSCORE', QUEUES, queue)
if score and not left() then
  redis.call('ZREM', QUEUES, queue)
  redis.call('UNLINK', STATS_ .. queue, PRIORITIES_ .. queue, PURGED_ .. queue)
  return 'forgotten'
end
if score and tonumber(score) ~= count then redis.call('ZADD', QUEUES, count, queue) end
return count

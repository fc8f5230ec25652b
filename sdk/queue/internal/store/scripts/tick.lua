-- Ends one tick of a schedule: enqueues its task and plans the next tick, or only plans the next tick. It checks that
-- the schedule is still as the caller has read it, so each tick is ended only once, by one of many hosts.
-- KEYS    1 ticks
-- ARGV    1 clock override  2 schedule  3 its revision  4 its next tick as the caller read it, "" if it had none
--         5 the tick to fire; "" to fire none; "later" only to make hosts look at the schedule again later
--         6 number of ticks to count as missed  7 number of ticks to count as skipped, because the tick before them
--         waited
--         8 the next tick, or "" if there is none  9 seconds until hosts look again at a tick that cannot be fired now
--         10 queue  11 overlap: skip, queue or allow
--         then the task, in the form that batch.lua describes
-- RETURNS 'fired'; 'planned' (5 is ""); 'skipped' (the previous tick's task has not finished); 'busy' (that task has
--         not finished, and the tick waits for it); 'full' (the queue is full or accepts no tasks, the tenant has used up
--         a quota, or the queue is new and the tenant already has its
--         maximum number of queues, and the tick waits); 'early' (the tick has not come yet); 'later' (5 is "later");
--         'changed' (the caller must read the schedule again); the error WRONGTYPE if the queue refuses tasks
local id, tick, next, queue = ARGV[2], ARGV[5], ARGV[8], ARGV[10]
local key = SCHEDULE_ .. id
local bad = mistyped(KEYS[1], 'zset', key, 'hash')
if bad then return bad end
local clock = now(ARGV[1])
local h = redis.call('HMGET', key, 'revision', 'next', 'paused', 'last_id')
if redis.call('EXISTS', key) == 0 or (h[1] or '') ~= ARGV[3] or (h[2] or '') ~= ARGV[4] then return 'changed' end
if h[3] then
  redis.call('ZADD', KEYS[1], '+inf', id) -- somebody paused the schedule by hand, in its hash alone
  return 'changed'
end

-- plan(outcome, ...): ends the tick, plans the next one and returns outcome. Further arguments are fields and values
-- for the schedule's hash.
local function plan(outcome, ...)
  if ARGV[6] ~= '0' then count(key, 'missed_ticks', ARGV[6]) end
  if ARGV[7] ~= '0' then count(key, 'skipped', ARGV[7]) end
  redis.call('HDEL', key, 'waits')
  redis.call('HSET', key, 'next', next, ...)
  redis.call('ZADD', KEYS[1], next ~= '' and next or '+inf', id)
  return outcome
end

-- later(outcome): makes hosts look at the tick again after some time, and returns outcome. It records that the tick
-- waits, so that the tick does not count as missed.
local function later(outcome)
  if tonumber(tick) then redis.call('HSET', key, 'waits', tick) end
  redis.call('ZADD', KEYS[1], after(clock, ARGV[9]), id)
  return outcome
end

if tick == 'later' then return later('later') end
if tick == '' then return plan('planned') end
if tonumber(tick) > tonumber(clock) then return 'early' end
local running = false
if ARGV[11] ~= 'allow' and h[4] then
  local status = redis.pcall('HGET', TASK_ .. h[4], 'status')
  running = type(status) == 'string' and status ~= 'complete' and status ~= 'failed'
end
if running and ARGV[11] == 'queue' then return later('busy') end
if running then
  count(key, 'skipped')
  return plan('skipped')
end
bad = refuses(queue)
if bad then return later(bad) end
local full = redis.pcall('HLEN', LIMITS) ~= 0 and limited({ { queue = queue, new = 1 } }, #ARGV[13], clock)
if full or unlisted(queue) then return later('full') end
local tasks = batch(queue, clock)
enqueue(tasks, 12)
finish(tasks)
count(key, 'fired')
return plan('fired', 'last', tick, 'last_id', ARGV[12])

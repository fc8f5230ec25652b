-- Corrects the listener counts of queues, and the sets of started tasks, after listeners died in the middle of an
-- operation. Deletes empty queues with their counters.
-- KEYS    1 queues
-- ARGV    1 clock override
--         2 maximum age in seconds of a finished task, or "" for none
--         3 maximum number of finished tasks to keep for each status, or "" for all
--         then the queues
-- RETURNS for some of the queues: the queue's place in the arguments, from 1, and 'forgotten' (the queue is deleted),
--         'old' (purge.lua, with the same 2 and 3, may find tasks to delete), 'line' (lanes.lua has lanes to check),
--         'uncounted' (finished.lua has tasks to count), or 'WRONGTYPE ...'. A queue may have several
local wrong = mistyped(KEYS[1], 'zset', PAUSED, 'set', PAUSES, 'hash', LIMITS, 'hash', NODES, 'zset', QUOTAS, 'hash', USED, 'hash',
  FINISHED, 'zset')
if wrong then return wrong end

local clock, age, keep = tonumber(now(ARGV[1])), tonumber(ARGV[2]), tonumber(ARGV[3])

-- unlist(queue): removes the entries "UHASH ID" from KEYS_, up to 1,000 in one call of the script. Version 0.1.0 wrote
-- them for unique tasks. Nothing reads them, and with them the queue would never count as empty. Only the first version
-- after 0.1.0 needs this.
local removable = 1000
local function unlist(queue)
  local entries = removable > 0 and redis.pcall('ZRANGEBYLEX', KEYS_ .. queue, '[U', '(V', 'LIMIT', 0, removable)
  if not entries or entries.err or not entries[1] then return end
  redis.call('ZREM', KEYS_ .. queue, unpack(entries))
  removable = removable - #entries
end

-- left(queue): whether a queue without listeners still has any key, of whatever type. (An empty list, set or hash does
-- not exist.) Checking the queue's reserved lists takes 1.5 µs for each node, so one call of the script checks at most
-- 2,000 lists. For a queue that was not checked, left returns true: the queue stays until a later call.
local alive, looks = nodes(), 2000
local function left(queue)
  if redis.call('EXISTS', PENDING_TASKS_ .. queue, SCHEDULED_TASKS_ .. queue, STARTED_TASKS_ .. queue, COMPLETE_TASKS_ .. queue,
    FAILED_TASKS_ .. queue, TASKS_ .. queue, EXPIRY_ .. queue, KEYS_ .. queue, BLOCKED_ .. queue) > 0 then return true end
  if redis.call('SISMEMBER', PAUSED, queue) == 1 or redis.call('HEXISTS', LIMITS, queue) == 1 or
    redis.call('HEXISTS', PAUSES, 'accepting ' .. queue) == 1 then return true end
  for _, set in ipairs({ HELD_ .. queue, KEYRATES_ .. queue }) do -- holds of keys, and buckets that are not full
    if redis.pcall('ZRANGEBYSCORE', set, '(' .. clock, '+inf', 'LIMIT', 0, 1)[1] then return true end
  end
  looks = looks - redis.call('ZCARD', NODES)
  return looks < 0 or waiting(queue) > 0 or #reservedlists(queue, alive) > 0
end

-- old(list, queue, status): whether purge.lua may be able to delete the oldest entry. purge.lua also knows which
-- entries it has skipped before.
local function old(list, queue, status)
  local id = redis.pcall('LINDEX', list, -1)
  if type(id) ~= 'string' then return id end -- false for an empty list; an error, which purge.lua will report
  local stand, _, crowded = entries(list, queue, status)
  if crowded or keep and stand > keep then return true end
  local h = redis.pcall('HMGET', TASK_ .. id, 'status', 'updated', 'stale')
  return h.err or h[1] ~= status or h[3] or age and tonumber(moment(h[2], '0')) < clock - age
end

local bad, started = {}, {}
for i = 4, #ARGV do
  local queue = ARGV[i]
  bad[i] = mistyped(LISTENERS_ .. queue, 'set', STARTED_TASKS_ .. queue, 'set', PRIORITIES_ .. queue, 'set')
  if not bad[i] and redis.call('EXISTS', STARTED_TASKS_ .. queue) == 1 then started[#started + 1] = queue end
end
unheld(started)

local since, out = begun(now(ARGV[1])), {}
for i = 4, #ARGV do
  local queue, news = ARGV[i], nil
  unlist(queue)
  local count, score = redis.pcall('SCARD', LISTENERS_ .. queue), redis.call('ZSCORE', KEYS[1], queue)
  if bad[i] then
    news = bad[i].err
  elseif score and count == 0 and not left(queue) then
    redis.call('ZREM', KEYS[1], queue)
    local _, fair = pendinglists(queue)
    for _, level in pairs(fair) do redis.call('UNLINK', TURNS_ .. level .. '_' .. queue) end
    redis.call('UNLINK', STATS_ .. queue, PRIORITIES_ .. queue, PURGED_ .. queue, LANES_ .. queue, HELD_ .. queue, KEYRATES_ .. queue)
    redis.pcall('HDEL', USED, 'memory:' .. queue)
    news = 'forgotten'
  else
    if score and tonumber(score) ~= count then redis.call('ZADD', KEYS[1], count, queue) end
    if (age or keep) and (old(COMPLETE_TASKS_ .. queue, queue, 'complete') or old(FAILED_TASKS_ .. queue, queue, 'failed')) then news = 'old' end
  end
  local uncounted = since and news ~= 'forgotten' and redis.pcall('HGET', STATS_ .. queue, 'counted') ~= since
  for _, word in ipairs({ news or '', redis.call('EXISTS', LINE_ .. queue) == 1 and 'line' or '', uncounted and 'uncounted' or '' }) do
    if word ~= '' then out[#out + 1], out[#out + 2] = i - 3, word end
  end
end
return out

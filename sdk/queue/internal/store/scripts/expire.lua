-- Fails a block of waiting tasks that have expired: tasks with an entry in the expiry set, and pending tasks that set
-- no maximum age themselves but are older than the plugin's manifest allows.
-- KEYS    1 expiry
-- ARGV    1 clock override  2 queue  3 maximum number of tasks
--         4 maximum age in seconds of tasks that set none themselves, or ""  5 the queue for dead letters, or ""
-- RETURNS {number of tasks failed, 1 if there may be more to do, clock, earliest expiry of the remaining tasks or "",
--         reason why a failed task has no dead letter or ""}
local queue, most = ARGV[2], tonumber(ARGV[3])
local bad = mistyped(KEYS[1], 'zset', FAILED_TASKS_ .. queue, 'list', STATS_ .. queue, 'hash', SCHEDULED_TASKS_ .. queue, 'zset',
  PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set', BLOCKED_ .. queue, 'zset')
if bad then return bad end

local clock = now(ARGV[1])
local message = describe('expired', 'waited past its max_age or deadline')
local failed, searched, full = 0, 0, false -- full: retain may have something to do

-- expire(id, list): fails a waiting task. In a long list, the task's entry stays, because searching the list would take
-- Redis too long; reserve.lua drops the entry later. Without a list, fail removes the task from where it waits.
local function expire(id, list)
  redis.call('ZREM', SCHEDULED_TASKS_ .. queue, id)
  redis.call('ZREM', BLOCKED_ .. queue, id)
  if list and redis.call('LINDEX', list, -1) == id then
    redis.call('RPOP', list)
  elseif list then
    local length = redis.call('LLEN', list)
    if searched + length <= SEARCHED then
      searched = searched + length
      redis.call('LREM', list, -1, id)
    end
  end
  if ARGV[5] ~= '' then redis.call('HSET', TASK_ .. id, 'dead', ARGV[5]) end
  full = fail(queue, id, clock, 'expired', message) or full
  failed = failed + 1
end

local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', clock, 'LIMIT', 0, most)
for _, id in ipairs(ids) do
  redis.call('ZREM', KEYS[1], id) -- a running task gets a new entry when it waits again
  local h = redis.pcall('HMGET', TASK_ .. id, 'status', 'priority', 'fair', 'line')
  if not h.err and (h[1] == 'pending' or h[1] == 'scheduled') then expire(id, not h[3] and not h[4] and pendinglist(queue, h[2])) end
end

local more = #ids == most

-- sweep(list, oldest): goes from the oldest task, the last one, to the first one that is young enough. It skips tasks that
-- set a maximum age themselves.
local function sweep(list, oldest)
  local before, young = failed, false
  for i = #oldest, 1, -1 do
    local h = redis.pcall('HMGET', TASK_ .. oldest[i], 'status', 'created', 'eta', 'retried_at', 'max_age')
    if not h.err and h[1] == 'pending' and not h[5] then
      young = since(clock, h[2], h[3], h[4]) + tonumber(ARGV[4]) >= tonumber(clock)
      if young and list then break end
      if not young then expire(oldest[i], list) end
    end
  end
  more = more or not young and failed > before and #oldest == most
end

if ARGV[4] ~= '' then
  local lists, fair = pendinglists(queue)
  for _, list in ipairs(lists) do
    sweep(list, redis.call('LRANGE', list, -most, -1))
    -- Tasks with a fairness key are not sorted by age: those whose turn comes next are looked at.
    if fair[list] then sweep(nil, redis.call('ZRANGE', fairset(queue, fair[list]), 0, most - 1)) end
  end
  -- Tasks that wait in line are sorted by lane: a part that begins at random is looked at.
  local line = redis.pcall('ZRANGEBYLEX', LINE_ .. queue, '[' .. redis.sha1hex(clock), '+', 'LIMIT', 0, most)
  for i, member in ipairs(line) do line[i] = string.match(member, '%S+$') end
  sweep(nil, line)
end
if full then retain(8) end
return { failed, more and 1 or 0, clock, redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or '', unburied }

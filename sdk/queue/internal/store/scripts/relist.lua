-- Puts tasks of a queue that are not where their hashes say back there, after an import: an export reads each key at
-- another moment, so a task that moved meanwhile may be in no list. A task that runs is put into the reserved list of its
-- listener, from which reclaim takes it. A second call changes nothing. An entry too many in a list does no harm.
-- KEYS    1 tasks
-- ARGV    1 clock override  2 queue, and then for each task its ID, and "1" if it is in the list of its status, else "".
--         The caller has read the lists, because a script would have to search them for each task
-- RETURNS number of tasks that were put back
local queue = ARGV[2]
local bad = mistyped(KEYS[1], 'zset', QUEUES, 'zset', LISTENERS_ .. queue, 'set', STARTED_TASKS_ .. queue, 'set',
  COMPLETE_TASKS_ .. queue, 'list', LINE_ .. queue, 'zset', LANES_ .. queue, 'zset') or hinder(queue)
if bad then return bad end
local clock = now(ARGV[1])

-- inlane(id, lane, line): whether a pending task has its place in its lane, and its entry in the line, or nil if it has
-- none there.
local function inlane(id, lane, line)
  local hash = lane and laneof(lane)
  if not hash then return true end
  local entry = line and hash .. ' ' .. line .. ' ' .. id
  if entry and not redis.call('ZSCORE', LINE_ .. queue, entry) then entry = nil end
  return redis.call('ZSCORE', LANES_ .. queue, hash .. ' ' .. id), entry
end

-- pending(id, h, listed): puts a pending task back. A task in a list without a place in its lane leaves the list, because
-- it would run beside those that have one.
local function pending(id, h, listed)
  local list, level = pendinglist(queue, h[3])
  local set = h[4] and fairset(queue, levelof(h[3]))
  local turn = set and redis.call('ZSCORE', set, id)
  local placed, entry = inlane(id, h[5], h[6])
  if placed then
    if turn then redis.call('SADD', PRIORITIES_ .. queue, 'f' .. levelof(h[3])) end
    if listed and level then redis.call('SADD', PRIORITIES_ .. queue, level) end
    if listed or turn then return 0 end
  else
    if listed then redis.call('LREM', list, 0, id) end
    if turn then redis.call('ZREM', set, id) end
  end
  if entry and not placed then return 0 end
  if entry then redis.call('ZREM', LINE_ .. queue, entry) end
  redis.call('HDEL', TASK_ .. id, 'line')
  push(queue, id, h[3], h[4], h[5], 'LPUSH')
  return 1
end

-- reserved(id, h): puts a task that runs, or did, into the list of its listener.
local function reserved(id, h)
  local list = RESERVED_TASKS_ .. queue .. '_' .. (h[7] or '')
  if not h[7] or mistyped(list, 'list') then
    back(queue, id, clock, 0, 'RPUSH', '', '')
    return 1
  end
  if redis.call('SADD', LISTENERS_ .. queue, h[7]) == 1 then redis.call('ZINCRBY', QUEUES, '1', queue) end
  if h[8] and h[1] == 'started' then redis.call('SADD', STARTED_TASKS_ .. queue, h[7] .. ' ' .. h[8] .. ' ' .. id) end
  redis.call('LPUSH', list, id)
  return 1
end

-- scheduled(id, h): the same for a task that is scheduled, or blocked.
local function scheduled(id, h)
  local set, score = SCHEDULED_TASKS_ .. queue, moment(h[9], clock)
  local d = dependencies(h[10])
  if d and d.state ~= 'released' then set, score = BLOCKED_ .. queue, '0' end -- recheck looks at it soon
  return redis.call('ZADD', set, 'NX', score, id)
end

local n = 0
redis.call('ZADD', QUEUES, 'NX', '0', queue)
for i = 3, #ARGV, 2 do
  local id, listed = ARGV[i], ARGV[i + 1] ~= ''
  local h = redis.pcall('HMGET', TASK_ .. id, 'status', 'queue', 'priority', 'fair', 'lane', 'line', 'node', 'pid', 'eta', 'after',
    'created', 'run')
  if not h.err and h[2] == queue then
    if h[12] then redis.call('ZADD', KEYS[1], 'NX', moment(h[11], clock), id) end -- else another client enqueued it
    if h[1] == 'pending' then
      n = n + pending(id, h, listed)
    elseif h[1] == 'scheduled' then
      n = n + scheduled(id, h)
    elseif h[1] == 'reserved' or h[1] == 'started' then
      if not inlane(id, h[5]) then redis.call('ZADD', LANES_ .. queue, '0', laneof(h[5]) .. ' ' .. id) end
      if not listed then n = n + reserved(id, h) end
    elseif not listed and (h[1] == 'complete' or h[1] == 'failed') then
      redis.call('LPUSH', (h[1] == 'failed' and FAILED_TASKS_ or COMPLETE_TASKS_) .. queue, id)
      n = n + 1
    end
  end
end
return n

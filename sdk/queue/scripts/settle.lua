-- Settles the runs of up to 48 tasks of one queue that a listener holds: they complete, fail, or wait for a
-- retry. Begins with LREM, which Redis accepts even at maxmemory, and writes nothing for a task that is not held.
-- A repeated settle finds its own mark and answers 'ok' again.
-- KEYS    1 reserved of the listener
-- ARGV    1 clock override  2 queue  3 listener  4 channels' queues to wake, by spaces
--         then for each task: id, run (as holder has it), process ID, action (complete, failed, retry, reschedule or
--         reject), reason ("" when complete), result or error as text, bytes of the result ("" if the
--         text is it), delay in seconds (only when it is tried again), number of tasks that come into being
--         when it is complete, and each of these: queue, and the task as batch.lua has it
-- RETURNS for each task 'ok', 'cancelled' (it was not to be tried again), 'lost' or 'gone'; 'closed' and
--         the queue that takes no tasks, and it is still held; or 'unburied' and why it has no dead letter
local queue, listener = ARGV[2], ARGV[3]
local bad = mistyped(KEYS[1], 'list', STARTED_TASKS_ .. queue, 'set', COMPLETE_TASKS_ .. queue, 'list', FAILED_TASKS_ .. queue, 'list',
  STATS_ .. queue, 'hash', SCHEDULED_TASKS_ .. queue, 'zset', PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set',
  EXPIRY_ .. queue, 'zset')
if bad then return bad end

local clock = now(ARGV[1])
local completed, woken = 0, false

-- complete(id, key, mark, text, bytes): the task is done; a dead letter handles the task that failed.
local function complete(id, key, mark, text, bytes)
  redis.call('HSET', key, 'status', 'complete', 'updated', clock, 'finished_at', clock, 'settled', mark, 'result', text)
  if bytes ~= '' then redis.pcall('HSET', BYTES_ .. id, 'result', bytes) end
  redis.call('LPUSH', COMPLETE_TASKS_ .. queue, id)
  local h = redis.call('HMGET', key, 'expires', 'live_id', 'checkpoint', 'unique', 'unique_for')
  if h[1] then redis.call('ZREM', EXPIRY_ .. queue, id) end
  if h[2] and redis.call('TYPE', TASK_ .. h[2])['ok'] == 'hash' then redis.call('HSET', TASK_ .. h[2], 'handled', id) end
  if h[3] then
    redis.call('HDEL', key, 'checkpoint')
    redis.pcall('HDEL', BYTES_ .. id, 'checkpoint')
  end
  if h[4] and not h[5] then unlock(queue, id, h[4]) end
  completed = completed + 1
  announce(DONE_ .. id)
end

-- again(id, key, mark, action, text, delay): makes the task wait for its next run, unless it was cancelled. Returns
-- whether it waits.
local function again(id, key, mark, action, text, delay)
  local counter = { retry = 'attempts', reschedule = 'reschedules', reject = 'rejects' }
  count(key, counter[action])
  if action == 'reject' then
    local by = {}
    for other in string.gmatch(redis.call('HGET', key, 'rejected_by') or '', '%S+') do
      if other ~= listener then by[#by + 1] = other end
    end
    by[#by + 1] = listener
    redis.call('HSET', key, 'rejected_by', table.concat(by, ' ', math.max(1, #by - 15)))
  end
  local waits, listed = back(queue, id, clock, delay, 'LPUSH', action, text, 'settled', mark, 'last_error', text,
    'last_action', action)
  woken = woken or listed
  return waits
end

-- children(at, each): calls each with queue and index of every child of the task at this index, until it returns a
-- value. Returns that value and the index of the next task.
local function children(at, each)
  local found
  local place = at + 9
  for _ = 1, tonumber(ARGV[at + 8]) do
    found = found or each(ARGV[place], place + 1)
    place = beyond(place + 1)
  end
  return found, place
end

-- shut(at): the first queue that refuses tasks, among those of the children of the task at this index.
local known = {}
local function shut(at)
  return (children(at, function(name)
    if known[name] == nil then known[name] = closed(name) and name or false end
    return known[name] or nil
  end))
end

-- Children in one queue are created together, after all tasks are settled.
local batches, order = {}, {}
local function bear(name, place)
  if not batches[name] then
    batches[name] = batch(name, clock)
    order[#order + 1] = name
  end
  enqueue(batches[name], place)
end

local out, at = {}, 5
while at <= #ARGV do
  local id, run, pid, action, reason, text, bytes, delay = unpack(ARGV, at, at + 7)
  local key = TASK_ .. id
  local hold = holder(key, listener, run)
  local _, after = children(at, function() end)
  if hold == 'done' then
    out[#out + 1] = 'ok'
  elseif hold == 'gone' then
    redis.call('LREM', KEYS[1], -1, id)
    redis.call('SREM', STARTED_TASKS_ .. queue, listener .. ' ' .. pid .. ' ' .. id)
    out[#out + 1] = 'gone'
  elseif hold == 'lost' then
    disown(queue, listener, id, pid)
    out[#out + 1] = 'lost'
  elseif action == 'complete' and shut(at) then
    out[#out + 1] = 'closed ' .. shut(at)
  elseif redis.call('LREM', KEYS[1], -1, id) == 0 then
    disown(queue, listener, id, pid)
    out[#out + 1] = 'lost'
  else
    redis.call('SREM', STARTED_TASKS_ .. queue, listener .. ' ' .. pid .. ' ' .. id)
    local mark, answer = listener .. ' ' .. run, 'ok'
    if action == 'complete' then
      count(key, 'attempts')
      complete(id, key, mark, text, bytes)
      children(at, bear)
    elseif action == 'failed' then
      count(key, 'attempts')
      unburied = ''
      fail(queue, id, clock, reason, text, 'settled', mark)
      if unburied ~= '' then answer = 'unburied ' .. unburied end
    elseif not again(id, key, mark, action, text, delay) then
      answer = 'cancelled'
    end
    out[#out + 1] = answer
  end
  at = after
end
for _, name in ipairs(order) do finish(batches[name]) end
if completed > 0 then count(STATS_ .. queue, 'complete', completed) end
if woken then announce(CHANNEL_ .. queue) end
for name in string.gmatch(ARGV[4], '%S+') do announce(CHANNEL_ .. name) end
return out

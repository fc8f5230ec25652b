-- Settles the runs of up to 128 tasks of one queue that a listener holds: the tasks complete, fail, or wait for a
-- retry. Begins with a removal, which Redis accepts even at maxmemory. Tasks that the listener does not hold are not
-- settled. A repeated settle finds that this run has settled the task, and answers 'ok' again. But the task may still
-- be in the reserved list, because an error ended the script or a Python client completed the task. In that case, a
-- complete task is settled again, and a failed one is only removed from the list.
-- KEYS    1 reserved of the listener
-- ARGV    1 clock override  2 queue  3 listener  4 process ID  5 queues whose listeners are to be woken, separated by
--         spaces  6 "FAILURES PAUSE LONGEST PLUGIN DIGEST QUEUE ..." if the version that ran the tasks has a circuit
--         breaker, which opens after this number of failures, for PAUSE seconds at first, or ""
--         then for each task: id, run (in the form that holder takes), action (complete, failed, retry, reschedule or
--         reject), result or error as text, number of further values, and these values:
--         for complete: none, or the bytes of the result ("" if the text is the result), followed by the tasks and
--         publications that are made with the completion. A task is its queue and the form that batch.lua describes. A
--         publication is "" and the form that accept takes;
--         for failed: the reason; for the other actions: the delay in seconds; then for both, if the circuit breaker
--         counts the failure, its reason, or "key" if all tasks of the queue with the key of this one are to wait as long
-- RETURNS a line for each task: 'ok', 'cancelled' (it has failed instead of waiting again), 'lost' or 'gone'; 'refused'
--         and the queue that accepts no tasks, the topic that accepts no publications, or the error QUOTA if children
--         would exceed twice the tenant's quotas of waiting tasks (the task is still held); or
--         'unburied' and the reason why the failed task has no dead letter
local queue, listener, pid = ARGV[2], ARGV[3], ARGV[4]
local bad = mistyped(KEYS[1], 'list', STARTED_TASKS_ .. queue, 'set', COMPLETE_TASKS_ .. queue, 'list', FAILED_TASKS_ .. queue, 'list',
  STATS_ .. queue, 'hash', SCHEDULED_TASKS_ .. queue, 'zset', PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set',
  EXPIRY_ .. queue, 'zset')
if bad then return bad end

local clock = now(ARGV[1])
local started, completed, woken = {}, {}, false -- written together at the end

-- remove(id): removes a task from the reserved list, and returns whether it was there. The search begins at the end,
-- with the oldest tasks, because these mostly end first.
local function remove(id) return redis.call('LREM', KEYS[1], -1, id) > 0 end

-- attempts(key, run): the number of attempts that ended before this run, or false if there are none.
local function attempts(key, run) return run ~= '1' and redis.call('HGET', key, 'attempts') end

-- Which of three keys exist, in one command: a key counts as often as it is named.
local exist = redis.call('EXISTS', WAITERS, THROTTLED, THROTTLED, FINISHED, FINISHED, FINISHED, FINISHED)

-- counting(): makes two functions for a tenant with the quota bytes_finished. count(id, h, size) counts a task that is
-- complete with a result of this size, and returns the value of its field "kept"; h is what holder returned. save() writes
-- the counts, and forgets the oldest finished tasks. The third value has the further fields that holder is to read.
local function counting() -- rare
  local f = finishing(clock)
  return function(id, h, size)
    if h[11] then uncount({ id .. ' ' .. h[11] }) end -- an error ended an earlier settle
    if not f or h[10] then return nil end
    local weighed = { unpack(h, 12) }
    weighed[#weighed] = false -- the checkpoint is deleted
    return charge(f, id, weightof(id, weighed, size))
  end, function()
    if f then book(f) end
    retain(8)
  end, { 'foreign', 'kept', unpack(WEIGHED) }
end
local tally, conclude, further = nil, nil, {}
if exist >= 4 then tally, conclude, further = counting() end

-- complete(id, key, h, text, bytes): completes the task. h is what holder returned. If the task is a dead letter, its
-- failed task counts as handled.
local function complete(id, key, h, text, bytes)
  local kept = tally and tally(id, h, math.max(#text, #bytes))
  if kept then
    redis.call('HSET', key, 'status', 'complete', 'updated', clock, 'result', text, 'kept', kept)
  else
    redis.call('HSET', key, 'status', 'complete', 'updated', clock, 'result', text)
  end
  local before = attempts(key, h[2])
  if before then redis.call('HSET', key, 'attempts', following(before)) end
  if h[8] then noteend(id, 2) end
  if bytes ~= '' then redis.pcall('HSET', BYTES_ .. id, 'result', bytes) end
  completed[#completed + 1] = id
  local live = string.sub(id, 1, #LETTER) == LETTER and redis.call('HGET', key, 'live_id')
  if live and redis.call('TYPE', TASK_ .. live)['ok'] == 'hash' and redis.call('HGET', TASK_ .. live, 'dead_id') == id then
    -- This is skipped if the failed task was retried meanwhile, or has a later letter.
    redis.call('HSET', TASK_ .. live, 'handled', id)
  end
  if h[6] then
    redis.call('HDEL', key, 'checkpoint')
    redis.pcall('HDEL', BYTES_ .. id, 'checkpoint')
  end
  if h[7] and redis.call('HEXISTS', key, 'unique_for') == 0 then unlock(queue, id, h[7]) end
  if h[9] then leave(queue, id, h[9]) end
end

-- otherwise(): makes a function (id, key, h, run, action, text, more, held) that fails the task, or makes it wait for its
-- next run unless it was cancelled. If held is set, all tasks with its key wait as long. It returns the task's line of
-- the reply. The function is made once per call, because making it executes all declarations that it needs.
local function otherwise() -- rare
  return function(id, key, h, run, action, text, more, held)
    if action == 'failed' then
      unburied = ''
      fail(queue, id, clock, more, text, 'settled', h[2], 'attempts', following(attempts(key, h[2])))
      return unburied == '' and 'ok' or 'unburied ' .. unburied
    end
    local counters = { retry = 'attempts', reschedule = 'reschedules', reject = 'rejects' }
    count(key, counters[action])
    if action == 'reject' then
      local by = {}
      for other in string.gmatch(redis.call('HGET', key, 'rejected_by') or '', '%S+') do
        if other ~= listener then by[#by + 1] = other end
      end
      by[#by + 1] = listener
      redis.call('HSET', key, 'rejected_by', table.concat(by, ' ', math.max(1, #by - 15)))
    end
    local waits, listed = back(queue, id, clock, more, 'LPUSH', action, text, 'settled', settler(listener, run), 'last_error', text,
      'last_action', action)
    woken = woken or listed
    local name = held and redis.call('HGET', key, 'key')
    if name then holdkey(queue, name, clock + more) end -- also if the task itself was cancelled
    return waits and 'ok' or 'cancelled'
  end
end

-- withchildren(): makes two functions, once per call of the script for the same reason. children(at, make) is for the
-- completed task whose arguments begin at this index. If make is set, it makes the task's children and publications. If
-- not, it returns the first queue of a child that refuses tasks, the first topic of a publication that cannot be
-- stored, or the error of a quota; nil if there is none. A result need not wait for room, but tasks whose children have
-- children must not multiply without end: so children and publications may take twice what the quotas allow. bear()
-- enqueues the children of all tasks, queue by queue, after all tasks are settled.
local function withchildren() -- rare
  local known, batches, order, instead = {}, {}, {}, {}
  local mark = redis.pcall('HGET', LIMITS, '..')
  mark = type(mark) == 'string' and mark
  return function(at, make)
    local place, new, bytes = at + 6, 0, 0
    while place < at + 5 + tonumber(ARGV[at + 4]) do
      local name = ARGV[place]
      place = place + 1
      if make and name == '' then
        accept(place, clock)
      elseif make then
        if not batches[name] then
          batches[name] = batch(name, clock, instead)
          order[#order + 1] = name
        end
        enqueue(batches[name], place)
      elseif name == '' then
        local topic = options(place).topic
        if unpublishable(ARGV[place], topic) then return topic end
        if mark then new, bytes = new + 1, bytes + #ARGV[place + 1] end
      else
        if known[name] == nil then known[name] = refuses(name) and true or false end
        if known[name] then return name end
        if mark then new, bytes = new + 1, bytes + #(options(place).bytes or ARGV[place + 1]) end
      end
      place = beyond(place)
    end
    local over = not make and admit(mark, new, bytes, clock, 2)
    return over and over.err or nil
  end, function()
    for _, name in ipairs(order) do finish(batches[name]) end
  end
end

-- watching(): makes two functions for the circuit breaker of the version that ran the tasks. note(id, action, reason) is
-- for each task that was settled; reason is nil if its failure does not count. While the breaker is open, only its probe
-- counts: others began before. save() writes the state at the end.
local function watching() -- rare
  local failures, pause, longest, version, queues = string.match(ARGV[6], '^(%d+) (%S+) (%S+) (%S+ %S+) ?(.*)$')
  local b, new, changed, turned = breaker(version), false, false, false
  return function(id, action, reason)
    local probed = b and b.listener == listener and b.id == id
    if b and b.pause > 0 and not probed then return end
    turned = turned or probed
    if action == 'complete' then
      if b then b, changed = nil, true end
      return
    end
    if not reason then
      if probed then b.listener, b.id, changed = '-', '-', true end
      return
    end
    if not b then b, new = { pause = 0, row = 0 }, true end
    b.row = (probed or b.reason == reason) and b.row + 1 or 1
    b.reason, b.from, b.ends, b.listener, b.id, changed = reason, clock, '0', '-', '-', true
    if probed then
      b.pause = math.min(2 * b.pause, tonumber(longest))
    elseif b.row >= tonumber(failures) then
      b.pause, turned = tonumber(pause), true
    end
    if b.pause > 0 then b.ends = after(clock, b.pause) end
  end, function()
    if not changed or new and b and nocrashroom(clock) then return end
    if b then savebreaker(version, b) else redis.pcall('HDEL', CRASHES, version .. FAILURES) end
    if not turned then return end
    for name in string.gmatch(queues, '%S+') do announce(CHANNEL_ .. name) end -- so that each host looks at once
  end
end

local ending, children, bear, note, save
if ARGV[6] ~= '' then note, save = watching() end
local out, at = {}, 7
while at <= #ARGV do
  local id, run, action, text, more = unpack(ARGV, at, at + 4)
  local key = TASK_ .. id
  local hold, h = holder(key, listener, run, 'checkpoint', 'unique', 'awaited', 'lane', unpack(further))
  -- A Python client completed the task, or an error ended an earlier settle.
  if hold == 'done' and h[3] == 'complete' and redis.call('LPOS', KEYS[1], id) then hold = 'held' end
  local has = action == 'complete' and tonumber(more) > 1
  if has and not children then children, bear = withchildren() end
  local refusing = hold == 'held' and has and children(at)
  if hold == 'done' then
    if h[3] == 'failed' and remove(id) then -- an error had ended the settle before it removed the task
      started[#started + 1] = listener .. ' ' .. pid .. ' ' .. id
    end
    out[#out + 1] = 'ok'
  elseif hold == 'gone' then
    remove(id)
    started[#started + 1] = listener .. ' ' .. pid .. ' ' .. id
    out[#out + 1] = 'gone'
  elseif refusing then
    out[#out + 1] = 'refused ' .. refusing
  elseif hold == 'lost' or not remove(id) then
    disown(queue, listener, id, pid)
    out[#out + 1] = 'lost'
  else
    started[#started + 1] = listener .. ' ' .. pid .. ' ' .. id
    local answer, reason = 'ok', nil
    if action == 'complete' then
      complete(id, key, h, text, more == '0' and '' or ARGV[at + 5])
      if has then children(at, true) end
    else
      ending = ending or otherwise()
      local held
      for i = at + 6, at + 4 + more do
        if ARGV[i] == 'key' then held = true else reason = ARGV[i] end
      end
      answer = ending(id, key, h, run, action, text, ARGV[at + 5], held)
      if answer == 'cancelled' then reason = nil end
    end
    if note then note(id, action, reason) end
    out[#out + 1] = answer
  end
  at = at + 5 + more
end
if #started > 0 then redis.call('SREM', STARTED_TASKS_ .. queue, unpack(started)) end
if save then save() end
if bear then bear() end
if #completed > 0 then
  if redis.call('EXISTS', EXPIRY_ .. queue) == 1 then redis.call('ZREM', EXPIRY_ .. queue, unpack(completed)) end
  redis.call('LPUSH', COMPLETE_TASKS_ .. queue, unpack(completed))
  count(STATS_ .. queue, 'complete', #completed)
  if exist % 2 == 1 then -- WAITERS: see waiters.go
    for _, id in ipairs(completed) do announce(DONE_ .. id) end
  end
end
if woken then announce(CHANNEL_ .. queue) end
if exist % 4 >= 2 and #started > 0 then unthrottle(#started) end
if conclude then conclude() end
for name in string.gmatch(ARGV[5], '%S+') do announce(CHANNEL_ .. name) end
return table.concat(out, '\n')

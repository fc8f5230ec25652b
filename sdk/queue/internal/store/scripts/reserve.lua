-- Reserves tasks of one queue for a listener, highest priority first. Starts them if a process ID is given, because the
-- listener has free slots. Reserves no task from a paused or held queue, none of a paused plugin or tenant, none for a
-- quarantined version of a plugin but the probe of its circuit breaker, and no more than the plugin's limit in the fleet
-- and the tenant's quotas and rates allow. An ID whose task is missing, damaged, finished, already held or not yet due is
-- dropped and counted. An expired task fails.
-- KEYS    1 pending  2 reserved of the listener
-- ARGV    1 clock override  2 queue  3 listener  4 maximum number of tasks (1 to 128)  5 process ID or ""
--         6 maximum bytes of one task's parameters  7 maximum bytes of all parameters
--         8 "PLUGIN DIGEST" of the version that will run the tasks, or "" (only with a process ID)
--         9 "1" if the version has a circuit breaker  10 maximum age in seconds of tasks that set none themselves, or ""
--         11 "MAX QUEUE ...", the maximum number of tasks of these queues that run in the fleet, or ""
--         12 bytes of memory that a task may use; 0: unknown
--         13 the number of the release that serves, or ""  14 the number of arguments for runners, and these arguments
--         then field, value, ... for the plugin's version and what its manifest sets (only with a process ID)
-- RETURNS number of dropped IDs, clock, eta of the next scheduled task, or when the tenant's rates let more tasks start
--         or the pause of the circuit breaker ends if that is earlier, or "", number of tasks that failed or wait again,
--         cause of barrier (2: a task is the probe), reason why a failed task has no dead letter or "", numbers of
--         releases that this host lacks or must not try, separated by spaces, 1 if the script ended early and the lists may
--         have further tasks; then for each task: id, run, parameters or nil if they are too large, their size, number of
--         further values, and these values: field, value, ... of fields in TAKEN, and "release", the number of the release
--         that runs it if that does not serve ("delayed" if the task waited for a host that may run it), or "instead", the
--         number of its release if the one that serves runs it. The error LEASELOST if the listener has no lease (any more)
local queue, listener, _, pid, _, _, plugin, breaks, age, fleet, memory, serving = unpack(ARGV, 2, 13)
local bad = mistyped(KEYS[1], 'list', KEYS[2], 'list', STARTED_TASKS_ .. queue, 'set', TASKS_ .. queue, 'zset',
  SCHEDULED_TASKS_ .. queue, 'zset', PRIORITIES_ .. queue, 'set', FAILED_TASKS_ .. queue, 'list', STATS_ .. queue, 'hash',
  EXPIRY_ .. queue, 'zset', PAUSED, 'set')
if bad then return bad end
-- A delayed reserve must not reserve tasks for a listener that has left, or whose tasks are being reclaimed (the end of
-- its lease is 0).
local lease = redis.pcall('ZSCORE', NODES, listener)
if type(lease) == 'table' then return mistyped(NODES, 'zset') or lease end
if tonumber(lease or '0') == 0 then
  return redis.error_reply('LEASELOST listener ' .. listener .. ' is not known (any more)')
end

local clock = now(ARGV[1])
local eta = redis.call('ZRANGE', SCHEDULED_TASKS_ .. queue, 0, 0, 'WITHSCORES')[2] or ''
local paused = redis.call('SMISMEMBER', PAUSED, queue, '.', 'plugin ' .. (string.match(plugin, '^%S+') or ''))
if paused[1] + paused[2] + paused[3] > 0 then return { 0, clock, eta, 0, 0, '', '', 0 } end
local bar = plugin == '' and { cause = 0 } or barrier(plugin, breaks, clock)
local half = bar.half
if bar.cause > 0 and not half then
  if bar.ends and (eta == '' or tonumber(bar.ends) < tonumber(eta)) then eta = bar.ends end
  return { 0, clock, eta, 0, bar.cause, '', '', 0 }
end
-- ask: set if some parameters of this queue were large. Then the size of each task's parameters is read first.
local ask, held = unpack(redis.call('HMGET', STATS_ .. queue, 'large', 'held'))
if held and helduntil(held, clock) then return { 0, clock, eta, 0, bar.cause, '', '', 0 } end
local wanted = math.min(tonumber(ARGV[4]), half and 1 or 128)
local work = 0 -- in units of one reserved task; at 128 the script ends, and the caller calls again

-- room(): the number of tasks that are still allowed to start in the fleet, at most wanted.
local function room() -- rare
  local most, queues = nil, {}
  for word in string.gmatch(fleet, '%S+') do
    if most then queues[#queues + 1] = word else most = tonumber(word) end
  end
  local function free()
    local n = most
    for _, name in ipairs(queues) do n = n - redis.call('SCARD', STARTED_TASKS_ .. name) end
    return n
  end
  local n = math.min(wanted, free())
  -- If there is no room, one caller every 5 seconds checks whether all counted tasks are really held.
  local may = n < 1 and duty(DUTY_ .. 'started_' .. queue, listener, 5000)
  if may and not may.err then
    work = (2 * unheld(queues) + 3 * #queues) / 4
    n = math.min(wanted, free())
  end
  return n
end
if fleet ~= '' then wanted = room() end

-- gate(h): bounds wanted by the tenant's rates and its quotas of running tasks, of their memory, and of fuel. Returns a
-- function (n), which takes n tokens of each rate, and returns the time from which more tasks may start, as a number; 0
-- if no rate bounds them. For fast rates that is the time of several tokens, because a reserve for each would cost more
-- than the task. If the tenant's tasks are as many as they may be, or the day's fuel is burnt, the queue is added to
-- THROTTLED, so that a settle or a change of quotas wakes it. h has the fields of QUOTAS that concern this queue.
local keyrate -- the rate of each key of this queue, if it has one
local throttled = false
local function gate(h) -- rare
  keyrate = h[5] and bucket(h[5]) and h[5]
  local names, rates, buckets, spent = {}, {}, {}, false
  for i, name in ipairs({ 'rate', 'rate:' .. queue }) do
    if h[i + 1] then names[#names + 1], rates[#rates + 1] = name, h[i + 1] end
  end
  for name in string.gmatch(h[4] or '', '%S+') do
    names[#names + 1] = 'limit:' .. name
    rates[#rates + 1] = redis.call('HGET', QUOTAS, 'limit:' .. name) or ''
  end
  for i, full in ipairs(#names > 0 and redis.call('HMGET', USED, unpack(names)) or {}) do
    local n, step, burst, at, cut = tokens(rates[i], full, clock, 0)
    if n then
      buckets[#buckets + 1] = { name = names[i], step = step, burst = burst, full = at }
      spent = spent or cut
      wanted = math.min(wanted, n)
    end
  end
  if h[7] then
    local n, step, burst, at, cut = fuelstate(clock)
    if n then buckets[#buckets + 1] = { name = 'fuel_rate', step = step, burst = burst, full = at, free = true } end
    spent = spent or cut
    if n and n < 1 then wanted = 0 end
  end
  local midnight, day = 0, tonumber(h[8] or '')
  if day then
    local number = math.floor(clock / 86400)
    local burnt = redis.pcall('HGET', USAGE_ .. string.format('%d', number), 'fuel')
    if type(burnt) == 'string' and tonumber(moment(burnt, '0')) >= day then
      wanted, throttled, midnight = 0, true, (number + 1) * 86400
    end
  end
  local most, bytes = tonumber(h[1] or ''), tonumber(h[6] or '')
  if (most or bytes) and wanted > 0 then
    -- left(): how many more tasks may start. A task that alone needs more memory than the quota runs alone.
    local function left()
      local n, some, counts = runningtasks()
      local free = most and most - n or wanted + 1
      local need = tonumber(memory)
      if bytes and need > 0 then
        local names, sum = {}, 0
        for i, name in ipairs(some) do names[i] = 'memory:' .. name end
        for i, each in ipairs(#some > 0 and redis.call('HMGET', USED, unpack(names)) or {}) do
          sum = sum + counts[i] * (some[i] == queue and need or tonumber(moment(each, '0')))
        end
        free = math.min(free, n == 0 and bytes < need and 1 or math.floor((bytes - sum) / need))
      end
      return free, some
    end
    local free, some = left()
    local may = free <= 0 and duty(DUTY_ .. 'started', listener, 5000)
    if may and not may.err then
      work = work + unheld(some) / 2
      free = left()
    end
    wanted = math.min(wanted, math.max(0, free))
    throttled = throttled or free <= wanted
    if bytes and memory ~= '0' then redis.call('HSET', USED, 'memory:' .. queue, memory) end
  end
  return function(n)
    local again, fields = midnight, {}
    for _, b in ipairs(buckets) do
      local full = b.full + (b.free and 0 or n * b.step)
      local some = math.min(math.max(1, math.floor(b.burst / 2)), math.ceil(0.05 / b.step))
      again = math.max(again, full + (some - b.burst) * b.step)
      fields[#fields + 1] = b.name
      fields[#fields + 1] = string.format('%.6f', full)
    end
    if #fields > 0 and (n > 0 or spent) then redis.call('HSET', USED, unpack(fields)) end
    return again > tonumber(clock) and again or 0
  end
end

-- closing(spend, n): ends a gate after n tasks were reserved, and returns the eta of the reply.
local function closing(spend, n) -- rare
  local again = spend(n)
  if n == wanted then -- otherwise the pending lists are empty
    if again > 0 and (eta == '' or again < tonumber(eta)) then eta = string.format('%.6f', again) end
    if throttled then redis.pcall('SADD', THROTTLED, queue) end
  elseif throttled then
    unthrottle(1) -- the message that woke this queue is of use to another one
  end
  return eta
end
-- The field ".." of LIMITS says that the tenant has quotas, and of which kinds; no queue has this name.
local mark = redis.pcall('HGET', LIMITS, '..')
local spend = false
if type(mark) == 'string' and string.find(mark, 'r', 1, true) then
  local h = redis.call('HMGET', QUOTAS, 'running', 'rate', 'rate:' .. queue, 'limits:' .. queue, 'key_rate:' .. queue,
    'memory', 'fuel_rate', 'fuel_day')
  spend = (h[1] or h[2] or h[3] or h[4] or h[5] or h[6] or h[7] or h[8]) and gate(h)
end
if wanted < 1 and spend then return { 0, clock, closing(spend, 0), 0, bar.cause, '', '', 0 } end

-- rejected(by): whether this listener has rejected the task, and another listener with a lease has not. by is the field
-- "rejected_by" of the task. Python listeners do not count: they have no lease, so nobody knows whether they are alive.
local function rejected(by)
  by = ' ' .. by .. ' '
  if not string.find(by, ' ' .. listener .. ' ', 1, true) then return false end
  for _, other in ipairs(redis.call('SMEMBERS', LISTENERS_ .. queue)) do
    if not string.find(by, ' ' .. other .. ' ', 1, true) and
      tonumber(redis.call('ZSCORE', NODES, other) or '0') > tonumber(clock) then return true end
  end
  return false
end

local rest = 15 + ARGV[14]
local written = { 'status', 'reserved', 'node', listener, 'updated', clock, 'reserved_at', clock }
if pid ~= '' then written = { 'status', 'started', 'node', listener, 'updated', clock, 'started_at', clock, 'pid', pid, unpack(ARGV, rest) } end
written[#written + 1] = 'run'
local most, bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
local out, taken, started, dropped, looked = { 0, clock, eta, 0, bar.cause, '', '', 0 }, 0, {}, 0, 0
local tested -- whether a task is the probe of the circuit breaker

-- otherwise(): makes a function (id, key, expired) that removes a task from the reserved list again. The task fails if
-- it has expired; if not, it waits again. The function is made once per call of the script, because making it executes
-- all declarations that it needs.
local ending, pick
local function otherwise() -- rare
  return function(id, key, expired)
    redis.call('LREM', KEYS[2], 1, id)
    work = work + 7
    if not expired then
      back(queue, id, clock, 1, 'LPUSH', '', '')
      return
    end
    for i = rest, #ARGV, 2 do
      if ARGV[i] == 'dead' then redis.call('HSET', key, 'dead', ARGV[i + 1]) end
    end
    fail(queue, id, clock, 'expired', describe('expired', 'waited past its max_age or deadline'))
  end
end

-- slower(): makes a function (id, key, name), once per call of the script for the same reason. A task whose key is held is
-- scheduled for the end of the hold, and one whose key has no token left for the time of its own token; then the
-- function returns true. That token is the task's: the field "token" of its hash has the time, and the task is not asked
-- for another one. Holds that have ended and buckets that are full again are forgotten.
local slow, holds -- holds: whether keys of this queue are held, nil as long as no task has a key
local function slower() -- rare
  local rates, held = KEYRATES_ .. queue, HELD_ .. queue
  if mistyped(rates, 'zset', held, 'zset') then return function() return false end end
  local step, burst = bucket(keyrate)
  for _, set in ipairs({ rates, held }) do -- one call removes more than it adds
    local old = redis.call('ZRANGEBYSCORE', set, '-inf', clock, 'LIMIT', 0, 256)
    if #old > 0 then redis.call('ZREM', set, unpack(old)) end
  end
  local function putoff(id, at, field)
    redis.call('LREM', KEYS[2], 1, id)
    work = work + 7
    back(queue, id, clock, at - tonumber(clock), 'LPUSH', '', '', field, string.format('%.6f', at))
    return true
  end
  return function(id, key, name)
    name = redis.sha1hex(name)
    local ends = holds and redis.call('ZSCORE', held, name)
    if ends and tonumber(ends) > tonumber(clock) then -- each task comes after the one before
      return putoff(id, tonumber(redis.call('ZINCRBY', held, '0.000002', name)), 'held')
    end
    if not step or redis.call('HDEL', key, 'token') == 1 then return false end
    local full = math.max(tonumber(clock), tonumber(redis.call('ZSCORE', rates, name) or '0')) + step
    redis.call('ZADD', rates, string.format('%.6f', full), name)
    local at = full - burst * step
    return at - tonumber(clock) >= 0.000002 and putoff(id, at, 'token')
  end
end

-- picker(): makes a function (id, key, pinned, aside), once per call of the script for the same reason. If this host
-- lacks the release of the task or must not try it, it makes the task wait and returns nil. Otherwise it returns what is
-- written to the task, and a field and value for the reply.
local function picker() -- rare
  local choose, wanted, begin = runners(serving, listener, 15, rest - 1, clock), {}, { unpack(written, 1, 10) }
  return function(id, key, pinned, aside)
    local number, one, waits = choose(id, pinned, aside)
    if waits then
      if not aside then redis.call('HSET', key, 'aside', clock) end
      if not wanted[number] then out[7] = out[7] .. (out[7] == '' and '' or ' ') .. number end
      wanted[number] = true
      redis.call('LREM', KEYS[2], 1, id)
      work = work + 7
      back(queue, id, clock, 1, 'LPUSH', '', '')
      return nil
    end
    if aside then redis.call('HDEL', key, 'aside') end
    if not number then return written end
    if not one then
      redis.call('HDEL', key, 'pinned')
      return written, 'instead', number
    end
    if not one.written then
      one.written = { unpack(begin) }
      for i = one.first, one.last do one.written[#one.written + 1] = ARGV[i] end
      one.written[#one.written + 1] = 'run'
    end
    return one.written, aside and 'delayed' or 'release', number
  end
end

-- reserve(id): reserves a task that has just been moved to the reserved list, or removes it from that list again.
local function reserve(id)
  local key = TASK_ .. id
  local max = math.min(most, bytes)
  local h, size = read(key, max, ask)
  if h and size > max and not ask then
    ask = '1'
    redis.call('HSET', STATS_ .. queue, 'large', ask)
  end
  local status = h and h[2]
  local drop
  if not h or status == 'complete' or status == 'failed' then
    drop = true
  elseif status == 'reserved' or status == 'started' then
    local node = redis.call('HGET', key, 'node')
    drop = node and holding(queue, id, node, listener)
  elseif status == 'scheduled' then -- the entry stayed because the list was too long to search
    drop = tonumber(redis.call('ZSCORE', SCHEDULED_TASKS_ .. queue, id) or '0') > tonumber(clock)
  elseif not status then
    drop = redis.call('EXISTS', key) == 0
  end
  if drop then
    redis.call('LREM', KEYS[2], 1, id)
    dropped = dropped + 1
    return
  end
  if not h[7] and age ~= '' then -- the task sets no maximum age itself
    local old = after(since(clock, h[4], h[6], h[5]), age)
    if not h[8] or tonumber(old) < tonumber(moment(h[8], old)) then
      h[8] = old
      redis.call('HSET', key, 'expires', old)
      redis.call('ZADD', EXPIRY_ .. queue, old, id)
    end
  end
  local expired = h[8] and tonumber(moment(h[8], clock)) < tonumber(clock)
  if expired or h[24] or h[23] and rejected(h[23]) then
    ending = ending or otherwise()
    return ending(id, key, expired)
  end
  if h[14] then
    if holds == nil then holds = redis.call('EXISTS', HELD_ .. queue) == 1 end
    if keyrate or holds then
      slow = slow or slower()
      if slow(id, key, h[14]) then return end
    end
  end
  local all, field, number = written
  if rest > 15 or h[25] and serving ~= '' and h[25] ~= serving or h[26] then
    pick = pick or picker()
    all, field, number = pick(id, key, h[25], h[26])
    if not all then return end
  end
  if not h[3] then -- another client enqueued the task, and writes no index
    redis.call('ZADD', TASKS_ .. queue, 'NX', moment(h[4], clock), id)
    redis.call('HSET', key, 'foreign', '1')
  end
  local run = following(h[3])
  if pid ~= '' then
    started[#started + 1] = listener .. ' ' .. pid .. ' ' .. id
    if run ~= '1' then redis.call('HDEL', key, 'on_crash', 'max_crashes', 'dead', 'plugin', 'digest', 'version', 'release') end -- of the previous holder
  end
  all[#all + 1] = run
  redis.call('HSET', key, unpack(all))
  all[#all] = nil
  local at = #out + 5
  bytes = bytes - take(out, id, run, h, size, max)
  if field then
    out[#out + 1], out[#out + 2] = field, number
    out[at] = out[at] + 2
  end
  taken = taken + 1
  if half and all == written then
    probe(plugin, half, listener, id)
    tested = true
  end
end

-- inturn(list, level): makes two functions for a list beside which tasks with a fairness key wait. take() moves the next
-- task of the list or of these tasks to the reserved list and returns it, or nil if there is none. save() writes down
-- whose turn it is. It is start-time fair queueing: the first task of each key has a turn, and the lowest turn is next. The
-- tasks of the list together count as one key, which only this script gives turns to.
local function inturn(list, level) -- rare
  local set, turns = fairset(queue, level)
  local now = tonumber(redis.call('ZSCORE', turns, 'turn') or '0')
  local own = tonumber(redis.call('ZSCORE', turns, 'list') or '0')
  if own < now then own = now + 1000 end -- the list was empty meanwhile
  local left, moved = redis.call('LLEN', list), false
  return function()
    local first = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
    local turn = tonumber(first[2])
    if not turn or left > 0 and own <= turn then
      local id = redis.call('RPOPLPUSH', list, KEYS[2])
      left = left - 1
      if id then now, own, moved = math.max(now, own), math.max(now, own) + 1000, true end
      return id
    end
    redis.call('RPUSH', list, first[1])
    redis.call('ZREM', set, first[1])
    now, moved = math.max(now, turn), true
    return redis.call('RPOPLPUSH', list, KEYS[2])
  end, function()
    if redis.call('EXISTS', set) == 0 then
      redis.call('UNLINK', turns)
      redis.call('SREM', PRIORITIES_ .. queue, 'f' .. level)
    elseif moved then
      redis.call('ZADD', turns, scored(now), 'turn', scored(own), 'list')
      -- What ended before now has no effect any more. Each task adds at most one entry, so this keeps their number low.
      local past = redis.call('ZRANGEBYSCORE', turns, '-inf', '(' .. scored(now), 'LIMIT', 0, 256)
      if #past > 0 then redis.call('ZREM', turns, unpack(past)) end
    end
  end
end

local lists, fair = pendinglists(queue)
for _, list in ipairs(lists) do
  local take, save
  if fair[list] and taken < wanted and work < 128 then take, save = inturn(list, fair[list]) end
  while taken < wanted and work < 128 do
    local id
    if take then id = take() else id = redis.call('RPOPLPUSH', list, KEYS[2]) end
    if not id then
      if list ~= KEYS[1] then redis.call('SREM', PRIORITIES_ .. queue, string.sub(list, #PENDING_ + 1, #PENDING_ + 3)) end
      break
    end
    looked, work = looked + 1, work + 1
    reserve(id)
  end
  if save then save() end
end
if #started > 0 then redis.call('SADD', STARTED_TASKS_ .. queue, unpack(started)) end
if spend then out[3] = closing(spend, taken) end
if ending then retain(8) end -- tasks may have failed
-- Another release ran the one task: the next one may be the probe.
local early = work >= 128 and taken < wanted or half and taken > 0 and not tested
out[1], out[4], out[6], out[8] = dropped, looked - dropped - taken, unburied, early and 1 or 0
return out

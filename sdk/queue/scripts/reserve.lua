-- Reserves tasks of one queue for a listener, highest priority first, and starts them if a process ID is given
-- (for free slots). Takes nothing from a paused queue or for a quarantined version of a plugin, and no more than
-- the plugin's limit in the fleet. An ID whose task is missing, damaged, finished, already held or not yet due is
-- dropped and counted; an expired task fails.
-- KEYS    1 pending  2 reserved of the listener
-- ARGV    1 clock override  2 queue  3 listener  4 most tasks (1 to 48)  5 process ID or ""
--         6 most bytes of parameters a task  7 most bytes of parameters together
--         8 plugin or ""  9 digest of the plugin (both only with a process ID)
--         10 longest age in seconds of a task that names none itself, or ""
--         11 most tasks that may run in the fleet, or "", in 12 these queues together, by spaces
--         then field, value, ... of what the manifest decides (only with a process ID)
-- RETURNS {{dropped, clock, eta of the next scheduled task or "", failed or put off, 1 if the version is
--         quarantined, why one that failed has no dead letter or ""}, {id, run, created, eta, attempts, max_attempts, retry, expires, reschedules, rejects,
--         timeout, deadline, max_age, last_error, parent, key, depth, traceparent, size of parameters,
--         parameters or nil if too large}, ...}; the error LEASELOST if the listener is not known (any more)
local queue, listener, pid = ARGV[2], ARGV[3], ARGV[5]
local bad = mistyped(KEYS[1], 'list', KEYS[2], 'list', STARTED_TASKS_ .. queue, 'set', TASKS_ .. queue, 'zset',
  SCHEDULED_TASKS_ .. queue, 'zset', PRIORITIES_ .. queue, 'set', FAILED_TASKS_ .. queue, 'list', STATS_ .. queue, 'hash',
  EXPIRY_ .. queue, 'zset', PAUSED, 'set', NODES, 'zset')
if bad then return bad end
-- A delayed reserve must not hold tasks for a listener that has left, or whose tasks are being taken from it (its
-- lease ended at 0).
if tonumber(redis.call('ZSCORE', NODES, listener) or '0') == 0 then
  return redis.error_reply('LEASELOST listener ' .. listener .. ' is not known (any more)')
end

local clock = now(ARGV[1])
local eta = redis.call('ZRANGE', SCHEDULED_TASKS_ .. queue, 0, 0, 'WITHSCORES')[2] or ''
if redis.call('SISMEMBER', PAUSED, queue) == 1 then return { { 0, clock, eta, 0, 0, '' } } end
local crashes = pid ~= '' and ARGV[8] ~= '' and redis.pcall('HGET', CRASHES, ARGV[8] .. ' ' .. ARGV[9])
if quarantined(crashes, clock) then return { { 0, clock, eta, 0, 1, '' } } end
local wanted = tonumber(ARGV[4])
local work = 0 -- in units of a reserved task; above a limit the caller comes again
if ARGV[11] ~= '' then
  local function free()
    local n = tonumber(ARGV[11])
    for name in string.gmatch(ARGV[12], '%S+') do n = n - redis.call('SCARD', STARTED_TASKS_ .. name) end
    return n
  end
  wanted = math.min(wanted, free())
  -- Do all counted tasks run? Checked every 5 seconds by a caller that has to wait.
  local may = wanted < 1 and duty(DUTY_ .. 'started_' .. queue, listener, 5000)
  if may and not may.err then
    local queues = {}
    for name in string.gmatch(ARGV[12], '%S+') do queues[#queues + 1] = name end
    work = (2 * unheld(queues) + 3 * #queues) / 10
    wanted = math.min(tonumber(ARGV[4]), free())
  end
end

-- rejected(h): whether the listener rejected the task before, and another one with a lease could take it. A
-- Python listener has no lease, so nobody knows whether it lives.
local function rejected(h)
  local by = ' ' .. h[12] .. ' '
  if not string.find(by, ' ' .. listener .. ' ', 1, true) then return false end
  for _, other in ipairs(redis.call('SMEMBERS', LISTENERS_ .. queue)) do
    if not string.find(by, ' ' .. other .. ' ', 1, true) and
      tonumber(redis.call('ZSCORE', NODES, other) or '0') > tonumber(clock) then return true end
  end
  return false
end

local most, room = tonumber(ARGV[6]), tonumber(ARGV[7])
local out, dropped, looked = { 0 }, 0, 0
local function take(id)
  local key = TASK_ .. id
  local hash = redis.pcall('HMGET', key, unpack(TAKEN))
  local status = not hash.err and hash[1]
  local drop
  if hash.err or status == 'complete' or status == 'failed' then
    drop = true
  elseif status == 'reserved' or status == 'started' then
    drop = hash[2] and held(queue, id, hash[2], listener)
  elseif status == 'scheduled' then -- a stale entry, of a list that was too long to search
    drop = tonumber(redis.call('ZSCORE', SCHEDULED_TASKS_ .. queue, id) or '0') > tonumber(clock)
  elseif not status then
    drop = redis.call('EXISTS', key) == 0
  end
  if drop then
    redis.call('LREM', KEYS[2], 1, id)
    dropped = dropped + 1
    return
  end
  if not hash[16] and ARGV[10] ~= '' then -- only the manifest limits its age
    local old = after(since(clock, hash[4], hash[5], hash[17]), ARGV[10])
    if not hash[9] or tonumber(old) < tonumber(moment(hash[9], old)) then
      hash[9] = old
      redis.call('HSET', key, 'expires', old)
      redis.call('ZADD', EXPIRY_ .. queue, old, id)
    end
  end
  if hash[9] and tonumber(moment(hash[9], clock)) < tonumber(clock) then
    redis.call('LREM', KEYS[2], 1, id)
    if #ARGV > 12 then redis.call('HSET', key, unpack(ARGV, 13)) end
    work = work + 3
    fail(queue, id, clock, 'expired', describe('expired', 'waited past its max_age or deadline'))
    return
  end
  if hash[13] or hash[12] and rejected(hash) then
    redis.call('LREM', KEYS[2], 1, id)
    back(queue, id, clock, 1, 'LPUSH', '', '')
    return
  end
  local run = count(key, 'run')
  local first = { 'updated', clock }
  if not hash[3] then -- enqueued by a client without an index
    redis.call('ZADD', TASKS_ .. queue, 'NX', moment(hash[4], clock), id)
    first = { 'updated', clock, 'foreign', '1' }
  end
  if pid == '' then
    redis.call('HSET', key, 'status', 'reserved', 'node', listener, 'reserved_at', clock, unpack(first))
  else
    redis.call('SADD', STARTED_TASKS_ .. queue, listener .. ' ' .. pid .. ' ' .. id)
    if run > 1 then redis.call('HDEL', key, 'on_crash', 'max_crashes', 'dead', 'plugin', 'digest') end -- of the previous holder
    if ARGV[8] ~= '' then
      for _, word in ipairs({ 'plugin', ARGV[8], 'digest', ARGV[9] }) do first[#first + 1] = word end
    end
    for i = 13, #ARGV do first[#first + 1] = ARGV[i] end
    redis.call('HSET', key, 'status', 'started', 'node', listener, 'pid', pid, 'reserved_at', clock, 'started_at', clock,
      unpack(first))
  end
  local row, bytes = taken(id, run, hash, math.min(most, room))
  room = room - bytes
  out[#out + 1] = row
end

for _, list in ipairs(pendinglists(queue)) do
  while #out <= wanted and work < 48 do
    local id = redis.call('RPOPLPUSH', list, KEYS[2])
    if not id then
      if list ~= KEYS[1] then redis.call('SREM', PRIORITIES_ .. queue, string.sub(list, #PENDING_ + 1, #PENDING_ + 3)) end
      break
    end
    looked, work = looked + 1, work + 1
    take(id)
  end
end
out[1] = { dropped, clock, eta, looked - dropped - (#out - 1), 0, unburied }
return out

-- Takes a block of tasks of one queue from a dead listener, newest first, so that the oldest one ends up at the front
-- of its list. For a started task, one more crash is counted. After its first crash the task returns to the front at
-- once; after later ones it is scheduled with a delay. At the maximum number of crashes, or if it must not run twice,
-- the task fails. Once the listener's reserved list is empty, the listener is removed from the queue's set.
-- KEYS    1 reserved of the listener
-- ARGV    1 clock override  2 queue  3 listener  4 maximum number of tasks
--         5 number of crashes at which a task fails, unless the task has a smaller number
--         6 "1" for a listener without a lease, which an operator has declared dead
--         7 number of seconds: listeners that die less than this apart count as one death
-- RETURNS 'alive' if the listener is alive; otherwise {number of tasks left in the reserved list, number of tasks
--         returned to the front, scheduled, failed and dropped, reason why a failed task has no dead letter or ""}
local queue, listener = ARGV[2], ARGV[3]
local bad = mistyped(KEYS[1], 'list', STARTED_TASKS_ .. queue, 'set', PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set',
  FAILED_TASKS_ .. queue, 'list', STATS_ .. queue, 'hash', SCHEDULED_TASKS_ .. queue, 'zset', EXPIRY_ .. queue, 'zset',
  LISTENERS_ .. queue, 'set', QUEUES, 'zset', NODES, 'zset')
if bad then return bad end
local lease = redis.call('ZSCORE', NODES, listener)
if lease and tonumber(lease) > 0 then return 'alive' end
if not lease and ARGV[6] ~= '1' and not string.find(listener, '~%x%x%x%x%x%x%x%x_%d+$') then return 'alive' end

local clock = now(ARGV[1])
local front, later, failed, dropped, full = 0, 0, 0, 0, false -- full: retain may have something to do

-- recent(second): whether a death at this time was within the last hour. Returns false for a damaged value.
local function recent(second)
  return tonumber(moment(second, '0')) > tonumber(clock) - 3600
end

-- deathsof(value, id, same): the deaths in value, "UNTIL LISTENER SECOND ..."; that of the listener of the task's previous
-- crash, if same(its "PLUGIN DIGEST" in the history); and that of this listener. It leaves out what is not recent.
-- Listeners that died together count as one death, because a power failure may be the cause.
local function deathsof(value, id, same)
  local deaths, words = {}, {}
  local function add(who, at)
    if not recent(at) then return end
    for _, death in ipairs(deaths) do
      if death.who == who or math.abs(death.at - tonumber(at)) < tonumber(ARGV[7]) then return end
    end
    deaths[#deaths + 1], words[#words + 1] = { who = who, at = tonumber(at) }, ' ' .. who .. ' ' .. at
  end
  for who, at in string.gmatch(value, ' (%S+) ([%d.]+)') do add(who, at) end
  local last = redis.pcall('LINDEX', ATTEMPTS_ .. id, -1)
  local at, who, ran = string.match(type(last) == 'string' and last or '', '^%S+ %S+ ([%d.]+) (%S+) (%S+ %S+) crashed ')
  if ran and same(ran) then add(who, at) end
  add(listener, clock)
  return words
end

local packed -- set once CRASHES has no room

-- blame(id, version): records that a version of a plugin has killed this listener and, if it ran then too, the listener
-- of the task's previous crash. The third death within an hour quarantines the version for a day.
local function blame(id, version)
  local value = redis.pcall('HGET', CRASHES, version)
  if type(value) ~= 'string' then
    packed = packed or nocrashroom(clock)
    if packed then return end
    value = '0'
  end
  if quarantined(value, clock) then return end
  local deaths = deathsof(value, id, function(ran) return string.match(ran, '^%S+ [^@/]+') == version end)
  redis.pcall('HSET', CRASHES, version, (#deaths >= 3 and after(clock, 86400) or '0') .. table.concat(deaths))
  redis.pcall('EXPIRE', CRASHES, 86400)
end

-- blamerelease(id, plugin, number, again): the same of a release, for the hosts that judge it, with the time of the last
-- crash of any of its tasks in place of UNTIL. A task that was in no crash before is to blame while the release begins on
-- one listener: see runners.
local function blamerelease(id, plugin, number, again)
  local key = RELEASE_ .. plugin
  local h = redis.pcall('HMGET', key, number, number .. ' first', number .. ' deaths')
  if h.err or not h[1] then return end
  local value = clock .. string.match(h[3] or '', '^%S*(.*)$')
  if again or h[2] then
    local deaths = deathsof(value, id, function(ran)
      local its, release = string.match(ran, '^(%S+) [^/]-@(%d+)')
      return its == plugin and release == number
    end)
    if #deaths <= 3 then value = clock .. table.concat(deaths) end
  end
  if value ~= h[3] then redis.pcall('HSET', key, number .. ' deaths', value) end
end

-- crash(id, h): handles a task whose host died while the task ran. The plugin's version is blamed only if the task was
-- in a crash before, or is allowed no second crash. A task that only ran on the same host as the cause of the crash is
-- rarely in a second crash.
local function crash(id, h)
  local crashes = count(TASK_ .. id, 'crashes')
  local most = math.min(tonumber(h[4] or '') or tonumber(ARGV[5]), tonumber(ARGV[5]))
  local ran = version(h[7], h[8]) -- nil for a worker without a plugin
  if ran and ARGV[6] ~= '1' then
    local again = crashes > 1 or h[5] == 'fail' or most == 1
    if again then blame(id, ran) end
    if h[9] then blamerelease(id, h[7], h[9], again) end
  end
  if not h[6] and (h[5] == 'fail' or crashes >= most) then
    local why = h[5] == 'fail' and 'its host died while it ran, and it must not run twice' or
      'its host died while it ran, ' .. crashes .. ' times'
    full = fail(queue, id, clock, 'crashed', describe('crashed', why)) or full
    failed = failed + 1
    return
  end
  local delay = crashes == 1 and 0 or math.min(60, 2 ^ (crashes - 2))
  local waits, listed = back(queue, id, clock, delay, 'RPUSH', 'crashed', '')
  if listed then
    front = front + 1
  elseif waits then
    later = later + 1
  else
    failed = failed + 1
  end
end

for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, tonumber(ARGV[4]) - 1)) do
  redis.call('LREM', KEYS[1], 1, id)
  local key = TASK_ .. id
  local h = redis.pcall('HMGET', key, 'status', 'node', 'pid', 'max_crashes', 'on_crash', 'cancel', 'plugin',
    'digest', 'release')
  local status = not h.err and h[1]
  local ran = not h.err and h[3] and redis.call('SREM', STARTED_TASKS_ .. queue, listener .. ' ' .. h[3] .. ' ' .. id) == 1
  if h.err or not status and redis.call('EXISTS', key) == 0 or status == 'complete' or status == 'failed' or
    h[2] and h[2] ~= listener and holding(queue, id, h[2], listener) then
    dropped = dropped + 1
  elseif status == 'scheduled' and redis.call('ZSCORE', SCHEDULED_TASKS_ .. queue, id) then
    dropped = dropped + 1 -- the task waits already
  elseif ran or status == 'started' and h[2] == listener then
    crash(id, h)
  elseif select(2, back(queue, id, clock, 0, 'RPUSH', '', '')) then
    front = front + 1
  else
    failed = failed + 1
  end
end
if front > 0 then announce(CHANNEL_ .. queue) end
if full then retain(8) end

local left = redis.call('LLEN', KEYS[1])
if left == 0 then
  for _, entry in ipairs(redis.call('SMEMBERS', STARTED_TASKS_ .. queue)) do
    if string.sub(entry, 1, #listener + 1) == listener .. ' ' then redis.call('SREM', STARTED_TASKS_ .. queue, entry) end
  end
  if redis.call('SREM', LISTENERS_ .. queue, listener) == 1 then redis.call('ZINCRBY', QUEUES, -1, queue) end
end
return { left, front, later, failed, dropped, unburied }

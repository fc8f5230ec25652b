-- Makes, changes, pauses, resumes or deletes a schedule. Also records that the schedule's plugin is absent, and deletes
-- the schedule after a long absence. Hosts compute when a schedule is due, because Lua has no calendar. The script only
-- sets the schedule's score to 0, so that a host looks at it. A repeated call changes nothing.
-- KEYS    1 ticks
-- ARGV    1 clock override  2 schedule  3 owner; "" means any owner, except for put
--         4 what to do: 'put', 'pause', 'resume', 'delete', 'absent' or 'present'
--         5 the token of the SyncSchedules that the call is a part of, or ""
--         for put: 6 maximum number of schedules  7 "1" to change nothing if the schedule exists  8... field, value,
--         ... of the definition: see DEFINED
--         for absent (no host serves the plugin): 6 seconds of absence after which the schedule is deleted, or "" for
--         never. During the absence, hosts fire no ticks of the schedule. After it, these ticks count as missed
-- RETURNS for put: 'new', 'changed', 'same' or 'kept'; for the others: 'changed' or 'same'. 'none' if there is no such
--         schedule; 'full' if there is the maximum number of schedules; 'owned' and the owner if the schedule has
--         another owner; 'overtaken' if another sync has begun; the error QUOTA or MANYQUEUES if the queue is new and the tenant
--         already has its maximum number of queues
local id, owner, what = ARGV[2], ARGV[3], ARGV[4]
local key = SCHEDULE_ .. id
local bad = mistyped(KEYS[1], 'zset', key, 'hash', QUEUES, 'zset')
if bad then return bad end
if ARGV[5] ~= '' and redis.call('GET', DUTY_ .. 'sync_' .. owner) ~= ARGV[5] then return 'overtaken' end
local DEFINED = { 'queue', 'cron', 'timezone', 'task', 'missed', 'max_missed', 'window', 'overlap' }
local clock = now(ARGV[1])
local h = redis.call('HMGET', key, 'owner', 'paused', 'cron', 'timezone', 'revision')
local exists = h[1]

-- due(paused): makes a host look at the schedule at once, unless the schedule is paused. Only ticks from now on count.
local function due(paused)
  redis.call('HSET', key, 'since', clock)
  redis.call('HDEL', key, 'next', 'waits')
  redis.call('ZADD', KEYS[1], paused and '+inf' or '0', id)
end

-- attend(): ends the absence of the plugin. Ticks that came meanwhile count as missed.
local function attend()
  if redis.call('HDEL', key, 'absent') == 1 and not h[2] then
    redis.call('ZADD', KEYS[1], '0', id)
    announce(CONTROL)
  end
end

local function changed()
  -- The new revision was never used before.
  redis.call('HSET', key, 'updated', clock, 'revision', redis.sha1hex(clock .. (h[5] or '')))
  announce(CONTROL)
  return 'changed'
end

if not exists and what ~= 'put' then
  redis.call('ZREM', KEYS[1], id) -- somebody may have deleted the hash by hand
  return 'none'
end
if exists and exists ~= owner and (what == 'put' or owner ~= '') then return 'owned ' .. exists end
if what == 'present' then
  attend()
  return 'same'
elseif what == 'absent' then
  local since = moment(redis.call('HGET', key, 'absent'))
  if not since then
    redis.call('HSET', key, 'absent', clock)
    return 'same'
  end
  if ARGV[6] == '' or tonumber(clock) - since < tonumber(ARGV[6]) then return 'same' end
  what = 'delete'
end
if what == 'delete' then
  redis.call('ZREM', KEYS[1], id)
  redis.call('UNLINK', key)
  announce(CONTROL)
  return 'changed'
elseif what == 'pause' then
  if h[2] then return 'same' end
  redis.call('HSET', key, 'paused', clock)
  redis.call('ZADD', KEYS[1], '+inf', id)
  return changed()
elseif what == 'resume' then
  if not h[2] then return 'same' end
  redis.call('HDEL', key, 'paused')
  due(false)
  return changed()
end

if exists then attend() end
if not exists and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[6]) then return 'full' end
bad = not exists and scarce('schedules', redis.call('ZCARD', KEYS[1]))
if bad then return bad end
local given, differs = {}, false
for i = 8, #ARGV, 2 do given[ARGV[i]] = ARGV[i + 1] end
local is = redis.call('HMGET', key, unpack(DEFINED))
for i, field in ipairs(DEFINED) do differs = differs or is[i] ~= (given[field] or false) end
local listed = redis.call('ZSCORE', KEYS[1], id) -- false if somebody deleted the key by hand
if exists and listed and not differs then return 'same' end
if exists and ARGV[7] == '1' then return 'kept' end
-- The queues of a plugin exist, because a host serves them.
if given.queue ~= is[1] and string.sub(owner, 1, 7) ~= 'plugin ' then
  bad = unlisted(given.queue)
  if bad then return bad end
end
if not exists then redis.call('HSET', key, 'owner', owner, 'created', clock) end
for _, field in ipairs(DEFINED) do
  if given[field] then redis.call('HSET', key, field, given[field]) else redis.call('HDEL', key, field) end
end
if not listed or h[3] ~= given.cron or h[4] ~= (given.timezone or false) then due(h[2]) end
changed()
return exists and 'changed' or 'new'

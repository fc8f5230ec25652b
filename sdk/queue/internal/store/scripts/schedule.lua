-- Makes or changes a schedule, pauses or resumes it, or deletes it, also when its plugin has been absent for long. Hosts compute when
-- it is due, because Lua has no calendar: here it only gets the score 0, so that one looks at it. A repeated call changes
-- nothing.
-- KEYS    1 ticks
-- ARGV    1 clock override  2 schedule  3 owner  4 what: 'put', 'pause', 'resume', 'delete', 'absent' or 'present'
--         5 the token of the sync of the owner's list that this is part of, or ""
--         put: 6 most schedules  7 "1": only if it is missing  8... fields and values of its definition, all of DEFINED
--         absent: 6 seconds, or "" for never: no host serves its plugin; if that has been so for this long, it is deleted, and
--         until then hosts fire none of its ticks, so that what it missed is known when the plugin is back
--         the others work whoever owns it, if the owner is ""
-- RETURNS new, changed, same or kept of put; changed or same of the others; none if there is no such schedule;
--         the error MANYQUEUES if its queue is new and the tenant may have no more; full if there are as many as there may be; owned and
--         its owner if that is another one; overtaken if another sync has begun
local id, owner, what = ARGV[2], ARGV[3], ARGV[4]
local key = SCHEDULE_ .. id
local bad = mistyped(KEYS[1], 'zset', key, 'hash', QUEUES, 'zset')
if bad then return bad end
if ARGV[5] ~= '' and redis.call('GET', DUTY_ .. 'sync_' .. owner) ~= ARGV[5] then return 'overtaken' end
local DEFINED = { 'queue', 'cron', 'timezone', 'task', 'missed', 'max_missed', 'window', 'overlap' }
local clock = now(ARGV[1])
local h = redis.call('HMGET', key, 'owner', 'paused', 'cron', 'timezone', 'revision')
local exists = h[1]

-- due(): lets a host look at the schedule at once, unless it is paused. Its ticks count from now.
local function due(paused)
  redis.call('HSET', key, 'since', clock)
  redis.call('HDEL', key, 'next', 'waits')
  redis.call('ZADD', KEYS[1], paused and '+inf' or '0', id)
end

-- attend(): ends the absence of the plugin. Ticks that came meanwhile are missed ones.
local function attend()
  if redis.call('HDEL', key, 'absent') == 1 and not h[2] then
    redis.call('ZADD', KEYS[1], '0', id)
    announce(CONTROL)
  end
end

local function changed()
  redis.call('HSET', key, 'updated', clock, 'revision', redis.sha1hex(clock .. (h[5] or ''))) -- which never comes again
  announce(CONTROL)
  return 'changed'
end

if not exists and what ~= 'put' then
  redis.call('ZREM', KEYS[1], id) -- its hash was deleted by hand
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
local given, differs = {}, false
for i = 8, #ARGV, 2 do given[ARGV[i]] = ARGV[i + 1] end
local is = redis.call('HMGET', key, unpack(DEFINED))
for i, field in ipairs(DEFINED) do differs = differs or is[i] ~= (given[field] or false) end
local listed = redis.call('ZSCORE', KEYS[1], id) -- not if the key was deleted by hand
if exists and listed and not differs then return 'same' end
if exists and ARGV[7] == '1' then return 'kept' end
if given.queue ~= is[1] and string.sub(owner, 1, 7) ~= 'plugin ' then -- whose queue a host serves
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

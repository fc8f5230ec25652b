-- Enqueues and schedules up to 1,000 tasks of one queue. An ID whose hash exists already is left
-- as it is, so that a repeat is safe. So is a task whose uniqueness another one holds.
-- KEYS    1 pending
-- ARGV    1 clock override  2 queue  then for each task:
--         id, eta ("" now, seconds since the epoch, or "+seconds" from now), parameters,
--         bytes ("" if parameters is the text itself), priority ("" for 50), longest age in seconds or
--         "", deadline in seconds since the epoch or "", uniqueness hash or "", its life in seconds,
--         "1" if it holds for all of its life and not just until the task is settled,
--         number of further values, and these: field, value, ...
-- RETURNS for each task 1 (written), 0 (existed), or the ID that holds its uniqueness; the error
--         QUEUEFULL if the queue would become longer than it may
local queue = ARGV[2]
local bad = mistyped(QUEUES, 'zset', KEYS[1], 'list', SCHEDULED_ .. queue, 'zset', INDEX_ .. queue, 'zset',
  STATS_ .. queue, 'hash', PRIORITIES_ .. queue, 'set', EXPIRY_ .. queue, 'zset', KEYED_ .. queue, 'zset', LIMITS, 'hash')
if bad then return bad end

local limit = tonumber(redis.call('HGET', LIMITS, queue) or '')
if limit then
  local new, seen, at = 0, {}, 3
  while at <= #ARGV do
    local id, unique = ARGV[at], ARGV[at + 7]
    local known = seen[id] or redis.call('EXISTS', TASK_ .. id) == 1 or
      unique ~= '' and (seen[' ' .. unique] or owner(queue, unique, id, ARGV[at + 9] == '1'))
    if not known then new = new + 1 end
    seen[id], seen[' ' .. unique] = true, unique ~= ''
    at = at + 11 + tonumber(ARGV[at + 10])
  end
  local is = waiting(queue) + redis.call('ZCARD', SCHEDULED_ .. queue)
  if new > 0 and is + new > limit then
    return redis.error_reply(string.format('QUEUEFULL queue %s holds %d waiting tasks and may hold %d', queue, is, limit))
  end
end

local clock = now(ARGV[1])
local first = redis.call('ZRANGE', SCHEDULED_ .. queue, 0, 0, 'WITHSCORES')[2]
local written, pending, index = {}, {}, {}
local wake = false
local at = 3
while at <= #ARGV do
  local id, eta, parameters, bytes, priority, age, deadline, unique, life, whole = unpack(ARGV, at, at + 9)
  local extra = tonumber(ARGV[at + 10])
  local key = TASK_ .. id
  local other = unique ~= '' and redis.call('EXISTS', key) == 0 and owner(queue, unique, id, whole == '1')
  if other then
    written[#written + 1] = other
  elseif redis.call('EXISTS', key) == 1 then
    written[#written + 1] = 0
  else
    if string.sub(eta, 1, 1) == '+' then eta = after(clock, string.sub(eta, 2)) end
    local later = eta ~= '' and tonumber(eta) > tonumber(clock)
    local fields = {
      'status', later and 'scheduled' or 'pending', 'queue', queue, 'parameters', parameters,
      'created', clock, 'updated', clock, 'run', '0',
    }
    local function add(field, value)
      fields[#fields + 1] = field
      fields[#fields + 1] = value
    end
    if later then add('eta', eta) end
    local expires = deadline
    if age ~= '' then
      local old = after(later and eta or clock, age)
      if expires == '' or tonumber(old) < tonumber(expires) then expires = old end
    end
    if expires ~= '' then add('expires', expires) end
    if priority ~= '' then add('priority', priority) end
    if unique ~= '' then add('unique', unique) end
    if whole == '1' then add('unique_for', life) end
    local named
    for i = at + 11, at + 10 + extra, 2 do
      add(ARGV[i], ARGV[i + 1])
      if ARGV[i] == 'key' then named = ARGV[i + 1] end
    end
    -- The first write is one that Redis refuses at maxmemory: then nothing is written at all.
    redis.call('HSET', key, unpack(fields))
    redis.call('UNLINK', BYTES_ .. id, LOG_ .. id, ATTEMPTS_ .. id) -- of one that another client deleted
    if bytes ~= '' then redis.call('HSET', BYTES_ .. id, 'parameters', bytes) end
    if unique ~= '' then
      redis.call('SET', UNIQUE_ .. queue .. '_' .. unique, id, 'EX', life)
      redis.call('ZADD', KEYED_ .. queue, 0, 'U' .. unique .. ' ' .. id)
    end
    if named then redis.call('ZADD', KEYED_ .. queue, 0, 'K' .. redis.sha1hex(named) .. ' ' .. id) end
    if expires ~= '' then redis.call('ZADD', EXPIRY_ .. queue, expires, id) end
    if later then
      redis.call('ZADD', SCHEDULED_ .. queue, eta, id)
      if not first or tonumber(eta) < tonumber(first) then
        first = eta
        wake = true
      end
    elseif priority ~= '' then
      push(queue, id, priority, 'LPUSH')
      wake = true
    else
      pending[#pending + 1] = id
    end
    index[#index + 1] = clock
    index[#index + 1] = id
    written[#written + 1] = 1
  end
  at = at + 11 + extra
end
if #index > 0 then
  redis.call('ZINCRBY', QUEUES, 0, queue)
  redis.call('ZADD', INDEX_ .. queue, unpack(index))
  count(STATS_ .. queue, 'enqueued', #index / 2)
end
if #pending > 0 then
  redis.call('LPUSH', KEYS[1], unpack(pending))
  wake = true
end
if wake then announce(CHANNEL_ .. queue) end
return written

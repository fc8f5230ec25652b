-- Prepended to the scripts that enqueue, after the prelude. The arguments of a new task:
--         id, eta ("" now, seconds since the epoch, or "+seconds" from now), parameters,
--         bytes ("" if parameters is the text itself), priority ("" for 50), longest age in seconds or
--         "", deadline in seconds since the epoch or "", uniqueness hash or "", its life in seconds,
--         "1" if it holds for all of its life and not just until the task is settled,
--         number of further values, and these: field, value, ...

-- beyond(at): the index after the arguments of the task at this index.
local function beyond(at) return at + 11 + tonumber(ARGV[at + 10]) end

-- closed(queue): an error reply if tasks cannot be enqueued, because a key is of another type.
local function closed(queue)
  return mistyped(QUEUES, 'zset', PENDING_TASKS_ .. queue, 'list', SCHEDULED_TASKS_ .. queue, 'zset', TASKS_ .. queue, 'zset',
    STATS_ .. queue, 'hash', PRIORITIES_ .. queue, 'set', EXPIRY_ .. queue, 'zset', KEYS_ .. queue, 'zset')
end

-- batch(queue, clock): tasks to enqueue together. finish makes them visible.
local function batch(queue, clock)
  return {
    queue = queue, clock = clock, pending = {}, index = {}, wake = false,
    first = redis.call('ZRANGE', SCHEDULED_TASKS_ .. queue, 0, 0, 'WITHSCORES')[2],
  }
end

-- enqueue(b, at): adds the task whose arguments begin there to a batch, unless its ID exists, so that a repeat is safe,
-- or another task holds its uniqueness. Returns 1 (written), 0 (existed), or the ID that holds its uniqueness.
local function enqueue(b, at)
  local id, eta, parameters, bytes, priority, age, deadline, unique, life, whole = unpack(ARGV, at, at + 9)
  local queue, clock, key = b.queue, b.clock, TASK_ .. id
  if redis.call('EXISTS', key) == 1 then return 0 end
  local other = unique ~= '' and owner(queue, unique, id, whole == '1')
  if other then return other end
  if string.sub(eta, 1, 1) == '+' then eta = after(clock, string.sub(eta, 2)) end
  local later = eta ~= '' and tonumber(eta) > tonumber(clock)
  local fields = {
    'status', later and 'scheduled' or 'pending', 'queue', queue, 'parameters', parameters,
    'created', clock, 'updated', clock, 'run', PLAIN,
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
  for i = at + 11, beyond(at) - 1, 2 do
    add(ARGV[i], ARGV[i + 1])
    if ARGV[i] == 'key' then named = ARGV[i + 1] end
  end
  if #fields > 12 then fields[12] = '0' end
  -- Redis refuses the first write of enqueue.lua at maxmemory: then nothing is written at all.
  redis.call('HSET', key, unpack(fields))
  redis.call('UNLINK', BYTES_ .. id, LOG_ .. id, ATTEMPTS_ .. id) -- of a task that another client deleted
  if bytes ~= '' then redis.call('HSET', BYTES_ .. id, 'parameters', bytes) end
  if unique ~= '' then
    redis.call('SET', UNIQUE_ .. queue .. '_' .. unique, id, 'EX', life)
    redis.call('ZADD', KEYS_ .. queue, 0, 'U' .. unique .. ' ' .. id)
  end
  if named then redis.call('ZADD', KEYS_ .. queue, 0, 'K' .. redis.sha1hex(named) .. ' ' .. id) end
  if expires ~= '' then redis.call('ZADD', EXPIRY_ .. queue, expires, id) end
  if later then
    redis.call('ZADD', SCHEDULED_TASKS_ .. queue, eta, id)
    if not b.first or tonumber(eta) < tonumber(b.first) then b.first, b.wake = eta, true end
  elseif priority ~= '' then
    push(queue, id, priority, 'LPUSH')
    b.wake = true
  else
    b.pending[#b.pending + 1] = id
  end
  b.index[#b.index + 1] = clock
  b.index[#b.index + 1] = id
  return 1
end

-- finish(b): makes the tasks of a batch wait, and wakes the listeners.
local function finish(b)
  if #b.index > 0 then
    redis.call('ZINCRBY', QUEUES, 0, b.queue)
    redis.call('ZADD', TASKS_ .. b.queue, unpack(b.index))
    count(STATS_ .. b.queue, 'enqueued', #b.index / 2)
  end
  if #b.pending > 0 then
    redis.call('LPUSH', PENDING_TASKS_ .. b.queue, unpack(b.pending))
    b.wake = true
  end
  if b.wake then announce(CHANNEL_ .. b.queue) end
end

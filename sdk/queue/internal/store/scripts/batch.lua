-- The functions that make tasks, for enqueue.lua, settle.lua and others. They are declared like the functions of
-- prelude.lua. The arguments of a new task:
--         id, parameters, number of further values, and these values: name, value, ... The names are fields of the
--         task's hash, and these options:
--           eta       when the task is due, in seconds since the epoch, or "+SECONDS" from now
--           bytes     the parameters, if the argument parameters is only a marker for them
--           life      seconds for which the task's uniqueness (field unique) lasts. With the field unique_for, it lasts
--                     that long even if the task is finished
--           given     "1" if the producer chose the ID, so that there may have been an earlier task with this ID;
--                     "SECONDS DIGEST" if the ID is also to be remembered, with a digest of the parameters. If there is
--                     a given, it is the last name
--           when      complete, ended, any or failed: the condition on the dependencies under which the task runs. If
--                     there is a when, it is the first name
--           after     the IDs of the dependencies, separated by spaces
--           open      "1" if dependencies can be added later
--           fair      "WEIGHT KEY" of the fairness key, and lane "MAX KEY" of the concurrency key; both are fields, too
--           report    the name of the list that gets the ID when the task has ended

-- beyond(at): the index after the arguments of the task whose arguments begin at this index.
local function beyond(at) return at + 3 + tonumber(ARGV[at + 2]) end

-- options(at): a table, by name, of the further values of the task whose arguments begin at this index.
local function options(at)
  local o = {}
  for i = at + 3, beyond(at) - 1, 2 do o[ARGV[i]] = ARGV[i + 1] end
  return o
end

-- The options that are not stored as fields of the hash.
local NOT_STORED = { eta = true, bytes = true, life = true, given = true, when = true, after = true, open = true,
  report = true }

-- afterplain(at): returns beyond(at) if the task has no options, or only the option given; else false.
local function afterplain(at)
  local n = ARGV[at + 2]
  return n == '0' and at + 3 or n == '2' and ARGV[at + 3] == 'given' and at + 5
end

-- refuses(queue, plain): an error reply if tasks cannot be enqueued or would not be reserved, because a key has the
-- wrong type; else nil. plain says that only tasks without options are to be enqueued.
local function refuses(queue, plain)
  return mistyped(QUEUES, 'zset', PENDING_TASKS_ .. queue, 'list', TASKS_ .. queue, 'zset', STATS_ .. queue, 'hash',
    SCHEDULED_TASKS_ .. queue, 'zset', PRIORITIES_ .. queue, 'set', EXPIRY_ .. queue, 'zset') or
    not plain and mistyped(KEYS_ .. queue, 'zset', BLOCKED_ .. queue, 'zset', COMPLETE_TASKS_ .. queue, 'list', FAILED_TASKS_ .. queue, 'list')
end

-- sampled(list, length, range, most, prefix): the number of entries of a list or set, and the bytes of their parameters,
-- estimated as weigh describes it. length and range are the commands; prefix is that of the hashes of the entries' last
-- words.
local function sampled(list, length, range, most, prefix)
  length = redis.pcall(length, list)
  if type(length) ~= 'number' or length == 0 then return 0, 0 end
  local ids = most > 0 and redis.call(range, list, 0, length > most and most / 2 - 1 or -1) or {}
  for _, id in ipairs(most > 0 and length > most and redis.call(range, list, -most / 2, -1) or {}) do ids[#ids + 1] = id end
  local seen = 0
  for _, id in ipairs(ids) do
    id = string.match(id, '%S+$')
    local size = redis.pcall('HSTRLEN', prefix .. id, 'parameters')
    if type(size) == 'number' then seen = seen + math.max(size, size < 100 and prefix == TASK_ and companion(id, 'parameters') or 0) end
  end
  return length, #ids > 0 and seen * length / #ids or 0
end

-- weigh(queue, most): the number of waiting tasks of a queue, and the bytes of their parameters. The bytes are those of
-- up to most tasks of each list, the newest and the oldest, times the length of the list by their number.
local function weigh(queue, most)
  local sum, bytes = 0, 0
  local function add(list, length, range)
    local n, size = sampled(list, length, range, most, TASK_)
    sum, bytes = sum + n, bytes + size
  end
  local lists, fair = pendinglists(queue)
  for _, list in ipairs(lists) do
    add(list, 'LLEN', 'LRANGE')
    if fair[list] then add((fairset(queue, fair[list])), 'ZCARD', 'ZRANGE') end
  end
  add(SCHEDULED_TASKS_ .. queue, 'ZCARD', 'ZRANGE')
  add(BLOCKED_ .. queue, 'ZCARD', 'ZRANGE')
  add(LINE_ .. queue, 'ZCARD', 'ZRANGE')
  return sum, bytes
end

-- hoard(clock, most, size, new, bytes, asks): the number of waiting tasks of the tenant, and the bytes of their parameters, if
-- new tasks came. The field "waiting" of USED has what waited when it was last counted, and what came since, but not
-- what left; so the sums are too high, never too low. If they exceed most or size (nil: no quota), hoard counts again,
-- 500 queues in a call. It does not count again before a millisecond has passed for each queue that it counted. The field
-- is: tasks and bytes that were counted; that came since; the time of the count; the number of queues of the count under
-- way, their tasks and bytes, and what came since it began.
local function hoard(clock, most, size, new, bytes, asks) -- rare
  local w, before = {}, redis.call('HGET', USED, 'waiting') or ''
  for number in string.gmatch(before, '%S+') do w[#w + 1] = tonumber(moment(number, '0')) end
  local unknown = #w ~= 10
  if unknown then w = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } end
  local function exceeds()
    return most and w[1] + w[3] + new > most or size and w[2] + w[4] + bytes > size
  end
  local age, queues = clock - w[5], tonumber(redis.pcall('ZCARD', QUEUES)) or 0
  if unknown or w[6] > 0 or exceeds() and (age < 0 or age >= math.min(1, queues / 1000)) then
    local names = redis.pcall('ZRANGE', QUEUES, w[6], w[6] + 499)
    for _, queue in ipairs(names) do
      local n, b = weigh(queue, size and math.max(2, 2 * math.floor(200 / #names)) or 0)
      w[7], w[8] = w[7] + n, w[8] + b
    end
    if w[6] == 0 then -- publications that wait for their tasks
      local n, b = sampled(PUBLISHING, 'ZCARD', 'ZRANGE', size and 20 or 0, PUBLICATION_)
      w[7], w[8] = w[7] + n, w[8] + b
    end
    w[6] = w[6] + 500
    if #names < 500 then w = { w[7], w[8], w[9], w[10], clock, 0, 0, 0, 0, 0 } end
  end
  local tasks, weight = w[1] + w[3], w[2] + w[4]
  local fits = not exceeds()
  if fits and not asks then
    for i = 3, 9, 6 do w[i], w[i + 1] = w[i] + new, w[i + 1] + bytes end
    if w[6] == 0 then w[9], w[10] = 0, 0 end
  end
  for i, number in ipairs(w) do w[i] = string.format(i == 5 and '%.6f' or '%.0f', number) end
  redis.pcall('HSET', USED, 'waiting', table.concat(w, ' '))
  return fits, tasks, weight
end

-- admit(mark, new, bytes, clock, times, asks): an error reply if a quota of the tenant refuses new tasks whose parameters have so
-- many bytes; else nil, and they count. mark is the field ".." of LIMITS, or false. times is for children of a task that
-- completes: as many times the quotas of what waits, and no rate. If asks is set, the tasks do not come yet, and do not
-- count.
local function admit(mark, new, bytes, clock, times, asks) -- rare
  if not mark or new < 1 or not string.find(mark, 'e', 1, true) then return nil end
  clock = tonumber(clock)
  local h, used = redis.pcall('HMGET', QUOTAS, 'tasks_waiting', 'bytes_waiting', 'enqueue_rate'), redis.pcall('HMGET', USED, 'enqueue_rate', 'waiting')
  if h.err or used.err then return mistyped(QUOTAS, 'hash', USED, 'hash') or h.err and h or used end
  local most, size = tonumber(h[1] or ''), tonumber(h[2] or '')
  if times then most, size = most and most * times, size and size * times end
  local n, step, burst, full, cut
  if h[3] and not times then n, step, burst, full, cut = tokens(h[3], used[1], clock, 1000) end
  local need = math.min(new, burst or 0) -- more than the burst passes when the bucket is full
  if n and n < need then
    if cut then redis.pcall('HSET', USED, 'enqueue_rate', string.format('%.6f', full)) end
    return over('enqueue_rate', new, h[3], full - (burst - need) * step - clock, new)
  end
  local fields = {} -- of USED, written together
  if most or size then
    -- The usual case, in few steps: no count is under way, and none is needed.
    local a, b, c, d, rest = string.match(used[2] or '', '^(%d+) (%d+) (%d+) (%d+) (%S+ 0 .*)$')
    local fits, tasks, weight = rest and a + c + new <= (most or math.huge) and b + d + bytes <= (size or math.huge)
    if fits and not asks then
      fields = { 'waiting', string.format('%s %s %.0f %.0f %s', a, b, c + new, d + bytes, rest) }
    elseif not fits then
      fits, tasks, weight = hoard(clock, most, size, new, bytes, asks)
    end
    if not fits and most and tasks + new > most then return over('tasks_waiting', tasks, h[1], 1, new) end
    if not fits then return over('bytes_waiting', weight, h[2], 1, new, bytes) end
  end
  if n and not asks then fields[#fields + 1], fields[#fields + 2] = 'enqueue_rate', string.format('%.6f', full + new * step) end
  if #fields > 0 then redis.call('HSET', USED, unpack(fields)) end
end

-- crowded(queue, text, new): an error reply if a queue would exceed its limit with new tasks, else nil; and how many of
-- its oldest tasks must be dropped for them. text is the queue's field of LIMITS: "N", or "N drop".
local function crowded(queue, text, new) -- rare
  local limit, drops = string.match(text or '', '^(%d+%.?%d*) ?(%l*)$')
  limit = tonumber(limit or '')
  if not limit or new == 0 then return nil, 0 end
  local is = stock(queue)
  local much = is + new - limit
  if much <= 0 then return nil, 0 end
  local listed = 0 -- a task with a fairness or a concurrency key is not dropped
  for _, list in ipairs(pendinglists(queue)) do listed = listed + redis.call('LLEN', list) end
  if drops == 'drop' and new <= limit and much <= listed then
    return mistyped(FAILED_TASKS_ .. queue, 'list'), much
  end
  if redis.call('EXISTS', STATS_ .. queue) == 1 then redis.pcall('HINCRBY', STATS_ .. queue, 'refused', new) end
  local why = new > limit and string.format(', and %d come together', new) or
    drops == 'drop' and ', and drops no scheduled tasks, nor those with a fairness or concurrency key' or ''
  return redis.error_reply(string.format('QUEUEFULL queue "%s" holds %d waiting tasks and may hold %d%s', queue, is, limit, why))
end

-- drop(queue, n, clock): makes room for new tasks: the oldest n pending tasks fail, those of the lowest priority first.
-- It begins with a write that Redis refuses at maxmemory, because the script is to be refused then.
local function drop(queue, n, clock) -- rare
  if n < 1 then return end
  redis.call('ZADD', QUEUES, 'NX', '0', queue)
  local lists, full = pendinglists(queue), false
  for i = #lists, 1, -1 do
    local id = n > 0 and redis.call('RPOP', lists[i])
    while id do
      n = n - 1
      local status = redis.pcall('HGET', TASK_ .. id, 'status')
      if status == 'pending' then
        full = fail(queue, id, clock, 'dropped', describe('dropped', 'the queue was full, and a newer task came')) or full
      end
      id = n > 0 and redis.call('RPOP', lists[i])
    end
  end
  if full then retain(8) end
end

-- limited(list, bytes, clock, asks): an error reply if a pause, the limit of a queue or a quota of the tenant refuses new
-- tasks, else nil; then queues that drop their oldest tasks have room. list has a table for each queue: queue is its
-- name, new the number of its new tasks. bytes is the size of a task's parameters. If asks is set, the tasks do not come
-- yet.
local function limited(list, bytes, clock, asks) -- rare
  local names, all = {}, 0
  for i, one in ipairs(list) do names[i], all = one.queue, all + one.new end
  if all == 0 then return nil end
  local limits, much = redis.pcall('HMGET', LIMITS, '..', unpack(names)), {}
  if limits.err then return limits end
  for i, one in ipairs(list) do
    local bad = shut(limits[1], one.queue)
    if not bad then bad, much[i] = crowded(one.queue, limits[i + 1], one.new) end
    if bad then return bad end
  end
  local bad = admit(limits[1], all, all * bytes, clock, nil, asks)
  if bad or asks then return bad end
  for i, one in ipairs(list) do drop(one.queue, much[i], clock) end
end

-- batch(queue, clock, instead, rule): an empty batch, for tasks that are enqueued together. finish makes the tasks
-- visible. rule is the queue's field in LIMITS, or false; if it is missing, batch reads it.
-- If task ID is not enqueued because another task holds its uniqueness, instead[ID] is that other task, and dependents
-- of ID wait for it. Several batches can share one table instead.
local function batch(queue, clock, instead, rule)
  if rule == nil then rule = redis.pcall('HGET', LIMITS, RULE .. queue) end
  return { queue = queue, clock = clock, pending = {}, index = {}, born = {}, instead = instead or {}, wake = false,
    rule = type(rule) == 'string' and rule }
end

-- clear(id): removes the data of an earlier task with this ID, which another client left when it deleted that task.
-- Dependents that do not know of the end of the earlier task then wait for the new one.
local function clear(id)
  redis.pcall('UNLINK', BYTES_ .. id, LOG_ .. id, ATTEMPTS_ .. id, AFTER_ .. id)
  if redis.pcall('EXISTS', CHILDREN_ .. id) == 1 then
    redis.pcall('ZREM', ENDED, id)
    redis.call('HSET', TASK_ .. id, 'awaited', '1')
  end
end

-- withoptions(b): makes a function (at, key) that adds a task with options to the batch, and returns what enqueue
-- returns. The function is made once per batch, because making it executes all declarations that options need.
local function withoptions(b) -- rare
  return function(at, key)
    local id, o, queue, clock = ARGV[at], options(at), b.queue, b.clock
    local other = o.unique and owner(queue, o.unique, id, o.unique_for)
    if other then
      b.instead[id] = other
      return '=' .. other
    end
    local eta = o.eta
    if eta and string.sub(eta, 1, 1) == '+' then eta = after(clock, string.sub(eta, 2)) end
    local later = eta and tonumber(eta) > tonumber(clock)
    local lane = o.lane or b.rule and ruled(b.rule, o)
    local fields = {
      'status', (later or o.when) and 'scheduled' or 'pending', 'queue', queue, 'parameters', ARGV[at + 1],
      'created', clock, 'updated', clock, 'run', PLAIN,
    }
    local function add(field, value)
      fields[12] = '0'
      fields[#fields + 1] = field
      fields[#fields + 1] = value
    end
    if o.when then fields[12] = '0' end -- the task has more fields than a plain one
    if later then add('eta', eta) end
    local expires = o.deadline
    if o.max_age and not o.when then
      local old = after(later and eta or clock, o.max_age)
      if not expires or tonumber(old) < tonumber(expires) then expires = old end
    end
    if expires then add('expires', expires) end
    for name, value in pairs(o) do
      if not NOT_STORED[name] then add(name, value) end
    end
    if lane and not o.lane then add('lane', lane) end
    redis.call('HSET', key, unpack(fields))
    if o.given then clear(id) end
    if o.report then
      redis.call('HSET', key, 'awaited', '1')
      redis.pcall('RPUSH', CHILDREN_ .. id, REPORT .. o.report)
    end
    if o.bytes then redis.call('HSET', BYTES_ .. id, 'parameters', o.bytes) end
    if o.unique then redis.call('SET', UNIQUE_ .. queue .. '_' .. o.unique, id, 'EX', o.life) end
    if o.key then redis.call('ZADD', KEYS_ .. queue, 0, 'K' .. redis.sha1hex(o.key) .. ' ' .. id) end
    if expires then redis.call('ZADD', EXPIRY_ .. queue, expires, id) end
    if o.parent then
      local born = b.born[o.parent] or redis.call('EXISTS', TASK_ .. o.parent) == 1 and redis.pcall('LLEN', CHILDREN_ .. o.parent)
      if type(born) == 'number' and born < LISTED_CHILDREN then
        redis.call('RPUSH', CHILDREN_ .. o.parent, id)
        b.born[o.parent] = born + 1
      end
    end
    if o.when then
      b.blocked = o
    elseif later then
      b.first = b.first or redis.call('ZRANGE', SCHEDULED_TASKS_ .. queue, 0, 0, 'WITHSCORES')[2] or eta + 1
      redis.call('ZADD', SCHEDULED_TASKS_ .. queue, eta, id)
      if tonumber(eta) < tonumber(b.first) then b.first, b.wake = eta, true end
    elseif o.priority or o.fair or lane then
      push(queue, id, o.priority, o.fair, lane, 'LPUSH')
      b.wake = true
    else
      b.pending[#b.pending + 1] = id
    end
    return 'new'
  end
end

-- missing(id, other, seen): an error reply if task id cannot wait for task other, else nil. seen contains the tasks
-- that come earlier in the same call. Task id cannot wait if other neither exists nor is in seen, or if other is open,
-- because an open task might get id as a dependency.
local function missing(id, other, seen)
  local d = not seen[other] and dependencies(redis.pcall('HGET', TASK_ .. other, 'after'))
  if seen[other] == 'open' or d and d.state == 'open' then
    return redis.error_reply('DEPENDENCY task ' .. id .. ' cannot wait for task ' .. other .. ', which is open: close that first')
  elseif not seen[other] and endof(other) == 'gone' then
    return redis.error_reply('DEPENDENCY task ' .. id .. ' cannot wait for task ' .. other .. ', which does not exist: enqueue that first')
  end
end

-- depend(id, names, d, instead): makes task id wait for the tasks in names, or for the tasks that replace them in
-- instead, and adds them to the counts of the dependencies d. It leaves out tasks that are dependencies already.
-- Returns the failure message for the last one that has ended without being complete, or ''.
local function depend(id, names, d, instead)
  local why = ''
  for named in string.gmatch(names or '', '%S+') do
    local other = instead[named] or named
    local state = endof(other)
    local is = state == '' and redis.call('HMGET', TASK_ .. other, 'after', 'awaited') or {}
    local theirs = is[1] and dependencies(is[1])
    if theirs and theirs.state == 'open' then state = 'open' end -- other might get id as a dependency
    if redis.call('HSETNX', AFTER_ .. id, other, state == '' and d.of or d.of .. ' ' .. state) == 1 then
      d.of = d.of + 1
      counted(d, '', state)
      -- A task that has ended does not report to further dependents. They are listed only for people, so their number
      -- is bounded.
      local listed = state == '' or state ~= 'gone' and (tonumber(redis.pcall('LLEN', CHILDREN_ .. other)) or 0) < LISTED_CHILDREN
      if listed then redis.pcall('RPUSH', CHILDREN_ .. other, id) end
      if state == '' and is[2] ~= '1' then redis.call('HSET', TASK_ .. other, 'awaited', '1') end
      if state ~= '' and state ~= 'complete' then why = culprit(other, state) end
    end
  end
  return why
end

-- holdback(b, id): makes task id, which was just added to the batch, wait for its dependencies.
local function holdback(b, id) -- rare
  local o, queue = b.blocked, b.queue
  b.blocked = nil
  local d = { state = o.open and 'open' or 'blocked', when = o.when, of = 0, ends = 0, failures = 0 }
  local why = depend(id, o.after, d, b.instead)
  redis.call('HSET', TASK_ .. id, 'after', noted(d))
  redis.call('ZADD', BLOCKED_ .. queue, b.clock, id)
  resolve(queue, id, b.clock, d, why)
end

-- addplain(id, queue, parameters, clock): writes the hash of a task without options.
local function addplain(id, queue, parameters, clock)
  redis.call('HSET', TASK_ .. id, 'status', 'pending', 'queue', queue, 'parameters', parameters, 'created', clock,
    'updated', clock, 'run', PLAIN)
end

-- existing(key, queue, parameters): compares a new task with what exists under its key. Returns 'old' if that is the
-- same task, so that the call is a repeat, and 'taken' if it is a task of another queue or with other parameters, or
-- not a task. A new task without parameters counts as the same as any task of the queue, because that may have got its
-- parameters from a dependency.
local function existing(key, queue, parameters)
  local h = redis.pcall('HMGET', key, 'queue', 'parameters')
  if h.err or h[1] and h[1] ~= '' and h[1] ~= queue or parameters ~= '' and h[2] ~= parameters then return 'taken' end
  return 'old'
end

-- memo(at): the seconds and the digest if the ID of the task whose arguments begin at this index is to be remembered,
-- else nil.
local function memo(at)
  local next = beyond(at)
  if ARGV[next - 2] == 'given' then return string.match(ARGV[next - 1], '^(%d+) (%x+)$') end
end

-- remember(at): remembers the ID of the task whose arguments begin at this index, if that is wanted.
local function remember(at)
  local seconds, digest = memo(at)
  if seconds then redis.call('SET', ONCE_ .. ARGV[at], digest, 'EX', seconds) end
end

-- recalled(at): 'old' or 'taken', as existing returns it, if the ID of the task whose arguments begin at this index is
-- remembered; else nil.
local function recalled(at)
  local seconds, digest = memo(at)
  local mark = seconds and redis.pcall('GET', ONCE_ .. ARGV[at])
  return mark and ((mark == digest or mark == '') and 'old' or 'taken') or nil -- '' is from an earlier version
end

-- used(at): whether the ID of the task whose arguments begin at this index exists or is remembered.
local function used(at) return redis.call('EXISTS', TASK_ .. ARGV[at]) == 1 or recalled(at) end

-- add(b, at): is enqueue, without remembered IDs.
local function add(b, at)
  local id, clock = ARGV[at], b.clock
  local key = TASK_ .. id
  if redis.call('EXISTS', key) == 1 then return existing(key, b.queue, ARGV[at + 1]) end
  if not b.rule and afterplain(at) then
    addplain(id, b.queue, ARGV[at + 1], clock)
    if ARGV[at + 2] ~= '0' then clear(id) end
    b.pending[#b.pending + 1] = id
  else
    b.withoptions = b.withoptions or withoptions(b)
    local answer = b.withoptions(at, key)
    if answer ~= 'new' then return answer end
    if b.blocked then holdback(b, id) end
  end
  b.index[#b.index + 1] = clock
  b.index[#b.index + 1] = id
  return 'new'
end

-- enqueue(b, at): adds the task whose arguments begin at this index to a batch, unless its ID exists or is remembered
-- (so that a repeat is safe) or another task holds its uniqueness. Returns 'new', the result of existing or recalled,
-- or = and the ID of that other task.
local function enqueue(b, at)
  local answer = recalled(at)
  if not answer then
    answer = add(b, at)
    if answer ~= 'taken' then remember(at) end
  end
  return answer
end

-- finish(b): puts the tasks of a batch into the index and the pending list, and wakes the listeners.
local function finish(b)
  if #b.index > 0 then
    redis.call('ZADD', QUEUES, 'NX', '0', b.queue)
    redis.call('ZADD', TASKS_ .. b.queue, unpack(b.index))
    count(STATS_ .. b.queue, 'enqueued', #b.index > 2 and #b.index / 2)
  end
  if #b.pending > 0 then
    redis.call('LPUSH', PENDING_TASKS_ .. b.queue, unpack(b.pending))
    b.wake = true
  end
  if b.wake then announce(CHANNEL_ .. b.queue) end
end

-- unpublishable(id, topic): an error reply if a publication cannot be stored because a key has the wrong type, else
-- nil.
local function unpublishable(id, topic)
  return mistyped(PUBLICATION_ .. id, 'hash', PUBLISHED_ .. id, 'list', PUBLICATIONS_ .. topic, 'zset', TOPICS, 'zset',
    TOPIC_ .. topic, 'hash', PUBLISHING, 'zset')
end

local accepted = 0 -- number of publications that this call has stored

-- accept(at, clock): stores the publication whose arguments begin at this index, in the form of a task's arguments,
-- unless one with its ID exists. Each publication of a call gets a different time, one microsecond later than the one
-- before, because a replay continues from the time of a publication.
local function accept(at, clock)
  local id, o = ARGV[at], options(at)
  if redis.call('EXISTS', PUBLICATION_ .. id) == 1 then return end
  clock = after(clock, accepted / 1000000)
  accepted = accepted + 1
  local fields = { 'parameters', ARGV[at + 1], 'created', clock }
  for name, value in pairs(o) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  redis.call('HSET', PUBLICATION_ .. id, unpack(fields))
  redis.call('ZADD', PUBLISHING, clock, id)
  redis.call('ZADD', PUBLICATIONS_ .. o.topic, clock, id)
  redis.call('ZADD', TOPICS, clock, o.topic)
  count(TOPIC_ .. o.topic, 'published')
end

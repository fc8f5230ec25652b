-- Enqueues and schedules up to 48 tasks of one queue.
-- KEYS    1 pending
-- ARGV    1 clock override  2 queue  then each task, in the form that batch.lua describes
-- RETURNS a word for each task, separated by spaces (a list takes Redis longer): 'new', 'old' or 'taken' (see
--         existing), or = and the ID of the task that holds its uniqueness. The error QUEUEFULL if the queue would
--         exceed its limit; PAUSED if the queue accepts no new tasks; QUOTA if the tenant would exceed a quota (see
--         over); MANYQUEUES if the queue is new and the tenant already has its maximum number of queues;
--         DEPENDENCY if a dependency does not exist, or is open
local queue = ARGV[2]

-- fresh(): the number of the tasks that are new, and the bytes of their parameters.
local function fresh() -- rare
  local new, bytes, seen, at = 0, 0, {}, 3
  while at <= #ARGV do
    local id, o = ARGV[at], options(at)
    local known = seen[id] or used(at) or o.unique and (seen[' ' .. o.unique] or owner(queue, o.unique, id, o.unique_for))
    if not known then new, bytes = new + 1, bytes + #(o.bytes or ARGV[at + 1]) end
    seen[id] = true
    if o.unique then seen[' ' .. o.unique] = true end
    at = beyond(at)
  end
  return new, bytes
end

-- lacking(): an error reply if a dependency of a task is open, or neither exists nor comes before the task in this
-- call; else nil.
local function lacking() -- rare
  local seen, instead, at = {}, {}, 3
  while at <= #ARGV do
    local o, new = options(at), not used(at)
    for other in string.gmatch(new and o.after or '', '%S+') do
      local bad = missing(ARGV[at], instead[other] or other, seen)
      if bad then return bad end
    end
    if new and o.unique then instead[ARGV[at]] = owner(queue, o.unique, ARGV[at], o.unique_for) end
    if new then seen[ARGV[at]] = o.open and 'open' or 'here' end
    at = beyond(at)
  end
end

-- unlanable(rule): an error reply if a task of this call has a concurrency key, or may get one from the queue's rule, and
-- those cannot be counted because a key has the wrong type; else nil.
local function unlanable(rule) -- rare
  local at, lane = 3, rule
  while at <= #ARGV and not lane do
    for i = at + 3, beyond(at) - 1, 2 do lane = lane or ARGV[i] == 'lane' end
    at = beyond(at)
  end
  return lane and mistyped(LANES_ .. queue, 'zset', LINE_ .. queue, 'zset') or nil
end

-- longway(limit, mark, rule, plain, clock): enqueues the tasks in every case that the short way below does not cover: tasks
-- with options, IDs that exist, a limit or a rule of the queue, a pause of accepting, keys of the wrong type.
-- limit, mark and rule are what LIMITS has for the queue and for the tenant. plain says that no task has options. Returns
-- the reply of the script.
local function longway(limit, mark, rule, plain, clock) -- rare
  local bad = refuses(queue, plain) or mistyped(LIMITS, 'hash')
  bad = bad or (rule or not plain) and unlanable(rule)
  local at = 3
  while not bad and not plain and at <= #ARGV do
    if ARGV[at + 3] == 'when' then
      bad = lacking()
      break
    end
    at = beyond(at)
  end
  if not bad and (limit or mark) then
    local new, bytes = fresh()
    bad = limited({ { queue = queue, new = new } }, bytes / math.max(new, 1), clock)
  end
  at = 3
  while not bad and at <= #ARGV do
    if not used(at) then -- only a new task makes the queue
      bad = unlisted(queue)
      break
    end
    at = beyond(at)
  end
  if bad then return bad end
  local tasks, written = batch(queue, clock, nil, rule), {}
  at = 3
  while at <= #ARGV do
    written[#written + 1] = enqueue(tasks, at)
    at = beyond(at)
  end
  finish(tasks)
  return table.concat(written, ' ')
end

local limits, clock = redis.pcall('HMGET', LIMITS, queue, '..', RULE .. queue), now(ARGV[1])
local limit, mark, rule = limits.err or limits[1], limits[2], limits[3]
local ids, texts, index, given, twice, at = {}, {}, {}, {}, false, 3
-- The keys that the short way does not write, but reserve.lua uses.
local keys = { SCHEDULED_TASKS_ .. queue, PRIORITIES_ .. queue, EXPIRY_ .. queue }
while at and at <= #ARGV do
  local n, id = #ids + 1, ARGV[at]
  ids[n], texts[n], index[2 * n - 1], index[2 * n], keys[#keys + 1] = id, ARGV[at + 1], clock, id, TASK_ .. id
  if ARGV[at + 2] ~= '0' then
    twice = twice or given[id]
    given[id] = at
    if memo(at) then keys[#keys + 1] = ONCE_ .. id end
  end
  at = afterplain(at)
end

-- taken(): whether one of the tasks exists or is remembered, or a key that reserve.lua uses has the wrong type.
local function taken() -- rare
  return redis.call('EXISTS', unpack(keys, 4)) > 0 or mistyped(keys[1], 'zset', keys[2], 'set', keys[3], 'zset')
end
if limit or rule or mark and string.find(mark, 'p', 1, true) or not at or twice or redis.call('EXISTS', unpack(keys)) > 0 and taken() then
  return longway(limit, mark, rule, at, clock)
end
-- sized(): admits the tasks, with the bytes of their parameters.
local function sized() -- rare
  local bytes = 0
  for _, text in ipairs(texts) do bytes = bytes + #text end
  return admit(mark, #ids, bytes, clock)
end
local refusal = mark and string.find(mark, 'e', 1, true) and sized()
if refusal then return refusal end

-- The short way takes few commands, and does not check the types of keys. If Redis refuses a command, the commands
-- before it are undone, and the long way reports the error or enqueues the tasks. At maxmemory, Redis refuses the first
-- command already.
for i, id in ipairs(ids) do addplain(id, queue, texts[i], clock) end
local bad
local function write(...)
  local answer = bad or redis.pcall(...)
  if type(answer) == 'table' then bad = answer end
  return answer
end
local added = write('ZADD', QUEUES, 'NX', '0', queue)
-- The long way checks whether the tenant may have one more queue.
if added == 1 and redis.pcall('HEXISTS', LIMITS, '.') == 1 then bad = bad or true end
write('ZADD', TASKS_ .. queue, unpack(index))
local pushed = write('LPUSH', KEYS[1], unpack(ids))
write('HINCRBY', STATS_ .. queue, 'enqueued', #ids > 1 and #ids or '1')
if bad then
  redis.call('UNLINK', unpack(keys, 4))
  if added == 1 then redis.call('ZREM', QUEUES, queue) end
  redis.pcall('ZREM', TASKS_ .. queue, unpack(ids))
  if pushed ~= bad then redis.call('LTRIM', KEYS[1], #ids, '-1') end
  return longway(limit, false, rule, at, clock)
end
for id, at in pairs(given) do
  clear(id)
  remember(at)
end
announce(CHANNEL_ .. queue)
return string.rep('new ', #ids)

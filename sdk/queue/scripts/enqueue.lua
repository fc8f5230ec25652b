-- Enqueues and schedules up to 48 tasks of one queue.
-- KEYS    1 pending
-- ARGV    1 clock override  2 queue  then each task, as batch.lua has it
-- RETURNS a word for each task, with spaces between (a list takes Redis longer): new, old or taken (as existing has it), or = and
--         the ID that holds its uniqueness; the error QUEUEFULL if the queue would become longer than it may, or DEPENDENCY if one
--         is to wait for a task that does not exist, or is open
local queue = ARGV[2]
local limit = redis.pcall('HGET', LIMITS, queue)

-- full(limit): the error reply if the queue would become longer than it may.
local function full(limit) -- rare
  local new, seen, at = 0, {}, 3
  while at <= #ARGV do
    local id, o = ARGV[at], options(at)
    local known = seen[id] or redis.call('EXISTS', TASK_ .. id) == 1 or
      o.unique and (seen[' ' .. o.unique] or owner(queue, o.unique, id, o.unique_for))
    if not known then new = new + 1 end
    seen[id] = true
    if o.unique then seen[' ' .. o.unique] = true end
    at = beyond(at)
  end
  local is = stock(queue)
  if new > 0 and is + new > limit then
    return redis.error_reply(string.format('QUEUEFULL queue %s holds %d waiting tasks and may hold %d', queue, is, limit))
  end
end

-- lacking(): the error reply if a task is to wait for one that does not exist, nor comes before it here, or that is open.
local function lacking() -- rare
  local seen, instead, at = {}, {}, 3
  while at <= #ARGV do
    local o, new = options(at), redis.call('EXISTS', TASK_ .. ARGV[at]) == 0
    for other in string.gmatch(new and o.after or '', '%S+') do
      local bad = missing(ARGV[at], instead[other] or other, seen)
      if bad then return bad end
    end
    if new and o.unique then instead[ARGV[at]] = owner(queue, o.unique, ARGV[at], o.unique_for) end
    if new then seen[ARGV[at]] = o.open and 'open' or 'here' end
    at = beyond(at)
  end
end

-- several(): enqueues more than one task, or one with options, or in a queue with a limit.
local function several() -- rare
  local at = 3
  while at and at <= #ARGV do at = afterplain(at) end
  local bad = refuses(queue, at) or type(limit) == 'table' and (mistyped(LIMITS, 'hash') or limit)
  limit = not bad and tonumber(limit or '')
  bad = bad or limit and full(limit)
  local dependent = 3
  while not bad and not at and dependent <= #ARGV do
    if ARGV[dependent + 3] == 'when' then
      bad = lacking()
      break
    end
    dependent = beyond(dependent)
  end
  if bad then return bad end
  local tasks, written = batch(queue, now(ARGV[1])), {}
  at = 3
  while at <= #ARGV do
    written[#written + 1] = enqueue(tasks, at)
    at = beyond(at)
  end
  finish(tasks)
  return table.concat(written, ' ')
end

if limit or #ARGV > 5 or ARGV[5] ~= '0' then return several() end
-- What most calls bring needs little of what several has Redis make.
local bad = refuses(queue, true)
if bad then return bad end
local id = ARGV[3]
if redis.call('EXISTS', TASK_ .. id) == 1 then return existing(TASK_ .. id, queue, ARGV[4]) end
local clock = now(ARGV[1])
addplain(id, queue, ARGV[4], clock)
redis.call('ZADD', QUEUES, 'NX', '0', queue)
redis.call('ZADD', TASKS_ .. queue, clock, id)
count(STATS_ .. queue, 'enqueued')
redis.call('LPUSH', KEYS[1], id)
announce(CHANNEL_ .. queue)
return 'new'

-- Enqueues and schedules up to 48 tasks of one queue.
-- KEYS    1 pending
-- ARGV    1 clock override  2 queue  then each task, as batch.lua has it
-- RETURNS a word for each task, with spaces between (a list takes Redis longer): new, old (it existed), or = and the
--         ID that holds its uniqueness; the error QUEUEFULL if the queue would become longer than it may, or DEPENDENCY if one
--         is to wait for a task that does not exist, or is open
local queue, at = ARGV[2], 3
while at and at <= #ARGV do at = afterplain(at) end
local limit = redis.pcall('HGET', LIMITS, queue)
local bad = closed(queue, at) or type(limit) == 'table' and (mistyped(LIMITS, 'hash') or limit)
if bad then return bad end

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
  local is = waiting(queue) + redis.call('ZCARD', SCHEDULED_TASKS_ .. queue) + redis.call('ZCARD', BLOCKED_ .. queue)
  if new > 0 and is + new > limit then
    return redis.error_reply(string.format('QUEUEFULL queue %s holds %d waiting tasks and may hold %d', queue, is, limit))
  end
end

-- lacking(): the error reply if a task is to wait for one that does not exist, nor comes before it here, or that is open.
local function lacking() -- rare
  local seen, at = {}, 3
  while at <= #ARGV do
    local o, new = options(at), redis.call('EXISTS', TASK_ .. ARGV[at]) == 0
    for other in string.gmatch(new and o.after or '', '%S+') do
      local bad = missing(ARGV[at], other, seen)
      if bad then return bad end
    end
    if new then seen[ARGV[at]] = o.open and 'open' or 'here' end
    at = beyond(at)
  end
end

limit = tonumber(limit or '')
bad = limit and full(limit)
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

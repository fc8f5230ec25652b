-- Adds dependencies to an open task, and closes the task if asked to. A closed task can run when its dependencies have
-- ended as its "when" asks.
-- KEYS    1 task hash
-- ARGV    1 clock override  2 queue  3 id  4 "1" to close it  then the dependencies
-- RETURNS 'ok', 'gone' (no such task in this queue), or 'closed' (the task is not open, and some of the dependencies
--         are new); the error DEPENDENCY if a dependency does not exist or is open, if there are too many dependencies,
--         or if the task was abandoned: see recheck.lua
local queue, id = ARGV[2], ARGV[3]
local bad = mistyped(KEYS[1], 'hash', AFTER_ .. id, 'hash') or hinder(queue)
if bad then return bad end

if not exists(queue, id) then return 'gone' end
local h = redis.call('HMGET', KEYS[1], 'status', 'after', 'filling')
local d = dependencies(h[2])
local new = {}
for i = 5, #ARGV do
  if redis.call('HEXISTS', AFTER_ .. id, ARGV[i]) == 0 then new[#new + 1] = ARGV[i] end
end
if h[1] == 'failed' and h[3] then
  return redis.error_reply('DEPENDENCY task ' .. id .. ' has failed, because it did not get all tasks to wait for in time: delete it, or enqueue it under another ID')
end
if not d or d.state ~= 'open' or h[1] ~= 'scheduled' then return #new > 0 and 'closed' or 'ok' end
if d.of + #new > 10000 then
  return redis.error_reply('DEPENDENCY task ' .. id .. ' would wait for more than 10000 tasks: let it wait for one that waits for some of them')
end
for _, other in ipairs(new) do
  bad = missing(id, other, {})
  if bad then return bad end
end
local why = depend(id, table.concat(new, ' '), d, {})
if ARGV[4] == '1' then
  d.state = 'blocked'
  redis.call('HDEL', KEYS[1], 'filling')
end
redis.call('HSET', KEYS[1], 'after', noted(d), 'updated', now(ARGV[1]))
resolve(queue, id, now(ARGV[1]), d, why ~= '' and why or 'a task that it waited for failed')
return 'ok'

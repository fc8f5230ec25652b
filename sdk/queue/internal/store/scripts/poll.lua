-- Finds tasks of many queues that no Pub/Sub message has announced. Most queues have no waiting tasks, so one command
-- first checks whether any queue has.
-- KEYS    1 nodes
-- ARGV    1 clock override, then the queues
-- RETURNS {clock, earliest lease end or "", then for each queue with waiting tasks: the queue's place in the arguments,
--         from 1, number of pending tasks, earliest eta or "", earliest expiry or "", and the time of the check that is
--         longest ago among the last checks of the blocked tasks, or ""}
local bad = mistyped(KEYS[1], 'zset')
if bad then return bad end

local out = { now(ARGV[1]), redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or '' }
local keys = {}
for i = 2, #ARGV do
  local n, queue = #keys, ARGV[i]
  keys[n + 1], keys[n + 2] = PENDING_TASKS_ .. queue, SCHEDULED_TASKS_ .. queue
  keys[n + 3], keys[n + 4], keys[n + 5] = EXPIRY_ .. queue, PRIORITIES_ .. queue, BLOCKED_ .. queue
end
if #keys == 0 or redis.call('EXISTS', unpack(keys)) == 0 then return out end

for n = 0, #keys - 5, 5 do
  local pending, scheduled, expiry, priorities, blocked = unpack(keys, n + 1, n + 5)
  if redis.call('EXISTS', pending, scheduled, expiry, priorities, blocked) > 0 then
    local number = n / 5 + 1
    local typed = not mistyped(pending, 'list', priorities, 'set')
    local eta = redis.pcall('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
    local expires = redis.pcall('ZRANGE', expiry, 0, 0, 'WITHSCORES')
    local looked = redis.pcall('ZRANGE', blocked, 0, 0, 'WITHSCORES')
    out[#out + 1] = number
    out[#out + 1] = typed and reservable(ARGV[number + 1]) or 0
    out[#out + 1] = not eta.err and eta[2] or ''
    out[#out + 1] = not expires.err and expires[2] or ''
    out[#out + 1] = not looked.err and looked[2] or ''
  end
end
return out

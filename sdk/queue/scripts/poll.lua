-- The slow look behind Pub/Sub, for many queues at once.
-- KEYS    1 nodes
-- ARGV    1 clock override, then the queues
-- RETURNS {clock, earliest lease end or "", pending of queue 1, earliest eta of queue 1 or "", when the
--         first of its tasks expires or "", ...}
local bad = mistyped(KEYS[1], 'zset')
if bad then return bad end

local out = { now(ARGV[1]), redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or '' }
for i = 2, #ARGV do
  local queue = ARGV[i]
  local typed = not mistyped(PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set')
  local eta = redis.pcall('ZRANGE', SCHEDULED_TASKS_ .. queue, 0, 0, 'WITHSCORES')
  local expires = redis.pcall('ZRANGE', EXPIRY_ .. queue, 0, 0, 'WITHSCORES')
  out[#out + 1] = typed and waiting(queue) or 0
  out[#out + 1] = not eta.err and eta[2] or ''
  out[#out + 1] = not expires.err and expires[2] or ''
end
return out

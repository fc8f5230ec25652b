-- The slow look behind Pub/Sub, for many queues at once.
-- KEYS    1 nodes
-- ARGV    1 clock override  2 prefix of pending lists  3 prefix of scheduled sets, then the queues
-- RETURNS {clock, earliest lease end or "", pending of queue 1, earliest eta of queue 1 or "", ...}
local out = { now(ARGV[1]), redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or '' }
for i = 4, #ARGV do
  local pending = redis.pcall('LLEN', ARGV[2] .. ARGV[i])
  local eta = redis.pcall('ZRANGE', ARGV[3] .. ARGV[i], 0, 0, 'WITHSCORES')
  out[#out + 1] = type(pending) == 'number' and pending or 0
  out[#out + 1] = not eta.err and eta[2] or ''
end
return out

-- Forgets a listener that has left, or that is dead: only when it is in no listener set and holds
-- nothing.
-- KEYS    1 nodes
-- ARGV    1 listener  2 "1" if only one that is condemned, then the queues that it may have served
-- RETURNS 1 if it was forgotten, 0 if something of it is left
local bad = mistyped(KEYS[1], 'zset')
if bad then return bad end

local lease = redis.call('ZSCORE', KEYS[1], ARGV[1])
if ARGV[2] == '1' and lease and tonumber(lease) > 0 then return 0 end
for i = 3, #ARGV do
  local queue = ARGV[i]
  local listens = redis.pcall('SISMEMBER', LISTENERS_ .. queue, ARGV[1])
  local holds = redis.pcall('LLEN', RESERVED_ .. queue .. '_' .. ARGV[1])
  if listens == 1 or type(holds) == 'number' and holds > 0 then return 0 end
end
redis.call('ZREM', KEYS[1], ARGV[1])
if ARGV[2] == '1' and redis.pcall('HEXISTS', NODE_ .. ARGV[1], 'drain') == 1 then
  redis.call('EXPIRE', NODE_ .. ARGV[1], 3600) -- it was told to end: should it wake up, it is told again
else
  redis.call('DEL', NODE_ .. ARGV[1])
end
return 1

-- Removes a condemned listener that holds no tasks.
-- KEYS    1 nodes
-- ARGV    1 listener  2 "1" if it is dead, "" if it has left by itself
-- RETURNS 1 if it was removed, 0 if it is not condemned
local bad = mistyped(KEYS[1], 'zset')
if bad then return bad end

if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '0') > 0 then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
if ARGV[2] == '1' and redis.pcall('HEXISTS', NODE_ .. ARGV[1], 'drain') == 1 then
  redis.call('EXPIRE', NODE_ .. ARGV[1], 3600) -- a listener that comes back must be told again to drain
else
  redis.call('DEL', NODE_ .. ARGV[1])
end
return 1

-- Deletes a finished task with all that belongs to it.
-- KEYS    1 complete  2 failed  3 index  4 task hash  5 bytes  6 log  7 attempts
-- ARGV    1 id  2 done channel  3 queue
-- RETURNS 'ok', 'gone' (no such task in this queue), or the status that forbids it
local bad = mistyped(KEYS[1], 'list', KEYS[2], 'list', KEYS[3], 'zset', KEYS[4], 'hash')
if bad then return bad end

if redis.call('EXISTS', KEYS[4]) == 0 or elsewhere(KEYS[4], ARGV[3]) then return 'gone' end
local status = redis.call('HGET', KEYS[4], 'status') or 'pending'
if status == 'complete' then
  redis.call('LREM', KEYS[1], 1, ARGV[1])
elseif status == 'failed' then
  redis.call('LREM', KEYS[2], 1, ARGV[1])
else
  return status
end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('DEL', KEYS[4], KEYS[5], KEYS[6], KEYS[7])
announce(ARGV[2])
return 'ok'

-- Cancels a task that waits: takes it out of its queue and fails it with the reason cancelled. In a
-- long backlog only the hash is failed; reserve drops the ID when it meets it.
-- KEYS    1 pending  2 scheduled  3 failed  4 stats  5 task hash
-- ARGV    1 clock override  2 id  3 error as JSON  4 done channel  5 longest backlog that is searched
--         6 queue
-- RETURNS 'ok', 'gone' (no such task in this queue), or the status that forbids it: 'reserved', 'started', 'complete', 'failed'
local bad = mistyped(KEYS[1], 'list', KEYS[2], 'zset', KEYS[3], 'list', KEYS[4], 'hash', KEYS[5], 'hash')
if bad then return bad end

if redis.call('EXISTS', KEYS[5]) == 0 or elsewhere(KEYS[5], ARGV[6]) then return 'gone' end
local status = redis.call('HGET', KEYS[5], 'status') or 'pending'
if status ~= 'pending' and status ~= 'scheduled' then return status end
local clock = now(ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[2])
if redis.call('LLEN', KEYS[1]) <= tonumber(ARGV[5]) then redis.call('LREM', KEYS[1], 0, ARGV[2]) end
redis.call('HSET', KEYS[5], 'status', 'failed', 'reason', 'cancelled', 'error', ARGV[3],
  'updated', clock, 'finished_at', clock)
redis.call('LPUSH', KEYS[3], ARGV[2])
redis.call('HINCRBY', KEYS[4], 'failed', 1)
redis.call('HINCRBY', KEYS[4], 'failed:cancelled', 1)
announce(ARGV[4])
return 'ok'

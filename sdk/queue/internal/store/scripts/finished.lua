-- Counts finished tasks of a queue that ended before the tenant got the quota bytes_finished, a block of a list from its new
-- end on. A second call changes nothing.
-- KEYS    1 complete or failed tasks
-- ARGV    1 clock override  2 queue  3 status of the list's tasks  4 maximum number of tasks  5 number of the newest
--         entries to skip
-- RETURNS 5 for the next block, or 0 if there is no more to do. After the last block of the failed tasks, the field "counted"
--         of the queue's statistics says since when its tasks are counted
local queue, status, passed = ARGV[2], ARGV[3], tonumber(ARGV[5])
local bad = mistyped(KEYS[1], 'list', STATS_ .. queue, 'hash', USED, 'hash', QUOTAS, 'hash', FINISHED, 'zset', ENDED, 'zset')
if bad then return bad end

local clock = now(ARGV[1])
local f = finishing(clock)
if not f then return 0 end
local ids, seen = redis.call('LRANGE', KEYS[1], passed, passed + ARGV[4] - 1), {}
for _, id in ipairs(ids) do
  local h = redis.pcall('HMGET', TASK_ .. id, 'status', 'updated', 'foreign', 'kept', 'awaited', unpack(WEIGHED))
  if h[1] == status and h[6] and not h[3] and not seen[id] then
    seen[id] = true -- a task may have an entry from before a retry
    noteuntold(id, h[5], status)
    if not h[4] or not redis.call('ZSCORE', FINISHED, id .. ' ' .. h[4]) then
      local size, at = weightof(id, { unpack(h, 6) }), tonumber(moment(h[2], clock))
      redis.call('HSET', TASK_ .. id, 'kept', charge(f, id, size, at))
    end
  end
end
book(f)
retain(8)
if #ids == tonumber(ARGV[4]) then return passed + #ids end
if status == 'failed' then redis.call('HSET', STATS_ .. queue, 'counted', redis.call('HGET', USED, 'bytes_finished') or '') end
return 0

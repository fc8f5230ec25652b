-- Deletes a block of tasks from one list of finished tasks, oldest first: tasks that are too old, or exceed the number
-- to keep. Tasks that other clients than Quern's enqueued stay, unless 7 is set.
-- KEYS    1 complete or failed tasks
-- ARGV    1 clock override  2 queue  3 status of the list's tasks
--         4 maximum number of tasks to look at  5 maximum age in seconds, or "" for none
--         6 maximum number of tasks to keep, or "" for all  7 "1" to delete the tasks of other clients too
--         8 number of the oldest entries to skip. In the first block, "" stands for the entries that an earlier purge
--         skipped. A * after the number means that the purge looks through the whole list, because most of its entries
--         are stale; it then also skips tasks that are to stay
-- RETURNS {number of deleted tasks, 8 for the next block, 1 if there is no more to do, 1 if advance.lua must be called
--         before the next block, because dependents of a task do not know of its end yet}
local queue, status = ARGV[2], ARGV[3]
local mark = PURGED_ .. queue
local bad = mistyped(KEYS[1], 'list', TASKS_ .. queue, 'zset', KEYS_ .. queue, 'zset', mark, 'hash', STATS_ .. queue, 'hash', ENDED, 'zset')
if bad then return bad end

redis.call('ZREM', TASKS_ .. queue, '') -- removes nothing: at maxmemory, Redis refuses LSET as a first write
local clock = tonumber(now(ARGV[1]))
local age, keep = tonumber(ARGV[5]), tonumber(ARGV[6])
local stand, stale, whole = entries(KEYS[1], queue, status)
local passed, on = string.match(ARGV[8], '^(%d+)(%*?)$')
passed, whole = tonumber(passed), not on and whole or on == '*'
if not passed then
  -- The entries that an earlier purge skipped are skipped again if the last of them is still in the same place.
  local n, id = string.match(redis.call('HGET', mark, status) or '', '^(%d+) (%S+)$')
  passed = id and #n < 10 and redis.call('LINDEX', KEYS[1], -tonumber(n)) == id and tonumber(n) or 0
end
local surplus = keep and stand - keep - passed or 0
local ids = redis.call('LRANGE', KEYS[1], -passed - tonumber(ARGV[4]), -passed - 1)
local gone, forgotten, owned, stay, ended, looked, removed, untold = {}, {}, {}, 0, 0, 0, 0, 0
for i = #ids, 1, -1 do
  local id = ids[i]
  local h = redis.pcall('HMGET', TASK_ .. id, 'status', 'updated', 'run', 'foreign', 'stale', 'awaited', unpack(OWNED))
  local dangling = h.err or h[1] ~= status
  local outdated = status == 'failed' and not h.err and (tonumber(h[5] or '') or 0) > 0 -- from before a retry
  local old = age and not dangling and tonumber(moment(h[2], '0')) < clock - age
  local stays = not dangling and not outdated and not old and surplus <= 0
  if stays and (not whole or removed >= stale) then
    ended = 1
    break
  end
  local ours = h[3] and not h[4] or ARGV[7] == '1'
  if not (dangling or outdated or stays) and ours and noteuntold(id, h[6], status) then
    untold = 1
    break
  end
  looked = looked + 1
  if outdated or dangling then
    if outdated then redis.pcall('HINCRBY', TASK_ .. id, 'stale', -1) end
    gone[#gone + 1] = i
    removed = removed + 1
  elseif stays or not ours then
    stay = stay + 1
  else
    gone[#gone + 1] = i
    forgotten[#forgotten + 1] = id
    owned[#owned + 1] = { unpack(h, 7) }
  end
  if not dangling and not outdated or removed > stale then surplus = surplus - 1 end
end
if stay == 0 and passed == 0 then
  if looked > 0 then redis.call('LTRIM', KEYS[1], 0, -looked - 1) end
elseif #gone > 0 then
  -- Redis removes entries inside a list only by value. So the entries are overwritten with '', and then all '' are
  -- removed.
  for _, i in ipairs(gone) do redis.call('LSET', KEYS[1], i - #ids - 1 - passed, '') end
  redis.call('LREM', KEYS[1], -#gone, '')
end
forget(queue, forgotten, owned)
if #ids < tonumber(ARGV[4]) and looked == #ids then
  ended = 1
  -- No stale entry is left, except perhaps among the entries that were skipped without a look.
  redis.call('HDEL', STATS_ .. queue, 'stale:' .. status)
elseif removed > 0 and stale > 0 then
  count(STATS_ .. queue, 'stale:' .. status, -math.min(removed, stale))
end
passed = passed + stay
if passed == 0 then
  redis.call('HDEL', mark, status)
elseif stay > 0 and not whole then
  local new = redis.call('EXISTS', mark) == 0
  redis.call('HSET', mark, status, passed .. ' ' .. redis.call('LINDEX', KEYS[1], -passed))
  if new then redis.call('EXPIRE', mark, 3600) end -- then all entries are looked at again: some may be stale
end
return { #forgotten, passed .. (whole and '*' or ''), ended, untold }

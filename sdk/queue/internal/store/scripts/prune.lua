-- Deletes old publications of a topic; their tasks stay. A publication whose tasks are not all enqueued yet is not
-- deleted.
-- KEYS    1 publications of the topic
-- ARGV    1 clock override  2 topic  3 maximum number of publications to look at  4 maximum age in seconds, or ""
--         5 maximum number of publications to keep, or ""  6 number of the oldest publications to skip
-- RETURNS {number of deleted publications, 6 for the next block, 1 if there is no more to do}
local bad = mistyped(KEYS[1], 'zset', TOPICS, 'zset', PUBLISHING, 'zset')
if bad then return bad end

local clock, age, keep = tonumber(now(ARGV[1])), tonumber(ARGV[4]), tonumber(ARGV[5])
local passed, most = tonumber(ARGV[6]), tonumber(ARGV[3])
local surplus = keep and redis.call('ZCARD', KEYS[1]) - keep - passed or 0
local list, gone = redis.call('ZRANGE', KEYS[1], passed, passed + most - 1, 'WITHSCORES'), {}
local ended = #list < 2 * most and 1 or 0
for i = 1, #list, 2 do
  local old = age and tonumber(list[i + 1]) < clock - age
  if not old and surplus <= 0 then
    ended = 1
    break
  end
  surplus = surplus - 1
  if redis.call('ZSCORE', PUBLISHING, list[i]) then
    passed = passed + 1
  else
    gone[#gone + 1] = list[i]
  end
end
unpublish(ARGV[2], gone)
return { #gone, passed, ended }

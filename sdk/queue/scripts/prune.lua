-- Forgets old publications of a topic, whose tasks stay. One whose tasks are not all enqueued yet stays.
-- KEYS    1 publications of the topic
-- ARGV    1 clock override  2 topic  3 most publications  4 longest age in seconds, or ""  5 how many may stay, or ""
--         6 how many of the oldest to pass over
-- RETURNS how many were forgotten, and how many stay that are as old
local bad = mistyped(KEYS[1], 'zset', TOPICS, 'zset', PUBLISHING, 'zset')
if bad then return bad end

local clock, age, keep = tonumber(now(ARGV[1])), tonumber(ARGV[4]), tonumber(ARGV[5])
local from = tonumber(ARGV[6])
local surplus = keep and redis.call('ZCARD', KEYS[1]) - keep - from or 0
local list, gone, stay = redis.call('ZRANGE', KEYS[1], from, from + ARGV[3] - 1, 'WITHSCORES'), {}, 0
for i = 1, #list, 2 do
  local old = age and tonumber(list[i + 1]) < clock - age
  if not old and surplus <= 0 then break end
  surplus = surplus - 1
  if not redis.call('ZSCORE', PUBLISHING, list[i]) then
    redis.call('UNLINK', PUBLICATION_ .. list[i], PUBLISHED_ .. list[i])
    gone[#gone + 1] = list[i]
  else
    stay = stay + 1
  end
end
if #gone > 0 then redis.call('ZREM', KEYS[1], unpack(gone)) end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('ZREM', TOPICS, ARGV[2])
  redis.call('UNLINK', TOPIC_ .. ARGV[2])
end
return { #gone, stay }

-- Ends the hold of a key, and makes the tasks that wait for its end due, a block of them. Those of a pause become due in
-- the order in which they were put off.
-- KEYS    1 keys
-- ARGV    1 clock override  2 queue  3 key  4 "" to begin, or where to continue  5 maximum number of tasks to look at
-- RETURNS 4 for the next call, or "" if there is no more to do
local queue, prefix = ARGV[2], 'K' .. redis.sha1hex(ARGV[3])
local bad = mistyped(KEYS[1], 'zset', HELD_ .. queue, 'zset', SCHEDULED_TASKS_ .. queue, 'zset')
if bad then return bad end
redis.call('ZREM', HELD_ .. queue, string.sub(prefix, 2))
local began, from = string.match(ARGV[4], '^(%S+) (%S+)$')
began = began or now(ARGV[1])
local some = redis.call('ZRANGEBYLEX', KEYS[1], from and '(' .. prefix .. ' ' .. from or '[' .. prefix .. ' ', '(' .. prefix .. '!', 'LIMIT', 0, ARGV[5])
for _, member in ipairs(some) do
  from = string.sub(member, #prefix + 2)
  local h = redis.pcall('HMGET', TASK_ .. from, 'status', 'eta', 'held')
  if not h.err and h[1] == 'scheduled' and h[2] and h[2] == h[3] then -- otherwise it waits for something else
    local eta = after(began, math.max(0, tonumber(moment(h[2], '0')) - ENDLESS))
    redis.call('HSET', TASK_ .. from, 'eta', eta)
    redis.call('ZADD', SCHEDULED_TASKS_ .. queue, 'XX', eta, from)
  end
end
if #some == tonumber(ARGV[5]) then return began .. ' ' .. from end
announce(CHANNEL_ .. queue)
return ''

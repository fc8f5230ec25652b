-- Makes the tasks due that were put off: ends the hold of a key, or frees all tasks of a queue that wait for a token of
-- their key's rate, which has changed. They become due in the order in which they were to be due. A block of them in a call.
-- KEYS    1 keys
-- ARGV    1 clock override  2 queue  3 the held key, or "" for all keys of the rate  4 "" to begin, or where to continue
--         5 maximum number of tasks to look at
-- RETURNS 4 for the next call, or "" if there is no more to do
local queue, rate = ARGV[2], ARGV[3] == ''
local prefix = rate and 'K' or 'K' .. redis.sha1hex(ARGV[3]) .. ' '
local bad = mistyped(KEYS[1], 'zset', HELD_ .. queue, 'zset', SCHEDULED_TASKS_ .. queue, 'zset')
if bad then return bad end
if not rate then redis.call('ZREM', HELD_ .. queue, string.sub(prefix, 2, -2)) end
local began, from = string.match(ARGV[4], '^(%S+) (.+)$')
began = began or now(ARGV[1])
local last = string.sub(prefix, 1, -2) .. string.char(string.byte(prefix, -1) + 1)
local some = redis.call('ZRANGEBYLEX', KEYS[1], '(' .. (from or prefix), '(' .. last, 'LIMIT', 0, ARGV[5])
for _, member in ipairs(some) do
  from = member
  local id = string.match(member, '%S+$')
  local key = TASK_ .. id
  local h = redis.pcall('HMGET', key, 'status', 'eta', rate and 'token' or 'held')
  if not h.err and h[1] == 'scheduled' and h[2] and h[2] == h[3] then -- otherwise it waits for something else
    local due = tonumber(moment(h[2], '0'))
    local eta = after(began, math.max(0, rate and (due - began) / 1000000 or due - ENDLESS))
    if rate then redis.call('HDEL', key, 'token') end
    redis.call('HSET', key, 'eta', eta)
    redis.call('ZADD', SCHEDULED_TASKS_ .. queue, 'XX', eta, id)
  end
end
if #some == tonumber(ARGV[5]) then return began .. ' ' .. from end
announce(CHANNEL_ .. queue)
return ''

-- Checks the holders of the lanes of a queue in which tasks wait. A holder that is gone or has ended, because a Python
-- listener ended it or somebody deleted its key by hand, loses its place, and the next task of the line gets it.
-- KEYS    1 line
-- ARGV    1 clock override, not used  2 queue  3 maximum number of holders and lanes to check
--         4 "" to begin, or where to continue: the lane that was checked last, or the holder
-- RETURNS {number of holders that lost their place, 4 for the next call, or "" if there is no more to do}
local queue, left = ARGV[2], tonumber(ARGV[3])
local bad = mistyped(KEYS[1], 'zset', LANES_ .. queue, 'zset', PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set')
if bad then return bad end

-- dead(id, hash): whether a holder does not use its place in this lane any more.
local function dead(id, hash)
  local h = redis.pcall('HMGET', TASK_ .. id, 'status', 'queue', 'lane')
  return h.err or h[1] ~= 'scheduled' and h[1] ~= 'pending' and h[1] ~= 'reserved' and h[1] ~= 'started' or h[2] ~= queue or
    not h[3] or laneof(h[3]) ~= hash
end

local lost, hash, holder = 0, string.match(ARGV[4], '^(%x+) ?(%S*)$')
while left > 0 do
  if not holder or holder == '' then
    local first = redis.call('ZRANGEBYLEX', KEYS[1], hash and '(' .. hash .. '!' or '-', '+', 'LIMIT', 0, 1)[1]
    if not first then return { lost, '' } end
    hash = string.match(first, '^%S+')
  end
  local from = holder and holder ~= '' and '(' .. hash .. ' ' .. holder or '[' .. hash .. ' '
  local some = redis.call('ZRANGEBYLEX', LANES_ .. queue, from, '(' .. hash .. '!', 'LIMIT', 0, left)
  for _, member in ipairs(some) do
    holder = string.sub(member, #hash + 2)
    if dead(holder, hash) then lost = lost + redis.call('ZREM', LANES_ .. queue, member) end
  end
  if #some < left then
    letin(queue, hash)
    holder = ''
  end
  left = left - #some - 1
end
return { lost, hash .. ' ' .. holder }

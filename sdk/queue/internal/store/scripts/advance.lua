-- Reports the ends of tasks to their dependents, and adds those with a report to its list. If a task has more dependents
-- than one call handles, the next call continues with the rest. When all are told, forgets the oldest finished tasks if they
-- have more bytes than the quota bytes_finished allows.
-- KEYS    1 ended
-- ARGV    1 clock override  2 maximum number of dependents in this call
-- RETURNS {number of dependents looked at, 1 if there is more to do, clock, "", ""}
local bad = mistyped(KEYS[1], 'zset')
if bad then return bad end

local clock, left, looked = now(ARGV[1]), tonumber(ARGV[2]), 0
while left > 0 do
  local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  local id, note = first[1], math.max(0, -tonumber(first[2] or '0'))
  if not id then
    local more = looked < 5 and retain(40) or looked >= 5 and redis.call('EXISTS', FINISHED) == 1
    return { looked, more and 1 or 0, clock, '', '' }
  end
  local code = note % 4
  local told = (note - code) / 4
  redis.call('ZREM', KEYS[1], id)
  local dependents = redis.pcall('LRANGE', CHILDREN_ .. id, told, told + left - 1)
  if dependents.err then dependents = {} end
  local state = code == 2 and 'complete' or code == 1 and 'failed' or endof(id)
  for _, other in ipairs(dependents) do
    local list = string.sub(other, 1, #REPORT) == REPORT and string.sub(other, #REPORT + 1)
    if list then
      redis.pcall('XADD', REPORTS_ .. list, '*', 'task', id)
    else
      tell(other, id, state, clock)
    end
  end
  if #dependents == left then
    redis.call('ZADD', KEYS[1], string.format('%d', -4 * (told + left) - code), id)
  else
    local is = endof(id)
    if is == 'gone' then
      redis.call('UNLINK', CHILDREN_ .. id)
    elseif is ~= '' then
      redis.call('HSET', TASK_ .. id, 'awaited', TOLD)
    end
  end
  looked = looked + #dependents
  left = left - #dependents - 1
end
return { looked, math.min(1, redis.call('EXISTS', KEYS[1], FINISHED)), clock, '', '' }

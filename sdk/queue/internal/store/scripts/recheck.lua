-- Checks the dependencies of blocked tasks, beginning with the task whose last check is longest ago. It finds ends that
-- no script has reported, because a Python listener ended the dependency, or somebody deleted its key by hand.
-- KEYS    1 blocked
-- ARGV    1 clock override  2 queue  3 maximum number of dependencies to check
--         4 minimum number of seconds between two checks of a task
--         5 the task to continue with, or ""  6 the cursor to continue from
-- RETURNS {number of tasks checked, 1 if there is more to do, clock, 5 for the next call, 6 for the next call}
local queue, most = ARGV[2], tonumber(ARGV[3])
local bad = mistyped(KEYS[1], 'zset') or hinder(queue)
if bad then return bad end

local clock = now(ARGV[1])
local id, cursor, left, looked = ARGV[5], ARGV[6], most, 0

-- whole(id): if dependencies are missing in the task's hash of dependencies, counts them as gone. A second call changes
-- nothing.
local function whole(id)
  local d = dependencies(redis.call('HGET', TASK_ .. id, 'after'))
  local lost = d and d.of - redis.call('HLEN', AFTER_ .. id) or 0
  if lost <= 0 then return end
  local before = noted(d)
  d.ends, d.failures = lost, lost
  local places = redis.call('HGETALL', AFTER_ .. id)
  for i = 2, #places, 2 do counted(d, '', string.match(places[i], '^%d+ ?(%l*)$') or '') end
  if noted(d) == before then return end
  redis.call('HSET', TASK_ .. id, 'after', noted(d))
  resolve(queue, id, clock, d, 'what it waited for is not known any more')
end

-- abandoned(id): fails a task whose producer died before it had added all dependencies. Returns true if it did.
local function abandoned(id)
  local h = redis.call('HMGET', TASK_ .. id, 'filling', 'updated')
  if not h[1] or tonumber(moment(h[2], '0')) > tonumber(clock) - 60 then return end
  redis.call('ZREM', KEYS[1], id)
  fail(queue, id, clock, 'dependency', describe('dependency', 'its producer ended before it had named all tasks to wait for: enqueue it anew'))
  return true
end

while left > 0 do
  if id == '' then
    id, cursor = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', after(clock, -tonumber(ARGV[4])), 'LIMIT', 0, 1)[1], '0'
    if not id then return { looked, 0, clock, '', '' } end
    local status = redis.pcall('HGET', TASK_ .. id, 'status')
    if status == 'scheduled' and not mistyped(AFTER_ .. id, 'hash') then
      redis.call('ZADD', KEYS[1], clock, id)
      if abandoned(id) then id = '' else whole(id) end
    else
      redis.call('ZREM', KEYS[1], id)
      id = ''
    end
    looked, left = looked + 1, left - 1
  end
  if id ~= '' then
    local page = redis.call('HSCAN', AFTER_ .. id, cursor, 'COUNT', most)
    for i = 1, #page[2], 2 do
      local other = page[2][i]
      if string.find(page[2][i + 1], '^%d+$') then
        local state = endof(other)
        if state ~= '' then tell(id, other, state, clock) end
      end
    end
    left, cursor = left - #page[2] / 2, page[1]
    if cursor == '0' then id = '' end
  end
end
return { looked, 1, clock, id, cursor }

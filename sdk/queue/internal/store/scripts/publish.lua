-- Publishes to a topic: keeps the publication, unless one of its ID is kept, and enqueues one task for each subscriber, all in
-- one call. If they are too many for one call, others follow, each behind the tasks that there are.
-- KEYS    1 publication
-- ARGV    1 clock override  2 topic  3 generation of the subscriptions by which the subscribers were chosen  4 number of
--         subscribers  5 "" if it is new, - if it was accepted before and they are chosen now, or how many of them have had
--         their turn  6 how many have had it then
--         7 what stands for the parameters in a task, if it is not UTF-8 text, or ""  8... the publication, as accept has it
--         if they are chosen now, the ID of each subscription; then each task: queue, and what batch.lua has, without parameters; "bytes", if 7
--         is not "", is the first of its values, without the bytes
-- RETURNS new, or, and nothing was written: old, accepted (it is kept, without subscribers); each with the number of subscribers
--         and how many have had their turn, and other if 5 is "" and what is kept has another payload or attributes. Or, and
--         nothing was written: stale (the subscriptions have changed), gone, or elsewhere and the topic that the ID was published
--         to; the error QUEUEFULL
local clock, topic, from, to, id = now(ARGV[1]), ARGV[2], ARGV[5], ARGV[6], ARGV[8]
local bad = unpublishable(id, topic)
if bad then return bad end

local h = redis.call('HMGET', KEYS[1], 'topic', 'subscribers', 'tasks', 'parameters', 'attributes')
if h[1] and h[1] ~= topic then return 'elsewhere ' .. h[1] end
if not h[1] and from ~= '' then return 'gone' end
local other = ''
if h[1] and from == '' then
  local attributes = false
  for i = 11, beyond(8) - 1, 2 do
    if ARGV[i] == 'attributes' then attributes = ARGV[i + 1] end
  end
  if h[4] ~= ARGV[9] or h[5] ~= attributes then other = ' other' end
end
if h[2] and h[3] ~= from then return 'old ' .. h[2] .. ' ' .. (h[3] or '0') .. other end
if h[1] and from == '' then return 'accepted 0 0' .. other end
local choice = from == '' or from == '-'
if choice and (redis.call('GET', GENERATION) or '0') ~= ARGV[3] then return 'stale' end

-- Each queue with tasks: how many come, and whether it takes none.
local first = beyond(8) + (choice and tonumber(ARGV[4]) or 0)
local queues, order, at = {}, {}, first
while at <= #ARGV do
  local name = ARGV[at]
  if not queues[name] then
    queues[name] = batch(name, clock)
    queues[name].new, queues[name].bad = 0, refuses(name)
    order[#order + 1] = name
  end
  queues[name].new = queues[name].new + 1
  at = beyond(at + 1)
end
if not h[1] then
  local limited = redis.pcall('HLEN', LIMITS)
  for _, name in ipairs(order) do
    if queues[name].bad then return queues[name].bad end
    local limit = limited ~= 0 and tonumber(redis.call('HGET', LIMITS, name) or '')
    if limit then
      local is = stock(name)
      if is + queues[name].new > limit then
        return redis.error_reply(string.format('QUEUEFULL queue "%s" holds %d waiting tasks and may hold %d', name, is, limit))
      end
    end
  end
  accept(8, clock)
end

local parameters = h[4] or ARGV[9]
local taken, new = 0, 0
at = first
while at <= #ARGV do
  local b = queues[ARGV[at]]
  if not b.bad then -- else the publication was accepted before: the others get theirs
    taken = taken + 1
    if ARGV[7] == '' then
      ARGV[at + 2] = parameters
    else
      ARGV[at + 2], ARGV[at + 5] = ARGV[7], parameters
    end
    if enqueue(b, at + 1) == 'new' then new = new + 1 end
  end
  at = beyond(at + 1)
end
redis.call('HSET', KEYS[1], 'subscribers', ARGV[4], 'tasks', to)
local refused = tonumber(to) - (tonumber(from) or 0) - taken -- a subscription that was deleted meanwhile has none either
if refused > 0 then count(KEYS[1], 'refused', refused) end
if choice then
  local ids = beyond(8)
  for i = ids, first - 1, 1000 do redis.call('RPUSH', PUBLISHED_ .. id, unpack(ARGV, i, math.min(first - 1, i + 999))) end
  if ARGV[4] == '0' then count(TOPIC_ .. topic, 'dropped') end
end
if to == ARGV[4] then
  redis.call('ZREM', PUBLISHING, id)
else
  redis.call('ZADD', PUBLISHING, clock, id)
end
if new > 0 then count(TOPIC_ .. topic, 'tasks', new) end
for _, name in ipairs(order) do finish(queues[name]) end
return 'new ' .. ARGV[4] .. ' ' .. to

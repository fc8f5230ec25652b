-- Publishes to a topic: stores the publication, unless one with its ID exists, and enqueues a task for each subscriber,
-- all in one call. If there are too many subscribers for one call, further calls enqueue the remaining tasks.
-- KEYS    1 publication
-- ARGV    1 clock override  2 topic  3 generation of the subscriptions among which the subscribers were chosen
--         4 number of subscribers
--         5 "" if the publication is new; "-" if it was accepted before, and its subscribers are chosen now; otherwise
--         the number of subscribers that earlier calls handled
--         6 number of subscribers that are handled after this call
--         7 the marker for the payload in tasks, if the payload is not UTF-8 text, else ""
--         8... the publication, in the form that accept takes; then, if the subscribers are chosen now, the IDs of all
--         subscribers; then for each task: queue, and the task in the form that batch.lua describes, without
--         parameters. If 7 is not "", the first of the task's further values is "bytes", with an empty value
-- RETURNS "WORD SUBSCRIBERS HANDLED". WORD is 'new', or, if nothing was written, 'old' (the publication exists) or
--         'accepted' (it exists, and its subscribers are not chosen yet). " other" follows if 5 is "" and the existing
--         publication has another payload or other attributes. Or, if nothing was written: 'stale' (the subscriptions
--         have changed), 'gone' (the publication does not exist any more), or 'elsewhere' and the topic to which the ID
--         was published. Or the error QUEUEFULL or QUOTA
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

-- queues: for each queue of the tasks, its batch, the number of new tasks, and the error if the queue refuses tasks.
local queues, order = {}, {}
local first = beyond(8) + (choice and tonumber(ARGV[4]) or 0)
local at = first
while at <= #ARGV do
  local name = ARGV[at]
  if not queues[name] then
    queues[name] = batch(name, clock)
    queues[name].new, queues[name].bad = 0, refuses(name)
    order[#order + 1] = queues[name]
  end
  queues[name].new = queues[name].new + 1
  at = beyond(at + 1)
end
if not h[1] then
  for _, b in ipairs(order) do
    if b.bad then return b.bad end
  end
  local refusal = redis.pcall('HLEN', LIMITS) ~= 0 and limited(order, #ARGV[9], clock)
  if refusal then return refusal end
  accept(8, clock)
end

local parameters = h[4] or ARGV[9]
local taken, new = 0, 0
at = first
while at <= #ARGV do
  local b = queues[ARGV[at]]
  if not b.bad then -- for a publication that was stored before, queues that refuse tasks are left out
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
local refused = tonumber(to) - (tonumber(from) or 0) - taken -- includes subscribers that were deleted meanwhile
if refused > 0 then count(KEYS[1], 'refused', refused) end
if choice then
  local ids = beyond(8)
  for i = ids, first - 1, 1000 do redis.call('RPUSH', PUBLISHED_ .. id, unpack(ARGV, i, math.min(first - 1, i + 999))) end
  if ARGV[4] == '0' then count(TOPIC_ .. topic, 'dropped') end
end
local f = to == ARGV[4] and finishing(clock)
if to == ARGV[4] then
  redis.call('ZREM', PUBLISHING, id)
else
  redis.call('ZADD', PUBLISHING, clock, id)
end
if new > 0 then count(TOPIC_ .. topic, 'tasks', new) end
for _, b in ipairs(order) do finish(b) end
if f then
  local size = 1024 + 100 * ARGV[4] + #parameters + redis.call('HSTRLEN', KEYS[1], 'attributes')
  redis.call('HSET', KEYS[1], 'kept', charge(f, id, size, nil, topic))
  book(f)
  retain(8)
end
return 'new ' .. ARGV[4] .. ' ' .. to

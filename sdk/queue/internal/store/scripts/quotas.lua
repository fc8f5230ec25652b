-- Changes quotas of the tenant, with what follows from them: the fields "limits:QUEUE", which name the rates that a queue
-- shares, and the field ".." of LIMITS, which says what kinds of quotas there are. The waiting tasks are counted anew,
-- and queues that wait for fewer running tasks look again. The field "granted:NAME" has what the hosts' file says of a
-- quota. It counts until somebody sets the quota, and again when that is removed. A rate that changes begins with a full
-- bucket.
-- KEYS    1 quotas
-- ARGV    1 maximum number of quotas and queues that share rates  2 "granted" if the quotas are all of the hosts' file, else ""
--         then the name and the value of each quota, "" to remove it
-- RETURNS 'ok' and the queues whose rate of keys has changed, separated by spaces; 'full' if there would be too many, and
--         nothing is changed
local bad = mistyped(KEYS[1], 'hash', LIMITS, 'hash', USED, 'hash', LOGS, 'zset', FINISHED, 'zset')
if bad then return bad end

local quotas, granted, all = {}, {}, redis.call('HGETALL', KEYS[1])
local gone = { 'limits:' } -- one that never exists, because HDEL needs a field
for i = 1, #all, 2 do
  local kind, of = string.match(all[i], '^([^:]+):?(.*)$')
  if kind == 'granted' then
    granted[of] = all[i + 1]
  elseif kind == 'limits' then
    gone[#gone + 1] = all[i]
  else
    quotas[all[i]] = all[i + 1]
  end
end
local changes, changed, buckets = {}, false, {}
local function change(name, value)
  if quotas[name] ~= value and string.find((quotas[name] or '') .. (value or ''), '/', 1, true) then buckets[#buckets + 1] = name end
  changes[name], changed = value or '', true
  quotas[name] = value
end
if ARGV[2] == 'granted' then
  local says = {}
  for i = 3, #ARGV, 2 do says[ARGV[i]] = ARGV[i + 1] end
  local function grant(name, value)
    if value == granted[name] then return end
    if not quotas[name] or quotas[name] == granted[name] then change(name, value) end
    changes['granted:' .. name], changed = value or '', true
  end
  for name in pairs(granted) do grant(name, says[name]) end
  for name, value in pairs(says) do grant(name, value) end
  if not changed then return 'ok' end
else
  for i = 3, #ARGV, 2 do change(ARGV[i], ARGV[i + 1] ~= '' and ARGV[i + 1] or granted[ARGV[i]]) end
end

local names, shared, mark = {}, {}, {}
local marks = { tasks_waiting = 'e', bytes_waiting = 'e', enqueue_rate = 'e', running = 'r', rate = 'r', key_rate = 'r',
  limit = 'r', memory = 'r', fuel_rate = 'r', fuel_day = 'r' }
for name in pairs(quotas) do names[#names + 1] = name end
table.sort(names)
local fields = #names
for _, name in ipairs(names) do
  local kind, of = string.match(name, '^([^:]+):?(.*)$')
  if kind and marks[kind] then mark[marks[kind]] = true end
  local queues = kind == 'limit' and string.match(quotas[name], ' burst %d+ (.+)$')
  for queue in string.gmatch(queues or '', '%S+') do
    if not shared[queue] then fields = fields + 1 end
    shared[queue] = (shared[queue] and shared[queue] .. ' ' or '') .. of
  end
end
if fields > tonumber(ARGV[1]) then return 'full' end

redis.call('HDEL', KEYS[1], unpack(gone)) -- a removal must come first: see renew.lua
for name, value in pairs(changes) do
  if value == '' then redis.call('HDEL', KEYS[1], name) else redis.call('HSET', KEYS[1], name, value) end
end
for queue, of in pairs(shared) do redis.call('HSET', KEYS[1], 'limits:' .. queue, of) end
local others = string.gsub(redis.call('HGET', LIMITS, '..') or '', '[er]', '')
mark = others .. (mark.e and 'e' or '') .. (mark.r and 'r' or '')
if mark == '' then redis.call('HDEL', LIMITS, '..') else redis.call('HSET', LIMITS, '..', mark) end
redis.call('HDEL', USED, 'waiting', unpack(buckets))
local answer = 'ok'
for _, name in ipairs(buckets) do
  local queue = string.match(name, '^key_rate:(.*)$')
  if queue then
    redis.call('UNLINK', KEYRATES_ .. queue)
    answer = answer .. ' ' .. queue
  end
end
if changes.memory == '' then
  local all = redis.call('HGETALL', USED)
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 7) == 'memory:' then redis.call('HDEL', USED, all[i]) end
  end
end
if not quotas.log_bytes then
  redis.call('UNLINK', LOGS)
  redis.call('HDEL', USED, 'log_bytes')
end
if begun(now('')) then
  retain(8)
else
  redis.call('UNLINK', FINISHED)
  redis.call('HDEL', USED, 'bytes_finished')
end
unthrottle(1000)
return answer

-- Changes quotas of the tenant, with what follows from them: the fields "limits:QUEUE", which name the rates that a queue
-- shares, and the field ".." of LIMITS, which says what kinds of quotas there are. The waiting tasks are counted anew,
-- and queues that wait for fewer running tasks look again.
-- KEYS    1 quotas
-- ARGV    1 maximum number of quotas  then the name and the value of each quota, "" to remove it
-- RETURNS {name, value, ...} of all quotas; 'full' if there would be too many, and nothing is changed
local bad = mistyped(KEYS[1], 'hash', LIMITS, 'hash', USED, 'hash')
if bad then return bad end

local quotas, number = {}, 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do quotas[all[i]] = all[i + 1] end
local was = {}
for name in pairs(quotas) do
  if string.sub(name, 1, 7) == 'limits:' then was[#was + 1] = name end
end
for _, name in ipairs(was) do quotas[name] = nil end
for i = 2, #ARGV, 2 do quotas[ARGV[i]] = ARGV[i + 1] ~= '' and ARGV[i + 1] or nil end

local names, shared, mark = {}, {}, {}
local marks = { tasks_waiting = 'e', bytes_waiting = 'e', enqueue_rate = 'e', running = 'r', rate = 'r', key_rate = 'r', limit = 'r' }
for name in pairs(quotas) do names[#names + 1] = name end
if #names > tonumber(ARGV[1]) then return 'full' end
table.sort(names)
for _, name in ipairs(names) do
  local kind, of = string.match(name, '^([^:]+):?(.*)$')
  if kind and marks[kind] then mark[marks[kind]] = true end
  local queues = kind == 'limit' and string.match(quotas[name], ' burst %d+ (.+)$')
  for queue in string.gmatch(queues or '', '%S+') do shared[queue] = (shared[queue] and shared[queue] .. ' ' or '') .. of end
end

redis.call('HDEL', KEYS[1], 'limits:', unpack(was)) -- a removal must come first: see renew.lua
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[i]) else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
for queue, of in pairs(shared) do redis.call('HSET', KEYS[1], 'limits:' .. queue, of) end
local others = string.gsub(redis.call('HGET', LIMITS, '..') or '', '[er]', '')
mark = others .. (mark.e and 'e' or '') .. (mark.r and 'r' or '')
if mark == '' then redis.call('HDEL', LIMITS, '..') else redis.call('HSET', LIMITS, '..', mark) end
redis.call('HDEL', USED, 'waiting')
unthrottle(1000)
local out = {}
for _, name in ipairs(names) do out[#out + 1], out[#out + 2] = name, quotas[name] end
return out

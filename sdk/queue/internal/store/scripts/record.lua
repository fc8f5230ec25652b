-- Keeps the record of a run in place of the task's former record, and deletes the oldest records of the tenant if all
-- together have too many bytes. The caller's run must hold the task or have settled it.
-- KEYS    1 records
-- ARGV    1 listener  2 run, in the form that holder takes  3 id  4 number of the run  5 bytes; "" if the record was too
--         large  6 maximum bytes of all records  7 a word that follows the size in the task, or ""
-- RETURNS 'ok', 'lost' or 'gone'
-- A member of the set is "ID SIZE", scored by its order; '.' comes first, scored by minus the bytes of all. A member
-- stays when its task is deleted.
local records, id, run, size = KEYS[1], ARGV[3], ARGV[4], #ARGV[5]
local key = TASK_ .. id
local bad = mistyped(records, 'zset', key, 'hash', BYTES_ .. id, 'hash')
if bad then return bad end

local hold = holder(key, ARGV[1], ARGV[2])
if hold == 'gone' or hold == 'lost' then return hold end
local function remove(member)
  if redis.call('ZREM', records, member) == 1 then
    redis.call('ZINCRBY', records, string.match(member, '%d+$'), '.')
  end
end
local function member(of, record)
  local bytes = type(record) == 'string' and string.match(record, '^%S+ (%d+)')
  return bytes and of .. ' ' .. bytes
end
local former = member(id, redis.call('HGET', key, 'record'))
if former then remove(former) end
redis.call('HSET', key, 'record', run .. ' ' .. size .. (ARGV[7] ~= '' and ' ' .. ARGV[7] or ''))
if size == 0 then
  redis.call('HDEL', BYTES_ .. id, 'record')
  return 'ok'
end
redis.call('HSET', BYTES_ .. id, 'record', ARGV[5])

local new, last = id .. ' ' .. size, redis.call('ZRANGE', records, -1, -1, 'WITHSCORES')
remove(new) -- of a deleted task with the same ID
redis.call('ZADD', records, math.max(0, tonumber(last[2] or 0)) + 1, new)
local bytes = -redis.call('ZINCRBY', records, -size, '.')
for _ = 1, 100 do
  local old = redis.call('ZRANGE', records, 1, 1)[1]
  if bytes <= tonumber(ARGV[6]) or old == new then break end
  local of, its = string.match(old, '^(%S+) (%d+)$')
  remove(old)
  bytes = bytes - its
  if member(of, redis.pcall('HGET', TASK_ .. of, 'record')) == old then
    redis.call('HDEL', TASK_ .. of, 'record')
    redis.pcall('HDEL', BYTES_ .. of, 'record')
  end
end
return 'ok'

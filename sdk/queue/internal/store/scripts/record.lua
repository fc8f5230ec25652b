-- Keeps the record of a run, and deletes the oldest records of the tenant if all together have too many bytes. The
-- caller's run must hold the task or have settled it.
-- KEYS    1 records
-- ARGV    1 listener  2 run, in the form that holder takes  3 id  4 number of the run  5 bytes; "" if the record was too
--         large  6 maximum bytes of all records
-- RETURNS 'ok', 'lost' or 'gone'
-- An entry of the list is "ID RUN BEFORE SIZE". BEFORE is how many bytes the records before it had together, so the
-- first and the last entry tell the bytes of all. An entry stays when its task is deleted.
local id, run, size = ARGV[3], ARGV[4], #ARGV[5]
local key = TASK_ .. id
local bad = mistyped(KEYS[1], 'list', key, 'hash', BYTES_ .. id, 'hash')
if bad then return bad end

local hold = holder(key, ARGV[1], ARGV[2])
if hold == 'gone' or hold == 'lost' then return hold end
redis.call('HSET', key, 'record', run .. ' ' .. size)
if size == 0 then
  redis.call('HDEL', BYTES_ .. id, 'record')
  return 'ok'
end
redis.call('HSET', BYTES_ .. id, 'record', ARGV[5])

local function entry(at) return string.match(redis.call('LINDEX', KEYS[1], at) or '', '^(%S+) (%S+) (%d+) (%d+)$') end
local _, _, before, last = entry(0)
local begins = (tonumber(before) or 0) + (tonumber(last) or 0)
redis.call('LPUSH', KEYS[1], string.format('%s %s %.0f %d', id, run, begins, size))
for _ = 1, 100 do
  local old, of, first = entry(-1)
  if old and begins + size - tonumber(first) <= tonumber(ARGV[6]) then break end
  if redis.call('LLEN', KEYS[1]) == 1 then break end
  redis.call('RPOP', KEYS[1])
  local has = old and redis.pcall('HGET', TASK_ .. old, 'record')
  if type(has) == 'string' and string.match(has, '^%S+') == of and (old ~= id or of ~= run) then
    redis.call('HDEL', TASK_ .. old, 'record')
    redis.pcall('HDEL', BYTES_ .. old, 'record')
  end
end
return 'ok'

-- Adds to a whole number of 64 bits. Lua's own numbers have 53: Redis adds, and the sum is taken back if it
-- turns out that it may not be, which nobody sees.
-- ARGV    4 key  5 what is added, a decimal  6 quota in bytes
-- RETURNS {'ok', sum}, {'conflict'} (the value is no number), {'limit'} (the sum is none of 64 bits),
--         {'quota', bytes that the bucket holds}, or {'tenant', bytes of all buckets, quota}
local key, delta = ARGV[4], ARGV[5]
local more = sweep(key)
local length = redis.call('HSTRLEN', VALUES, key)
if length > 20 then return { 'conflict' } end -- it need not be read
local old = redis.call('HGET', VALUES, key)
if old and old ~= '0' and not string.find(old, '^%-?[1-9]%d*$') then return { 'conflict' } end

local function negative(number) return string.sub(number, 1, 1) == '-' end

local was, held = old and #key + length or 0, counted() -- while names and values fit together
local added = redis.pcall('HINCRBY', VALUES, key, delta)
if type(added) == 'table' then
  if string.find(added.err, 'overflow', 1, true) then return { 'limit' } end
  if string.find(added.err, 'not an integer', 1, true) then return { 'conflict' } end -- more than 64 bits
  return added
end
local sum = redis.call('HGET', VALUES, key)
local is = #key + #sum
local refusal = refused(held, was, is, ARGV[6], more)
-- miniredis goes round at the end of the numbers, which shows in the sign.
if negative(old or '0') == negative(delta) and negative(sum) ~= negative(delta) then refusal = { 'limit' } end
if refusal then
  if old then redis.call('HSET', VALUES, key, old) else redis.call('HDEL', VALUES, key) end
  return refusal
end
if not old then
  redis.call('ZADD', NAMES, 0, key)
  redis.call('ZREM', EXPIRY, key) -- of one that somebody removed by hand
end
if is ~= was then store(held - was + is) end
return { 'ok', sum }

-- Prepended to every script of this folder. What all of them take:
-- KEYS    1 values  2 names  3 expiry  4 buckets  5 the tenant's quotas  6 what is used of them
-- ARGV    1 clock override in milliseconds, or ""  2 bucket  3 most expired values that are removed at once
-- RETURNS a word, and what belongs to it. All may answer {'again'}: the call is to be repeated, because more
--         has expired than one call removes; nothing else was done, and there is less to do next time.
-- Redis rolls nothing back. So a script that writes has read the first four keys before: one of another type ends it
-- there. What needs memory is written first, where nothing has expired: a Redis that is full refuses that.
-- Plain Lua 5.1 with redis.call and pcall only, so that the scripts run on miniredis too.
local VALUES, NAMES, EXPIRY, BUCKETS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local BUCKET, MOST = ARGV[2], tonumber(ARGV[3])

-- digits(number): a whole number as Redis is to get it: of a bare Lua number it might get an exponent.
local function digits(number) return string.format('%.0f', number) end

local CLOCK = tonumber(ARGV[1])
if not CLOCK then
  local t = redis.call('TIME')
  CLOCK = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- store(total): how many bytes the bucket holds now. One that holds none is no longer listed.
local function store(total)
  if total > 0 then
    redis.call('HSET', BUCKETS, BUCKET, digits(total))
  else
    redis.call('HDEL', BUCKETS, BUCKET)
  end
end

-- counted(): how many bytes the bucket holds, and how many values. Where the three keys do not fit together
-- somebody has written them by hand, or Redis has evicted one: then names and bytes are made anew from the
-- values, which alone takes as long as there are values.
local function counted()
  local total, values = redis.call('HGET', BUCKETS, BUCKET), redis.call('HLEN', VALUES)
  if values == redis.call('ZCARD', NAMES) then
    if values == 0 and not total then return 0, 0 end
    if values > 0 and total and #total < 16 and string.find(total, '^[1-9]%d*$') then return tonumber(total), values end
  end
  redis.call('DEL', NAMES)
  total = 0
  for _, key in ipairs(redis.call('HKEYS', VALUES)) do
    redis.call('ZADD', NAMES, 0, key)
    total = total + #key + redis.call('HSTRLEN', VALUES, key)
  end
  store(total)
  return total, values
end

-- remove(keys): takes values away, with their names, times and bytes. There is at least one key.
local function remove(keys)
  local total = counted()
  for _, key in ipairs(keys) do
    local length = redis.call('HSTRLEN', VALUES, key)
    if redis.call('HDEL', VALUES, key) == 1 then total = total - #key - length end
  end
  redis.call('ZREM', NAMES, unpack(keys))
  redis.call('ZREM', EXPIRY, unpack(keys))
  store(total)
end

-- sweep(key): removes what has expired, the oldest first, and the key's own value in any case. Whether
-- there may be more.
local function sweep(key)
  local due = redis.call('ZRANGEBYSCORE', EXPIRY, '-inf', digits(CLOCK), 'LIMIT', 0, MOST)
  if #due == 0 then return false end
  remove(due)
  if #due < MOST then return false end
  local time = key and redis.call('ZSCORE', EXPIRY, key)
  if time and tonumber(time) <= CLOCK then remove({ key }) end
  return true
end

-- refused(held, was, is, quota, more): the answer to a write after which an entry would have so many bytes
-- instead of so many and the bucket more than its quota, or all buckets more than the tenant's quota kv_bytes;
-- else nil. What does not grow is never refused: a quota that was lowered keeps nobody from making room. Where
-- more may have expired, that comes first.
local function refused(held, was, is, quota, more)
  if is <= was then return nil end
  local over = held - was + is > tonumber(quota) and { 'quota', digits(held) }
  local most = redis.pcall('HGET', KEYS[5], 'kv_bytes')
  if not over and type(most) == 'string' and tonumber(most) then
    local all, sum = redis.call('HGETALL', BUCKETS), 0
    for i = 2, #all, 2 do sum = sum + (tonumber(all[i]) or 0) end
    over = sum - was + is > tonumber(most) and { 'tenant', digits(sum), most }
  end
  if over and more then return { 'again' } end
  if over and over[1] == 'tenant' then redis.pcall('HINCRBY', KEYS[6], 'refused:kv_bytes', 1) end
  return over or nil
end

-- put(key, value, ttl, quota, more): sets a value, for ttl milliseconds unless that is "0".
local function put(key, value, ttl, quota, more)
  local was = 0
  if redis.call('HEXISTS', VALUES, key) == 1 then was = #key + redis.call('HSTRLEN', VALUES, key) end
  local is, held = #key + #value, counted()
  local refusal = refused(held, was, is, quota, more)
  if refusal then return refusal end
  redis.call('HSET', VALUES, key, value)
  if was == 0 then redis.call('ZADD', NAMES, 0, key) end
  if ttl == '0' then
    redis.call('ZREM', EXPIRY, key)
  else
    redis.call('ZADD', EXPIRY, digits(CLOCK + tonumber(ttl)), key)
  end
  store(held - was + is)
  return { 'ok' }
end


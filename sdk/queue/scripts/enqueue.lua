-- Enqueues and schedules up to 1,000 tasks of one queue. An ID whose hash exists already is left
-- as it is, so that a repeat is safe.
-- KEYS    1 queues  2 pending  3 scheduled  4 index  5 stats
-- ARGV    1 clock override  2 queue  3 channel  4 prefix of task hashes  5 prefix of bytes hashes
--         then for each task: id, eta ("" now, seconds since the epoch, or "+seconds" from now),
--         parameters, bytes ("" if parameters is the text itself), number of further values,
--         and these: field, value, ...
-- RETURNS for each task 1 (written) or 0 (existed)
local bad = mistyped(KEYS[1], 'zset', KEYS[2], 'list', KEYS[3], 'zset', KEYS[4], 'zset', KEYS[5], 'hash')
if bad then return bad end

local clock = now(ARGV[1])
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
local written, pending, index = {}, {}, {}
local wake = false
local at = 6
while at <= #ARGV do
  local id, eta, parameters, bytes, extra = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4])
  local key = ARGV[4] .. id
  if redis.call('EXISTS', key) == 1 then
    written[#written + 1] = 0
  else
    if string.sub(eta, 1, 1) == '+' then
      eta = string.format('%.6f', tonumber(clock) + tonumber(string.sub(eta, 2)))
    end
    local later = eta ~= '' and tonumber(eta) > tonumber(clock)
    local fields = {
      'status', later and 'scheduled' or 'pending', 'queue', ARGV[2], 'parameters', parameters,
      'created', clock, 'updated', clock, 'run', '0',
    }
    if later then
      fields[#fields + 1] = 'eta'
      fields[#fields + 1] = eta
    end
    for i = at + 5, at + 4 + extra do fields[#fields + 1] = ARGV[i] end
    -- The first write is one that Redis refuses at maxmemory: then nothing is written at all.
    redis.call('HSET', key, unpack(fields))
    if bytes ~= '' then redis.call('HSET', ARGV[5] .. id, 'parameters', bytes) end
    if later then
      redis.call('ZADD', KEYS[3], eta, id)
      if not first or tonumber(eta) < tonumber(first) then
        first = eta
        wake = true
      end
    else
      pending[#pending + 1] = id
    end
    index[#index + 1] = clock
    index[#index + 1] = id
    written[#written + 1] = 1
  end
  at = at + 5 + extra
end
if #index > 0 then
  redis.call('ZINCRBY', KEYS[1], 0, ARGV[2])
  redis.call('ZADD', KEYS[4], unpack(index))
  redis.call('HINCRBY', KEYS[5], 'enqueued', #index / 2)
end
if #pending > 0 then
  redis.call('LPUSH', KEYS[2], unpack(pending))
  wake = true
end
if wake then announce(ARGV[3]) end
return written

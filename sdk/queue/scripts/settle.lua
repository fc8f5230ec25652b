-- Completes or fails up to 1,000 tasks of one queue that a listener holds. Begins with LREM, which
-- Redis accepts even at maxmemory, and writes nothing for a task that is not held. A repeat of a
-- settle that was done finds its own mark and answers 'ok' again.
-- KEYS    1 reserved of the listener  2 started  3 complete  4 failed  5 stats
-- ARGV    1 clock override  2 listener  3 prefix of task hashes  4 prefix of bytes hashes
--         5 prefix of done channels
--         then for each task: id, run, process ID, status (complete or failed), reason ("" when
--         complete), result or error as text, bytes of the result ("" if the text is it)
-- RETURNS for each task 'ok', 'lost' or 'gone'
local bad = mistyped(KEYS[1], 'list', KEYS[2], 'set', KEYS[3], 'list', KEYS[4], 'list', KEYS[5], 'hash')
if bad then return bad end

local clock = now(ARGV[1])
local listener = ARGV[2]
local out = {}
local counted = {}
local function count(name) counted[name] = (counted[name] or 0) + 1 end
for at = 6, #ARGV, 7 do
  local id, run, pid, status, reason, text, bytes = unpack(ARGV, at, at + 6)
  local key = ARGV[3] .. id
  local hold = holder(key, listener, run)
  if hold == 'done' then
    out[#out + 1] = 'ok'
  elseif hold == 'gone' then
    redis.call('LREM', KEYS[1], -1, id)
    redis.call('SREM', KEYS[2], listener .. ' ' .. pid .. ' ' .. id)
    out[#out + 1] = 'gone'
  elseif hold == 'lost' or redis.call('LREM', KEYS[1], -1, id) == 0 then
    out[#out + 1] = 'lost'
  else
    redis.call('SREM', KEYS[2], listener .. ' ' .. pid .. ' ' .. id)
    local fields = { 'status', status, 'updated', clock, 'finished_at', clock, 'settled', listener .. ' ' .. run }
    if status == 'complete' then
      fields[#fields + 1] = 'result'
      fields[#fields + 1] = text
      redis.call('LPUSH', KEYS[3], id)
      count('complete')
    else
      fields[#fields + 1] = 'error'
      fields[#fields + 1] = text
      fields[#fields + 1] = 'reason'
      fields[#fields + 1] = reason
      redis.call('LPUSH', KEYS[4], id)
      count('failed')
      count('failed:' .. reason)
    end
    redis.call('HSET', key, unpack(fields))
    redis.pcall('HINCRBY', key, 'attempts', 1)
    if bytes ~= '' then redis.call('HSET', ARGV[4] .. id, 'result', bytes) end
    announce(ARGV[5] .. id)
    out[#out + 1] = 'ok'
  end
end
for name, n in pairs(counted) do redis.call('HINCRBY', KEYS[5], name, n) end
return out

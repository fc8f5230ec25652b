-- Prepended to every script of this folder. Plain Lua 5.1 with redis.call, pcall and
-- error_reply only, so that the scripts run on miniredis too: no cjson, cmsgpack, struct, bit.

-- now(override): the time in seconds as "1700000000.123456". Redis's own clock decides; tests
-- that need another one pass it in. Never a bare Lua number: Redis would cut its decimals.
local function now(override)
  if override ~= '' then return override end
  local t = redis.call('TIME')
  return string.format('%.6f', tonumber(t[1]) + tonumber(t[2]) / 1000000)
end

-- mistyped(key, type, key, type, ...): an error reply if a key holds another type than the script
-- will write, else nil. Asked before the first write, because Redis rolls nothing back.
local function mistyped(...)
  local arg = {...}
  for i = 1, #arg, 2 do
    local is = redis.call('TYPE', arg[i])['ok']
    if is ~= 'none' and is ~= arg[i + 1] then
      return redis.error_reply('WRONGTYPE key ' .. arg[i] .. ' is a ' .. is .. ', expected a ' .. arg[i + 1])
    end
  end
  return nil
end

-- announce(channel): PUBLISH where the user may; who may not is found by the slow poll.
local function announce(channel)
  redis.pcall('PUBLISH', channel, '')
end

-- holder(key, listener, run): whether the hash says that the listener's run holds the task:
-- 'held', 'done' (this very run settled it before), 'lost' or 'gone'. The caller then proves the
-- list with LREM or LPOS.
local function holder(key, listener, run)
  local h = redis.pcall('HMGET', key, 'node', 'run', 'settled')
  if h.err then return 'gone' end -- something else took the key: the task is no more
  if not h[1] and redis.call('EXISTS', key) == 0 then return 'gone' end
  if h[3] == listener .. ' ' .. run then return 'done' end
  if h[1] == listener and h[2] == run then return 'held' end
  return 'lost'
end

-- moment(text, otherwise): a time that the hash holds, if Redis would take it as a score. Lua's own
-- tonumber takes more: blanks, nan, hexadecimals.
local function moment(text, otherwise)
  if text and string.find(text, '^%d+%.?%d*$') and #text < 20 then return text end
  return otherwise
end

-- held(id, node, own, prefix): whether the reserved list of the node that a hash names has the task
-- already; prefix is that of the queue's reserved lists. The caller's own list has it once anyway.
local function held(id, node, own, prefix)
  if node == own then return #redis.call('LPOS', prefix .. own, id, 'COUNT', 2) > 1 end
  return type(redis.pcall('LPOS', prefix .. node, id)) == 'number'
end

-- nextrun(key): counts one more run of the task. A count that somebody damaged begins anew.
local function nextrun(key)
  local run = redis.pcall('HINCRBY', key, 'run', 1)
  if type(run) == 'number' then return run end
  redis.call('HSET', key, 'run', 1)
  return 1
end

-- elsewhere(key, queue): whether the hash says that the task is in another queue. One that was
-- written by hand may not say.
local function elsewhere(key, queue)
  local is = redis.call('HGET', key, 'queue')
  return is and is ~= '' and is ~= queue
end

-- payload(key, bytes_key, max): the parameters if they have at most max bytes, else false; and how
-- many they have. Bytes that are not UTF-8 text live in the companion hash; the field holds a marker
-- then.
local function payload(key, bytes_key, max)
  local size = redis.call('HSTRLEN', key, 'parameters')
  if size > max then return false, size end
  local text = redis.call('HGET', key, 'parameters')
  if not text then return '', 0 end
  if string.sub(text, 1, 12) == 'quern:bytes:' then
    local bytes = redis.call('HSTRLEN', bytes_key, 'parameters')
    if bytes > max then return false, bytes end
    if bytes > 0 then return redis.call('HGET', bytes_key, 'parameters'), bytes end
  end
  return text, size
end

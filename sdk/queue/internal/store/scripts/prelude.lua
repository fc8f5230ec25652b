-- The names that the scripts of this folder share. Each paragraph declares one, and precedes the scripts that use it,
-- because Redis makes every function of a script anew in each call. What only a function marked "-- rare" uses is declared
-- inside of it, and so made only when that runs. The names of the keys (QUEUES, PENDING_TASKS_, ...) come first; keys.go makes
-- them of NS, the tenant. A name that ends in _ is followed by a queue, a task or a listener.
-- Plain Lua 5.1 with redis.call, pcall, sha1hex and error_reply only, so that the scripts run on
-- miniredis too: no cjson, cmsgpack, struct, bit.

-- now(override): the time in seconds as "1700000000.123456". Redis's own clock decides; tests
-- that need another one pass it in. Never a bare Lua number: Redis would cut its decimals.
local function now(override)
  if override ~= '' then return override end
  local t = redis.call('TIME')
  return t[1] .. '.' .. string.sub('00000' .. t[2], -6)
end

-- after(clock, seconds): the time that many seconds later.
local function after(clock, delay)
  return string.format('%.6f', tonumber(clock) + tonumber(delay))
end

-- mistyped(key, type, key, type, ...): an error reply if a key holds another type than the script
-- will write, else nil. Asked before the first write, because Redis rolls nothing back (but see enqueue.lua).
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

-- announce(channel): PUBLISH, if the user may; otherwise the slow poll finds the task.
local function announce(channel)
  redis.pcall('PUBLISH', channel, '')
end

-- entrust(key, listener, ms): gives a listener a duty for that long. Begins with a removal: at maxmemory Redis
-- refuses a SET as the first write, but not after a command that frees memory.
local function entrust(key, listener, ms)
  redis.pcall('DEL', key)
  return redis.pcall('SET', key, listener, 'PX', ms)
end

-- duty(key, listener, ms): takes a duty for that long if it is free: false, or Redis's answer. A duty with more time
-- left than the longest one is free: Redis's clock was set back.
local function duty(key, listener, ms)
  local left = redis.call('PTTL', key)
  return (left < 0 or left > ms) and entrust(key, listener, ms)
end

-- settler(listener, run): what the field settled has of a run that did not end its task: "LISTENER RUN@STARTED", for Redis keeps no field
-- of more than 64 bytes in little memory.
local function settler(listener, run) return listener .. ' ' .. (string.gsub(run, '@[^@]*@', '@')) end

-- holder(key, listener, run, field, ...): whether the hash says that the listener's run holds the task: 'held',
-- 'done' (this very run settled it before), 'lost' or 'gone'; and a list of the values of node, run, status, created and started_at
-- and of the further fields. The caller then proves the list with LREM or LPOS. The run is "RUN@CREATED@STARTED": an ID may be
-- enqueued anew and then begins with run 1 again, and a server that lost its last second counts the same run again. A listener that
-- only reserved has "RUN@CREATED", and one that does not know when the task was created "RUN".
local function holder(key, listener, run, ...)
  local h = redis.pcall('HMGET', key, 'node', 'run', 'status', 'created', 'started_at', ...)
  if h.err then return 'gone' end -- the key has another type: the task is gone
  if not h[1] and redis.call('EXISTS', key) == 0 then return 'gone' end
  local is = h[2] or ''
  local its = h[1] == listener
  if its and run ~= is then
    local born = is .. '@' .. (h[4] or '')
    its = run == born .. '@' .. (h[5] or '') or run == born and h[3] ~= 'started'
  end
  if its and h[3] == 'complete' then return 'done', h end
  if its and h[3] ~= 'failed' then return 'held', h end
  local settled = redis.call('HGET', key, 'settled')
  if settled and (settled == settler(listener, run) or its and settled == is) then return 'done', h end
  return its and 'held' or 'lost', h
end

-- moment(text, otherwise): a time that the hash holds, if Redis would take it as a score. Lua's own
-- tonumber takes more: blanks, nan, hexadecimals.
local function moment(text, otherwise)
  if text and string.find(text, '^%d+%.?%d*$') and #text < 20 then return text end
  return otherwise
end

-- quarantined(crashes, clock): whether a field of CRASHES, if there is one, keeps its version from running now.
local function quarantined(crashes, clock)
  return type(crashes) == 'string' and tonumber(moment(string.match(crashes, '^%S+'), '0')) > tonumber(clock)
end

-- helduntil(text, clock): until when a queue is held whose statistics have this; nil if it is not now. One that begins later was made
-- before Redis's clock was set back.
local function helduntil(text, clock)
  local from, ends = string.match(text or '', '^(%d+%.?%d*) (%d+%.?%d*)$')
  return from and tonumber(from) <= tonumber(clock) and tonumber(clock) < tonumber(ends) and ends or nil
end

-- since(clock, created, eta, retried): when a task began to wait: the latest of the times in its hash.
local function since(clock, created, eta, retried)
  return math.max(tonumber(moment(created, clock)), tonumber(moment(eta, '0')), tonumber(moment(retried, '0')))
end

-- holding(queue, id, node, own): whether the reserved list of the node in the hash already has the task. The caller's
-- own list has it once anyway.
local function holding(queue, id, node, own)
  local list = RESERVED_TASKS_ .. queue .. '_'
  if node == own then return #redis.call('LPOS', list .. own, id, 'COUNT', 2) > 1 end
  return type(redis.pcall('LPOS', list .. node, id)) == 'number'
end

-- disown(queue, listener, id, pid): notes that the listener does not hold the task, so it does not run there.
local function disown(queue, listener, id, pid)
  if pid and not redis.call('LPOS', RESERVED_TASKS_ .. queue .. '_' .. listener, id) then
    redis.call('SREM', STARTED_TASKS_ .. queue, listener .. ' ' .. pid .. ' ' .. id)
  end
end

-- unheld(queues): removes from the started sets tasks that are in no listener's list, left over from crashes and
-- errors. It checks 64 entries of all queues together, in long sets a sample, and returns how many.
local function unheld(queues)
  local looked, first = 0, tonumber(redis.call('TIME')[2]) -- another queue each time: the last ones may get no look
  for i = 1, #queues do
    local queue = queues[(first + i) % #queues + 1]
    local share = math.ceil((64 - looked) / (#queues - i + 1)) -- of what earlier queues left
    for _, entry in ipairs(redis.call('SRANDMEMBER', STARTED_TASKS_ .. queue, share)) do
      looked = looked + 1
      local listener, id = string.match(entry, '^(%S+) %S+ (%S+)$')
      if not listener or redis.pcall('LPOS', RESERVED_TASKS_ .. queue .. '_' .. listener, id) == false then
        redis.call('SREM', STARTED_TASKS_ .. queue, entry)
      end
    end
  end
  return looked
end

-- nodes(): the listeners with a lease; none if there are more than 2,000, because checking each would take too long.
local function nodes()
  return redis.call('ZCARD', NODES) > 2000 and {} or redis.call('ZRANGE', NODES, 0, -1)
end

-- reservedlists(queue, listeners): the queue's reserved lists that may hold tasks. Few of many listeners have one, so
-- blocks without any existing list are left out.
local function reservedlists(queue, listeners)
  local out = {}
  for from = 1, #listeners, 1000 do -- Lua bounds what unpack returns
    local lists = {}
    for i = from, math.min(#listeners, from + 999) do lists[#lists + 1] = RESERVED_TASKS_ .. queue .. '_' .. listeners[i] end
    if redis.call('EXISTS', unpack(lists)) > 0 then
      for _, list in ipairs(lists) do out[#out + 1] = list end
    end
  end
  return out
end

-- count(key, field, by): adds by, or 1, to a counter and returns it. A damaged counter starts anew. 1 is a text, because Redis
-- takes long to format a number.
local function count(key, field, by)
  local n = redis.pcall('HINCRBY', key, field, by or '1')
  if type(n) == 'number' then return n end
  redis.call('HSET', key, field, by or '1')
  return by or 1
end

-- entries(list, queue, status): of a list of finished tasks, how many entries stand for tasks; how many are stale: in a list too long
-- to be searched they stay when their task is deleted or retried; and whether purge is to look through all of it for these.
local function entries(list, queue, status)
  local length, stale = redis.call('LLEN', list), redis.pcall('HGET', STATS_ .. queue, 'stale:' .. status)
  stale = type(stale) == 'string' and tonumber(string.match(stale, '^%d+$')) or 0
  return math.max(0, length - stale), stale, stale > 1000 and stale > length / 2
end

-- The run of a task that was never reserved and has only the fields that every task has; a number, like 0.
local PLAIN = '00'

-- following(text): the next value of a counter that the hash holds, as text, because Redis takes long to format a number. A
-- missing or damaged counter starts anew.
local function following(text)
  if not text or text == '0' or text == PLAIN or #text > 15 or not string.find(text, '^%d+$') then return '1' end
  return string.format('%d', text + 1)
end

-- exists(queue, id): whether the task exists in this queue. A hash written by hand may name none.
local function exists(queue, id)
  if redis.call('TYPE', TASK_ .. id)['ok'] ~= 'hash' then return false end
  local is = redis.call('HGET', TASK_ .. id, 'queue')
  return not is or is == '' or is == queue
end

-- altered(key, state): whether a task is not any more as its reader saw it: "CREATED RUN STATUS UPDATED", without the last, which
-- progress moves, while it is held. "" is any state.
local function altered(key, state)
  if state == '' then return false end
  local h = redis.call('HMGET', key, 'created', 'run', 'status', 'updated')
  local held = h[3] == 'reserved' or h[3] == 'started'
  return state ~= (h[1] or '') .. ' ' .. (h[2] or '') .. ' ' .. (h[3] or '') .. ' ' .. (held and '' or h[4] or '')
end

-- companion(id, field): the size of a field in the task's companion hash; 0 if that has another type.
local function companion(id, field)
  local bytes = redis.pcall('HSTRLEN', BYTES_ .. id, field)
  return type(bytes) == 'number' and bytes or 0
end

-- pendinglist(queue, priority): where a task of this priority waits, and its level. Priority 50, a missing or invalid
-- one, and one whose list has another type wait in the list that Python listeners know.
local function pendinglist(queue, priority)
  local p = tonumber(priority or 50)
  if not p or p == 50 or p < 0 or p > 100 or p ~= math.floor(p) then return PENDING_TASKS_ .. queue end
  p = string.format('%03d', p)
  local list = PENDING_ .. p .. '_' .. queue
  if mistyped(list, 'list') then return PENDING_TASKS_ .. queue end
  return list, p
end

-- pendinglists(queue): the lists that may hold a pending task, the highest priority first.
local function pendinglists(queue)
  local levels = redis.call('SMEMBERS', PRIORITIES_ .. queue)
  if #levels == 0 then return { PENDING_TASKS_ .. queue } end
  local lists = {}
  for _, level in ipairs(levels) do
    local list, is = pendinglist(queue, level)
    if is == level then lists[#lists + 1] = { is, list } end -- otherwise not a level of ours
  end
  lists[#lists + 1] = { '050', PENDING_TASKS_ .. queue }
  table.sort(lists, function(a, b) return a[1] > b[1] end)
  for i, level in ipairs(lists) do lists[i] = level[2] end
  return lists
end

-- waiting(queue): how many tasks are pending, of all priorities.
local function waiting(queue)
  local n = 0
  for _, list in ipairs(pendinglists(queue)) do n = n + redis.call('LLEN', list) end
  return n
end

-- stock(queue): how many tasks a queue's limit counts: pending ones, those with a time, and those that wait for others.
local function stock(queue)
  return waiting(queue) + redis.call('ZCARD', SCHEDULED_TASKS_ .. queue) + redis.call('ZCARD', BLOCKED_ .. queue)
end

-- push(queue, id, priority, command): makes a task wait: LPUSH behind the others of its priority,
-- RPUSH before them.
local function push(queue, id, priority, command)
  local list, level = pendinglist(queue, priority)
  if level then redis.call('SADD', PRIORITIES_ .. queue, level) end
  redis.call(command, list, id)
end

-- describe(reason, message): a failure in the form that hosts write. Neither may contain a quote.
local function describe(reason, message)
  return '{"reason":"' .. reason .. '","message":"' .. message .. '"}'
end

-- version(plugin, digest): the name of a version as NS_crashes has it; nil if either is missing. Hashes hold a digest without
-- the algorithm, because Redis keeps only fields of up to 64 bytes in little memory.
local function version(plugin, digest)
  if not plugin or plugin == '' or not digest or digest == '' then return nil end
  return plugin .. ' ' .. (string.find(digest, ':', 1, true) and digest or 'sha256:' .. digest)
end

-- record(id, clock, outcome, text): records the end of a run before the task's last, and keeps the last 20 records:
-- "RUN STARTED ENDED LISTENER PLUGIN DIGEST OUTCOME TEXT", with - for unknown values. DIGEST/VERSION if the version has a name.
local function record(id, clock, outcome, text)
  local h = redis.call('HMGET', TASK_ .. id, 'run', 'started_at', 'node', 'plugin', 'digest', 'version')
  local line = {}
  for i = 1, 4 do
    local word = h[i]
    line[i] = word and word ~= '' and string.gsub(word, ' ', '-') or '-'
  end
  redis.pcall('RPUSH', ATTEMPTS_ .. id, line[1] .. ' ' .. line[2] .. ' ' .. clock .. ' ' .. line[3] .. ' ' ..
    (version(line[4], h[5] and string.gsub(h[5], ' ', '-')) or line[4] .. ' -') .. (h[6] and '/' .. string.gsub(h[6], ' ', '-') or '') ..
    ' ' .. outcome .. ' ' .. text)
  redis.pcall('LTRIM', ATTEMPTS_ .. id, -20, -1)
end

-- surplus(queue): the error reply if a queue that was just listed is one more than the tenant may have; then it is listed no more.
local function surplus(queue)
  local most = redis.pcall('HGET', LIMITS, '.')
  most = type(most) == 'string' and tonumber(most)
  if not most or redis.call('ZCARD', QUEUES) <= most then return nil end
  redis.call('ZREM', QUEUES, queue)
  return redis.error_reply(string.format('MANYQUEUES the tenant may have %d queues', most))
end

-- unlisted(queue): the error reply if a queue does not exist, and the tenant has as many as it may have. If it may have one more, it is
-- listed from then on, so this is the last check.
local function unlisted(queue)
  return redis.pcall('HEXISTS', LIMITS, '.') == 1 and redis.call('ZADD', QUEUES, 'NX', '0', queue) == 1 and surplus(queue) or nil
end

-- The ID of a dead letter begins so.
local LETTER = 'dead-'

-- inherit(id, letter): gives a dead letter that refers to a task the payload that this has itself.
local function inherit(id, letter)
  local h = redis.pcall('HMGET', TASK_ .. letter, 'live_id', 'parameters')
  local parameters = redis.call('HGET', TASK_ .. id, 'parameters')
  if h.err or h[1] ~= id or h[2] or not parameters then return end
  redis.call('HSET', TASK_ .. letter, 'parameters', parameters)
  if companion(id, 'parameters') > 0 then
    redis.pcall('HSET', BYTES_ .. letter, 'parameters', redis.call('HGET', BYTES_ .. id, 'parameters'))
  end
end

-- unburied: why a dead letter could not be made, which the script returns; "" if all could.
local unburied = ''

-- bury(id, clock, dead, run, priority): makes a dead letter of a task that failed for good: a new task in the queue
-- dead that refers to the payload and history of the failed one. Letters of letters end with the fifth, because
-- plugins may name each other's queues. If a key of that queue has another type there is no letter: dead_error of the
-- task says why, and so does unburied.
local function bury(id, clock, dead, run, priority)
  local bad = mistyped(PENDING_TASKS_ .. dead, 'list', TASKS_ .. dead, 'zset', STATS_ .. dead, 'hash', PRIORITIES_ .. dead, 'set',
    QUEUES, 'zset')
  local h = redis.call('HMGET', TASK_ .. id, 'live_id', 'letters', 'depth', 'traceparent', 'retried_at', 'created', 'headers')
  -- One letter for each time that this task fails, and none for the last one of its ID, which was deleted.
  local letter = LETTER .. redis.sha1hex(id .. ' ' .. run .. ' ' .. (h[5] or '') .. ' ' .. (h[6] or ''))
  if redis.call('EXISTS', TASK_ .. letter) == 1 then return end
  local live, letters = h[1] or id, tonumber(h[2] or '0') or 0 -- the first task, also if a letter failed
  if redis.call('HEXISTS', TASK_ .. id, 'parameters') == 1 then live = id end -- the task that took over the payload
  if letters >= 5 then return end
  bad = bad or redis.call('ZADD', QUEUES, 'NX', '0', dead) == 1 and surplus(dead)
  if bad then
    unburied = bad.err
    redis.call('HSET', TASK_ .. id, 'dead_error', unburied)
    return
  end
  redis.call('HSET', TASK_ .. letter, 'status', 'pending', 'queue', dead, 'created', clock, 'updated', clock,
    'run', '0', 'live_id', live, 'letters', letters + 1)
  if priority then redis.call('HSET', TASK_ .. letter, 'priority', priority) end
  if h[3] then redis.call('HSET', TASK_ .. letter, 'depth', h[3]) end -- otherwise a cycle through letters would not end
  if h[4] then redis.call('HSET', TASK_ .. letter, 'traceparent', h[4]) end
  if h[7] then redis.call('HSET', TASK_ .. letter, 'headers', h[7]) end
  redis.call('ZADD', TASKS_ .. dead, clock, letter)
  count(STATS_ .. dead, 'enqueued')
  redis.call('HSET', TASK_ .. id, 'dead_id', letter)
  if live ~= id and redis.call('TYPE', TASK_ .. live)['ok'] == 'hash' then
    local before = redis.call('HGET', TASK_ .. live, 'dead_id')
    if before then inherit(live, before) end -- may be retried after the first task is forgotten
    redis.call('HSET', TASK_ .. live, 'dead_id', letter)
  end
  push(dead, letter, priority, 'LPUSH')
  announce(CHANNEL_ .. dead)
end

-- owner(queue, unique, id, whole): the other task that holds a uniqueness, if any. Unless whole, a finished task does not hold it
-- any more.
local function owner(queue, unique, id, whole)
  local first = redis.pcall('GET', UNIQUE_ .. queue .. '_' .. unique)
  if type(first) ~= 'string' or first == id or not exists(queue, first) then return nil end
  local status = redis.call('HGET', TASK_ .. first, 'status')
  if not whole and (status == 'complete' or status == 'failed') then return nil end
  return first
end

-- unlock(queue, id, unique): releases the uniqueness of a finished task, so that the key does not outlive its use. If
-- nobody settles a task here, the next task takes its uniqueness over.
local function unlock(queue, id, unique)
  local key = UNIQUE_ .. queue .. '_' .. unique
  if redis.pcall('GET', key) == id then redis.call('DEL', key) end
end

-- noteend(id, code): notes that tasks which wait for this one are to be told what became of it: 1 it failed, 2 it is complete, 3 look.
-- The score is -(4 x dependents told + code), so a new note begins with the first dependent again.
local function noteend(id, code)
  redis.pcall('ZADD', ENDED, -code, id)
  announce(ENDED)
end

-- reopened(id): has those wait again that were told the end of a finished task.
local function reopened(id)
  redis.call('HSET', TASK_ .. id, 'awaited', '1')
  noteend(id, 3)
end

-- fail(queue, id, clock, reason, text, ...): fails a task for good that nobody holds any more. Further arguments are
-- fields and values of its hash. The caller has checked the keys' types.
local function fail(queue, id, clock, reason, text, ...)
  local key = TASK_ .. id
  redis.call('HSET', key, 'status', 'failed', 'reason', reason, 'error', text, 'updated', clock, ...)
  redis.call('LPUSH', FAILED_TASKS_ .. queue, id)
  count(STATS_ .. queue, 'failed')
  count(STATS_ .. queue, 'failed:' .. reason)
  local h = redis.call('HMGET', key, 'expires', 'dead', 'run', 'priority', 'unique', 'unique_for', 'awaited', 'dead_queue')
  local dead = h[8] or h[2]
  if h[1] then redis.call('ZREM', EXPIRY_ .. queue, id) end
  if h[7] then noteend(id, 1) end
  if h[5] and not h[6] then unlock(queue, id, h[5]) end
  if dead and dead ~= '' and dead ~= queue and reason ~= 'cancelled' and reason ~= 'dependency' then bury(id, clock, dead, h[3] or '0', h[4]) end
  announce(DONE_ .. id)
end

-- back(queue, id, clock, delay, command, outcome, text, ...): makes a task wait again that nobody holds any more: for
-- the delay if it is above 0, else in the list, after the others (LPUSH) or before them (RPUSH). A task marked for
-- cancellation fails instead. outcome, if not "", is how its run ended. Further arguments are fields and values.
-- Returns whether it waits, and whether in the list.
local function back(queue, id, clock, delay, command, outcome, text, ...)
  local key = TASK_ .. id
  local h = redis.call('HMGET', key, 'priority', 'cancel', 'expires', 'run')
  if h[4] == PLAIN then redis.call('HSET', key, 'run', '0') end -- a Python listener held it: it has more fields now
  if h[2] then
    fail(queue, id, clock, 'cancelled', describe('cancelled', tonumber(h[4]) == 0 and 'cancelled before it ran' or 'cancelled while it ran'), ...)
    return false, false
  end
  if outcome ~= '' then record(id, clock, outcome, text) end
  local expires = moment(h[3])
  if expires then redis.call('ZADD', EXPIRY_ .. queue, expires, id) end -- expire passes over running tasks
  redis.call('HDEL', key, 'node', 'pid', 'result', 'error', 'reason', 'reserved_at', 'started_at', 'progress', 'message',
    'reclaimed_node', 'plugin', 'digest', 'version')
  if tonumber(delay) > 0 then
    local eta = after(clock, delay)
    redis.call('HSET', key, 'status', 'scheduled', 'eta', eta, 'updated', clock, ...)
    local first = redis.call('ZRANGE', SCHEDULED_TASKS_ .. queue, 0, 0, 'WITHSCORES')[2]
    redis.call('ZADD', SCHEDULED_TASKS_ .. queue, eta, id)
    if not first or tonumber(eta) < tonumber(first) then announce(CHANNEL_ .. queue) end
    return true, false
  end
  redis.call('HSET', key, 'status', 'pending', 'updated', clock, ...)
  push(queue, id, h[1], command)
  return true, true
end

-- The fields that a reserve reads of each task. 4 to 22 are in its reply; one that is PLAIN has none from 5 on.
local TAKEN = { 'parameters', 'status', 'run', 'created',
  'retried_at', 'eta', 'max_age', 'expires', 'retry', 'max_attempts', 'timeout', 'deadline', 'parent', 'key', 'depth', 'traceparent',
  'headers', 'attempts', 'reschedules', 'rejects', 'checkpoint', 'last_error', 'rejected_by', 'cancel' }

-- read(key, max, ask): the TAKEN fields of a task and the size of its parameters. nil if the key has another type. With ask, Redis
-- is asked for the size first, and parameters of more than max bytes are left out: to copy them into a script takes long.
local function read(key, max, ask)
  local size = ask and redis.pcall('HSTRLEN', key, 'parameters') or 0
  if type(size) ~= 'number' then return nil end
  local first = size > max and 2 or 1
  local h = redis.pcall('HMGET', key, unpack(TAKEN, first, 4))
  if h.err then return nil end
  if first == 2 then table.insert(h, 1, false) end
  if h[1] then size = #h[1] end
  if h[3] ~= PLAIN then
    for i, value in ipairs(redis.call('HMGET', key, unpack(TAKEN, 5))) do h[4 + i] = value end
  end
  return h, size
end

-- payload(id, h, size, max): the parameters of a task that was read, or false if they have more than max bytes; and how
-- many they have. Bytes that are not UTF-8 text live in the companion hash; the field holds a marker then. A dead letter has
-- no parameters of its own: they are those of the task that failed.
local function payload(id, h, size, max)
  if size == 0 and not h[1] then
    id = redis.call('HGET', TASK_ .. id, 'live_id')
    if id then h, size = read(TASK_ .. id, max, true) end
    if not id or not h then return '', 0 end
  end
  local text = size <= max and h[1] -- it may have been read unasked
  if text and #text <= 100 and string.sub(text, 1, 12) == 'quern:bytes:' then
    local bytes = companion(id, 'parameters')
    if bytes > max then return false, bytes end
    if bytes > 0 then return redis.call('HGET', BYTES_ .. id, 'parameters'), bytes end
  end
  return text or size == 0 and '', size
end

-- take(out, id, run, h, size, max): adds a reserve's reply for a task that was read, and returns how many bytes of parameters are
-- in it. The reply is one list, because Redis takes long for lists in lists.
local function take(out, id, run, h, size, max)
  local parameters, bytes = payload(id, h, size, max)
  local n = #out + 5
  out[n - 4], out[n - 3], out[n - 2], out[n - 1], out[n] = id, run, parameters, bytes, 0
  for i = 4, math.min(22, table.maxn(h)) do
    if h[i] then
      out[#out + 1] = TAKEN[i]
      out[#out + 1] = h[i]
    end
  end
  out[n] = #out - n
  return parameters and bytes or 0
end

-- dependencies(text): the field after: whether the task is open, blocked or released, when it runs, of how many dependencies, how
-- many of them ended and failed; nil if it is damaged.
local function dependencies(text)
  local state, when, of, ends, failures = string.match(type(text) == 'string' and text or '', '^(%l+) (%l+) (%d+) (%d+) (%d+)$')
  return state and { state = state, when = when, of = tonumber(of), ends = tonumber(ends), failures = tonumber(failures) }
end

-- endow(id, other): gives a task without parameters the result of its only dependency, and tells whether it has what it needs.
local function endow(id, other)
  local key = TASK_ .. id
  if redis.call('HSTRLEN', key, 'parameters') > 0 or redis.call('HEXISTS', key, 'live_id') == 1 then return true end
  local h = other and redis.pcall('HMGET', TASK_ .. other, 'status', 'result') or {}
  local result = h[2]
  if not result then return h[1] == 'complete' end -- which Python may leave without one
  redis.call('HSET', key, 'parameters', result)
  if companion(other, 'result') > 0 then redis.pcall('HSET', BYTES_ .. id, 'parameters', redis.call('HGET', BYTES_ .. other, 'result')) end
  return true
end

-- TOLD is what the field awaited holds when all that wait for a finished task know what became of it.
local TOLD = '2'

-- noteuntold(id, awaited, status): notes the end of a finished task whose field awaited is this, if nobody has, because a Python listener
-- wrote it; and tells whether tasks that wait for it are still to be told.
local function noteuntold(id, awaited, status)
  if not awaited then return false end
  if redis.call('ZSCORE', ENDED, id) then return true end
  if awaited == TOLD then return false end
  noteend(id, status == 'complete' and 2 or 1)
  return true
end

-- The fields that forget needs of each task, in order.
local OWNED = { 'key', 'dead_id' }

-- forget(queue, ids, owned): removes finished tasks that no other has to be told of, and their data, except their entries in lists.
-- owned has their OWNED fields. A dead letter takes over the payload that it refers to.
local function forget(queue, ids, owned)
  for i, id in ipairs(ids) do
    local key, h = TASK_ .. id, owned[i]
    if h[1] then redis.call('ZREM', KEYS_ .. queue, 'K' .. redis.sha1hex(h[1]) .. ' ' .. id) end
    if h[2] then inherit(id, h[2]) end
    redis.call('UNLINK', key, BYTES_ .. id, LOG_ .. id, ATTEMPTS_ .. id, AFTER_ .. id, CHILDREN_ .. id)
  end
  for from = 1, #ids, 1000 do
    redis.call('ZREM', TASKS_ .. queue, unpack(ids, from, math.min(#ids, from + 999)))
  end
end

-- endof(id): how a task ended: complete or failed, gone if there is none (any more), or '' if it goes on.
local function endof(id)
  local status = redis.pcall('HGET', TASK_ .. id, 'status')
  if status == 'complete' or status == 'failed' then return status end
  if type(status) == 'string' then return '' end
  return redis.call('TYPE', TASK_ .. id)['ok'] == 'hash' and '' or 'gone'
end

-- noted(d): the field after of these dependencies.
local function noted(d) return string.format('%s %s %d %d %d', d.state, d.when, d.of, d.ends, d.failures) end

-- counted(d, was, is): counts that a dependency which ended so, or '' not yet, now ends otherwise.
local function counted(d, was, is)
  local function add(state, n)
    if state ~= '' then d.ends = d.ends + n end
    if state ~= '' and state ~= 'complete' then d.failures = d.failures + n end
  end
  add(was, -1)
  add(is, 1)
end

-- decide(d): what becomes of a task with these dependencies: it waits, runs, fails, or is done without a run.
local function decide(d)
  local all = d.ends == d.of
  if d.state == 'open' then return 'wait' end
  if d.when == 'ended' then return all and 'run' or 'wait' end
  if d.when == 'failed' then return d.failures > 0 and 'run' or all and 'skip' or 'wait' end
  if d.when == 'any' and d.of > 0 then return d.ends > d.failures and 'run' or all and 'fail' or 'wait' end
  return d.failures > 0 and 'fail' or all and 'run' or 'wait'
end

-- hinder(queue): an error reply if a dependent of this queue cannot change, because a key is of another type.
local function hinder(queue)
  return mistyped(BLOCKED_ .. queue, 'zset', SCHEDULED_TASKS_ .. queue, 'zset', PENDING_TASKS_ .. queue, 'list', EXPIRY_ .. queue, 'zset',
    PRIORITIES_ .. queue, 'set', COMPLETE_TASKS_ .. queue, 'list', FAILED_TASKS_ .. queue, 'list', STATS_ .. queue, 'hash')
end

-- setexpiry(queue, id, from, age, deadline): notes when a waiting task expires, if it does: at its deadline, or at an age from then, if
-- that is earlier.
local function setexpiry(queue, id, from, age, deadline)
  local expires = moment(deadline)
  if moment(age) then
    local old = after(from, age)
    if not expires or tonumber(old) < tonumber(expires) then expires = old end
  end
  if not expires then return end
  redis.call('HSET', TASK_ .. id, 'expires', expires)
  redis.call('ZADD', EXPIRY_ .. queue, expires, id)
end

-- release(queue, id, clock, d): makes a blocked task wait for a listener, or for its eta. Its age counts from now. If it has no
-- parameters and one dependency, it gets the result of that.
local function release(queue, id, clock, d)
  local key = TASK_ .. id
  local h = redis.call('HMGET', key, 'priority', 'eta', 'max_age', 'deadline')
  if d.of == 1 then
    local other, place = unpack(redis.call('HGETALL', AFTER_ .. id))
    if not endow(id, other) and place and string.find(place, ' complete$') then
      other = string.gsub(other, '["\\]', '\\%0')
      return fail(queue, id, clock, 'dependency', describe('dependency', 'the result of task ' .. other .. ', which was to be its parameters, is deleted'))
    end
  end
  local due = moment(h[2], clock)
  local later = tonumber(due) > tonumber(clock)
  if not later then due = clock end
  setexpiry(queue, id, due, h[3], h[4])
  d.state = 'released'
  redis.call('HSET', key, 'status', later and 'scheduled' or 'pending', 'eta', due, 'updated', clock, 'after', noted(d))
  if later then
    redis.call('ZADD', SCHEDULED_TASKS_ .. queue, due, id)
  else
    push(queue, id, h[1], 'LPUSH')
  end
  announce(CHANNEL_ .. queue)
end

-- resolve(queue, id, clock, d, why): does what is decided of a blocked task; why is what to say if it fails.
local function resolve(queue, id, clock, d, why)
  local verdict = decide(d)
  if verdict == 'wait' then return end
  redis.call('ZREM', BLOCKED_ .. queue, id)
  if verdict == 'run' then return release(queue, id, clock, d) end
  if verdict == 'fail' then
    if d.when == 'any' then why = 'none of the tasks that it waited for is complete' end
    why = string.gsub(why, '["\\]', '\\%0')
    return fail(queue, id, clock, 'dependency', describe('dependency', why))
  end
  local key = TASK_ .. id
  redis.call('HSET', key, 'status', 'complete', 'result', '', 'updated', clock)
  redis.call('LPUSH', COMPLETE_TASKS_ .. queue, id)
  redis.call('ZREM', EXPIRY_ .. queue, id)
  count(STATS_ .. queue, 'complete')
  local h = redis.call('HMGET', key, 'unique', 'unique_for', 'awaited')
  if h[1] and not h[2] then unlock(queue, id, h[1]) end
  if h[3] then noteend(id, 2) end
  announce(DONE_ .. id)
end

-- culprit(id, state): why a task fails for a dependency that ended so.
local function culprit(id, state)
  local ends = { failed = 'failed', gone = 'is gone', open = 'could not be waited for, because it was still open' }
  return 'task ' .. id .. ', which it waited for, ' .. (ends[state] or state)
end

-- revive(queue, id, clock, d): makes a task wait again that failed for dependencies which may now end otherwise, and what failed
-- for it. Not if another task has its uniqueness by now.
local function revive(queue, id, clock, d)
  local key = TASK_ .. id
  local h = redis.call('HMGET', key, 'unique', 'unique_for', 'deadline', 'awaited')
  if h[1] and owner(queue, h[1], id, false) then return end
  if redis.call('LLEN', FAILED_TASKS_ .. queue) <= SEARCHED then
    redis.call('LREM', FAILED_TASKS_ .. queue, 1, id)
  else
    count(key, 'stale')
    count(STATS_ .. queue, 'stale:failed')
  end
  redis.call('HDEL', key, 'error', 'reason', 'expires', 'finished_at') -- which 0.1.0 wrote
  redis.call('HSET', key, 'status', 'scheduled', 'updated', clock)
  redis.call('ZADD', BLOCKED_ .. queue, clock, id)
  if h[1] and not h[2] then redis.pcall('SET', UNIQUE_ .. queue .. '_' .. h[1], id, 'EX', UNIQUE_LIFE) end
  setexpiry(queue, id, clock, nil, h[3])
  if h[4] then reopened(id) end
  resolve(queue, id, clock, d, '')
end

-- tell(id, other, state, clock): tells a task what became of another one that it may wait for. Telling it again changes nothing.
local function tell(id, other, state, clock)
  local place = redis.pcall('HGET', AFTER_ .. id, other)
  local index, was = string.match(type(place) == 'string' and place or '', '^(%d+) ?(%l*)$')
  if not index or was == state then return end
  local key = TASK_ .. id
  local h = redis.pcall('HMGET', key, 'status', 'queue', 'after', 'reason')
  local d = not h.err and dependencies(h[3])
  if not d or not h[2] or hinder(h[2]) then return end
  counted(d, was, state)
  redis.call('HSET', AFTER_ .. id, other, state == '' and index or index .. ' ' .. state)
  redis.call('HSET', key, 'after', noted(d))
  if d.state == 'released' then return end
  if h[1] == 'scheduled' then
    resolve(h[2], id, clock, d, culprit(other, state))
  elseif h[1] == 'failed' and h[4] == 'dependency' and d.state == 'blocked' and decide(d) ~= 'fail' then
    revive(h[2], id, clock, d)
  end
end

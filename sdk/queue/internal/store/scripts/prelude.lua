-- The functions and constants that the scripts of this folder share. Each paragraph declares one. A paragraph is put in
-- front of only the scripts that use it, because Redis executes all declarations of a script in each call. A paragraph
-- that only a function marked "-- rare" uses is put inside that function, so it is executed only when the function
-- runs. The names of the keys (QUEUES, PENDING_TASKS_, ...) come before the paragraphs; keys.go declares them, each
-- beginning with NS, the tenant. To a name that ends in _, a script appends a queue, a task or a listener. The scripts
-- use plain Lua 5.1, and of redis only call, pcall, sha1hex and error_reply. So they also run on miniredis, which has
-- no cjson, cmsgpack, struct or bit.

-- now(override): the time by Redis's clock in seconds, as "1700000000.123456", or override if that is not ""; only
-- tests pass it. The time is a text, because Redis would cut off the decimals of a Lua number.
local function now(override)
  if override ~= '' then return override end
  local t = redis.call('TIME')
  return t[1] .. '.' .. string.sub('00000' .. t[2], -6)
end

-- after(clock, delay): the time that is delay seconds after clock.
local function after(clock, delay)
  return string.format('%.6f', tonumber(clock) + tonumber(delay))
end

-- mistyped(key, type, key, type, ...): an error reply if a key has another type than the type after it, else nil.
-- Scripts check this before their first write, because Redis rolls nothing back (but see enqueue.lua).
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

-- announce(channel): publishes an empty message, if the Redis user is allowed to. If not, a poll finds the task later.
local function announce(channel)
  redis.pcall('PUBLISH', channel, '')
end

-- entrust(key, listener, ms): gives a listener a duty for ms milliseconds. It begins with a DEL, because at maxmemory,
-- Redis refuses a SET as the first write of a script, but not after a command that can free memory.
local function entrust(key, listener, ms)
  redis.pcall('DEL', key)
  return redis.pcall('SET', key, listener, 'PX', ms)
end

-- duty(key, listener, ms): gives a listener a duty for ms milliseconds if the duty is free. Returns Redis's reply, or
-- false if the duty is not free. A duty with more than ms milliseconds left counts as free, because Redis's clock was
-- set back.
local function duty(key, listener, ms)
  local left = redis.call('PTTL', key)
  return (left < 0 or left > ms) and entrust(key, listener, ms)
end

-- settler(listener, run): the value of the field "settled" after a run that did not end its task: "LISTENER
-- RUN@STARTED". CREATED is left out of run, because Redis stores a hash compactly only if no field has more than 64
-- bytes.
local function settler(listener, run) return listener .. ' ' .. (string.gsub(run, '@[^@]*@', '@')) end

-- holder(key, listener, run, field, ...): whether the listener's run holds the task, according to the task's hash:
-- 'held', 'done' (this run has settled the task before), 'lost' or 'gone'. Also returns a list of the values of node,
-- run, status, created, started_at and the further fields. If the result is 'held', the caller must also check the
-- reserved list, with LREM or LPOS. run is "RUN@CREATED@STARTED", and "RUN@CREATED" before the start. RUN alone is not
-- enough: an ID that is enqueued anew begins with run 1 again, and a server that lost its last second of data counts
-- the same run again. But a listener that does not know when the task was created passes only "RUN".
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

-- moment(text, fallback): text, a time from a hash, if Redis accepts it as a score, else fallback. Lua's tonumber
-- accepts more than Redis: blanks, nan, hexadecimal numbers.
local function moment(text, fallback)
  if text and string.find(text, '^%d+%.?%d*$') and #text < 20 then return text end
  return fallback
end

-- quarantined(crashes, clock): whether a plugin's version is quarantined now. crashes is the value of the version's
-- field in CRASHES, or false if it has none.
local function quarantined(crashes, clock)
  return type(crashes) == 'string' and tonumber(moment(string.match(crashes, '^%S+'), '0')) > tonumber(clock)
end

-- nocrashroom(clock): whether CRASHES has no room for one more field. If there is none, it first removes those that
-- quarantine nothing, and whose last death or failure was more than an hour ago.
local function nocrashroom(clock) -- rare
  if redis.call('TYPE', CRASHES)['ok'] ~= 'hash' or redis.call('HLEN', CRASHES) < 1000 then return false end
  local fields, stale = redis.call('HGETALL', CRASHES), {}
  for i = 1, #fields, 2 do
    local fresh = quarantined(fields[i + 1], clock)
    for second in string.gmatch(fields[i + 1], ' %S+ ([%d.]+)') do
      fresh = fresh or tonumber(moment(second, '0')) > tonumber(clock) - 3600
    end
    if not fresh then stale[#stale + 1] = fields[i] end
  end
  for from = 1, #stale, 1000 do redis.call('HDEL', CRASHES, unpack(stale, from, math.min(#stale, from + 999))) end
  return #fields / 2 - #stale >= 1000
end

-- helduntil(text, clock): the end of a queue's hold, or nil if the queue is not held now. text is the field "held" of
-- the queue's statistics. A hold that begins in the future does not count: it was made before Redis's clock was set
-- back.
local function helduntil(text, clock)
  local from, ends = string.match(text or '', '^(%d+%.?%d*) (%d+%.?%d*)$')
  return from and tonumber(from) <= tonumber(clock) and tonumber(clock) < tonumber(ends) and ends or nil
end

-- breaker(version): the state of a version's circuit breaker, nil if it has none or it is damaged: of row runs in a row
-- that failed for reason, the last at from. If pause is above 0, the breaker is open: nothing is reserved from then
-- until ends, pause seconds later, and after that one task as a probe. That is id of listener, or "-" and "-".
local function breaker(version)
  local text = redis.pcall('HGET', CRASHES, version .. FAILURES)
  local b = { string.match(type(text) == 'string' and text or '', '^(%S+) (%l+) (%S+) (%d+%.?%d*) (%d+) (%S+) (%S+)$') }
  if not b[1] or not moment(b[1]) or not moment(b[3]) then return nil end
  return { ends = b[1], reason = b[2], from = b[3], pause = tonumber(b[4]), row = tonumber(b[5]), listener = b[6], id = b[7] }
end

-- savebreaker(version, b): writes the state of a version's circuit breaker.
local function savebreaker(version, b)
  redis.pcall('HSET', CRASHES, version .. FAILURES, string.format('%s %s %s %.6f %d %s %s', b.ends, b.reason, b.from, b.pause,
    b.row, b.listener, b.id))
  redis.pcall('EXPIRE', CRASHES, 86400)
end

-- barrier(version, breaks, clock): a table that says what keeps tasks from being reserved for a version. cause is 1 if it
-- is quarantined for deaths, 2 if its circuit breaker is open, else 0. While the breaker pauses, ends is the end of the
-- pause. After that, half is the state of the breaker unless a probe runs: one task may be reserved, as probe does it.
-- breaks is '1' if the version has a circuit breaker.
local function barrier(version, breaks, clock)
  if quarantined(redis.pcall('HGET', CRASHES, version), clock) then return { cause = 1 } end
  local b = breaks == '1' and breaker(version)
  if not b or b.pause == 0 then return { cause = 0 } end
  local ends = helduntil(b.from .. ' ' .. b.ends, clock)
  if ends then return { cause = 2, ends = ends } end
  local task = b.id ~= '-' and redis.pcall('HMGET', TASK_ .. b.id, 'node', 'status') or {}
  -- Otherwise the task was given back, or its host died and others took the task.
  local runs = not task.err and task[1] == b.listener and task[2] == 'started' and redis.call('ZSCORE', NODES, b.listener)
  return { cause = 2, half = not runs and b or nil }
end

-- probe(version, b, listener, id): records that a task is the probe of a version's circuit breaker.
local function probe(version, b, listener, id) -- rare
  b.listener, b.id = listener, id
  savebreaker(version, b)
end

-- ENDLESS is the end of the hold of a paused key, in the year 2223. There microseconds still differ in a score.
local ENDLESS = 7999999999

-- holdkey(queue, name, ends): lets no task of the queue with this key start before the time ends. An earlier hold is never
-- shortened. Nothing is done if the queue has as many holds as it may.
local function holdkey(queue, name, ends) -- rare
  local held = HELD_ .. queue
  if mistyped(held, 'zset') or redis.call('ZCARD', held) >= MOST_HELD then return end
  redis.call('ZADD', held, 'GT', string.format('%.6f', ends), redis.sha1hex(name))
end

-- since(clock, created, eta, retried): the time at which a task began to wait: the latest of the three times in its
-- hash.
local function since(clock, created, eta, retried)
  return math.max(tonumber(moment(created, clock)), tonumber(moment(eta, '0')), tonumber(moment(retried, '0')))
end

-- holding(queue, id, node, own): whether the listener that the task's hash names, node, has the task in its reserved
-- list. own is the listener for which the script runs. Its list has the task anyway, so if node is own, the list must
-- have the task twice.
local function holding(queue, id, node, own)
  local list = RESERVED_TASKS_ .. queue .. '_'
  if node == own then return #redis.call('LPOS', list .. own, id, 'COUNT', 2) > 1 end
  return type(redis.pcall('LPOS', list .. node, id)) == 'number'
end

-- disown(queue, listener, id, pid): removes a task from the started set if the listener's reserved list does not have
-- it.
local function disown(queue, listener, id, pid)
  if pid and not redis.call('LPOS', RESERVED_TASKS_ .. queue .. '_' .. listener, id) then
    redis.call('SREM', STARTED_TASKS_ .. queue, listener .. ' ' .. pid .. ' ' .. id)
  end
end

-- unheld(queues): removes entries from the queues' started sets that are left over from crashes and errors: the
-- listener's reserved list does not have the task. It checks up to 64 entries of all queues together, a sample of long
-- sets, and returns the number of checked entries.
local function unheld(queues)
  local looked, first = 0, tonumber(redis.call('TIME')[2]) -- begins at random: the last queues may get no check
  for i = 1, #queues do
    local queue = queues[(first + i) % #queues + 1]
    local share = math.ceil((64 - looked) / (#queues - i + 1)) -- a share of the remaining entries
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

-- nodes(): the listeners in NODES, or an empty list if there are more than 2,000, because checking each would take too
-- long.
local function nodes()
  return redis.call('ZCARD', NODES) > 2000 and {} or redis.call('ZRANGE', NODES, 0, -1)
end

-- reservedlists(queue, listeners): the keys of the listeners' reserved lists for the queue. Because few of many
-- listeners have such a list, a block of 1,000 keys is left out if none of them exists.
local function reservedlists(queue, listeners)
  local out = {}
  for from = 1, #listeners, 1000 do -- Lua bounds how many values unpack returns
    local lists = {}
    for i = from, math.min(#listeners, from + 999) do lists[#lists + 1] = RESERVED_TASKS_ .. queue .. '_' .. listeners[i] end
    if redis.call('EXISTS', unpack(lists)) > 0 then
      for _, list in ipairs(lists) do out[#out + 1] = list end
    end
  end
  return out
end

-- count(key, field, by): adds by (default 1) to a counter in a hash, and returns the new value. A damaged counter
-- starts from zero. The 1 is a text, because Redis takes long to format a number.
local function count(key, field, by)
  local n = redis.pcall('HINCRBY', key, field, by or '1')
  if type(n) == 'number' then return n end
  redis.call('HSET', key, field, by or '1')
  return by or 1
end

-- bucket(text): parses the rate of a token bucket, "N/UNIT burst B", with which text begins. Returns the seconds in
-- which a token comes, and the burst, the most tokens that the bucket holds; nil if text is no rate.
local function bucket(text)
  local n, unit, burst = string.match(text or '', '^(%d+)/(%l) burst (%d+)')
  local seconds = unit == 's' and 1 or unit == 'm' and 60 or unit == 'h' and 3600 or unit == 'd' and 86400
  if not seconds or n + 0 < 1 or burst + 0 < 1 then return nil end
  return seconds / n, burst + 0
end

-- tokens(text, full, clock, debt): the state of a bucket. text is its rate; full is the time at which it will be full
-- again, as the field of USED has it. It may owe debt tokens; a time later than that is from before Redis's clock was set
-- back, and is cut. Returns the number of tokens, the seconds in which one comes, the burst, the time full, and whether
-- that was cut: then it must be written. Returns nil if text is no rate. The bucket is full again step seconds later for
-- each token that is taken.
local function tokens(text, full, clock, debt)
  local step, burst = bucket(text)
  if not step then return nil end
  clock = tonumber(clock)
  full = tonumber(moment(full, '0'))
  local last = clock + (burst + debt) * step
  local cut = full > last + 0.000002
  full = math.max(clock, math.min(full, last))
  return math.floor((clock - full + 0.000002) / step) + burst, step, burst, full, cut
end

-- fuelstate(clock): the state of the tenant's bucket of fuel, as tokens returns it, and its rate; nil if there is none.
-- Fuel is known when a run has ended, so the bucket may be in debt: what would take more than a day to pay is forgiven.
local function fuelstate(clock)
  local rate = redis.call('HGET', QUOTAS, 'fuel_rate')
  local step = rate and bucket(rate)
  if not step then return nil end
  return tokens(rate, redis.call('HGET', USED, 'fuel_rate'), clock, 86400 / step)
end

-- over(name, used, limit, wait, new, more): the error reply for something new that a quota of the tenant refuses. The
-- refusals are counted; new is how many things are refused, more how much they would use (default: new). wait is in how
-- many seconds there may be room.
local function over(name, used, limit, wait, new, more)
  redis.pcall('HINCRBY', USED, 'refused:' .. name, new)
  return redis.error_reply(string.format('QUOTA %s %.0f %.0f %.6f %s', name, used, more or new, wait, limit))
end

-- scarce(name, used): an error reply if the tenant has used things of this kind, and its quota allows no more; else nil.
local function scarce(name, used)
  local most = redis.pcall('HGET', QUOTAS, name)
  most = type(most) == 'string' and tonumber(most)
  return most and used >= most and over(name, used, string.format('%.0f', most), 0, 1) or nil
end

-- runningtasks(): the number of the tenant's running tasks, the queues that have some, and the number of each. It
-- counts those of the 2,000 queues with the most listeners.
local function runningtasks()
  local names, sum, some, counts = redis.pcall('ZREVRANGE', QUEUES, 0, 1999), 0, {}, {}
  for from = 1, #names, 50 do
    local keys, last = {}, math.min(#names, from + 49)
    for i = from, last do keys[#keys + 1] = STARTED_TASKS_ .. names[i] end
    if redis.call('EXISTS', unpack(keys)) > 0 then
      for i = from, last do
        local n = redis.pcall('SCARD', STARTED_TASKS_ .. names[i])
        if type(n) == 'number' and n > 0 then sum, some[#some + 1], counts[#counts + 1] = sum + n, names[i], n end
      end
    end
  end
  return sum, some, counts
end

-- unthrottle(n): wakes the listeners of up to n queues that wait until fewer of the tenant's tasks run.
local function unthrottle(n)
  local queues = redis.pcall('SRANDMEMBER', THROTTLED, n)
  for _, queue in ipairs(queues) do
    redis.call('SREM', THROTTLED, queue)
    announce(CHANNEL_ .. queue)
  end
end

-- entries(list, queue, status): returns, for a list of finished tasks, the number of entries that are not stale, the
-- number of stale entries, and whether purge.lua is to look through the whole list for stale ones. An entry becomes
-- stale if its task is deleted or retried while the list is too long to be searched.
local function entries(list, queue, status)
  local length, stale = redis.call('LLEN', list), redis.pcall('HGET', STATS_ .. queue, 'stale:' .. status)
  stale = type(stale) == 'string' and tonumber(string.match(stale, '^%d+$')) or 0
  return math.max(0, length - stale), stale, stale > 1000 and stale > length / 2
end

-- The value of the field "run" of a plain task: one that was never reserved and has only the fields that every task
-- has. Lua reads it as the number 0.
local PLAIN = '00'

-- following(text): the value after text, the present value of a counter. It is a text, because Redis takes long to
-- format a number. A missing or damaged counter starts from zero.
local function following(text)
  if not text or text == '0' or text == PLAIN or #text > 15 or not string.find(text, '^%d+$') then return '1' end
  return string.format('%d', text + 1)
end

-- exists(queue, id): whether the task exists in this queue. A hash written by hand can lack the queue; it counts as a
-- task of any queue.
local function exists(queue, id)
  if redis.call('TYPE', TASK_ .. id)['ok'] ~= 'hash' then return false end
  local is = redis.call('HGET', TASK_ .. id, 'queue')
  return not is or is == '' or is == queue
end

-- altered(key, state): whether the task is no longer in the given state, in which the caller read it. A state is
-- "CREATED RUN STATUS UPDATED". While the task is held, UPDATED is empty, because progress changes it. The state ""
-- matches any state.
local function altered(key, state)
  if state == '' then return false end
  local h = redis.call('HMGET', key, 'created', 'run', 'status', 'updated')
  local held = h[3] == 'reserved' or h[3] == 'started'
  return state ~= (h[1] or '') .. ' ' .. (h[2] or '') .. ' ' .. (h[3] or '') .. ' ' .. (held and '' or h[4] or '')
end

-- companion(id, field): the size of a field in the task's companion hash. It is 0 if there is none, or the key has the
-- wrong type.
local function companion(id, field)
  local bytes = redis.pcall('HSTRLEN', BYTES_ .. id, field)
  return type(bytes) == 'number' and bytes or 0
end

-- levelof(priority): the name of a task's priority, three digits; '050' if the priority is missing or invalid.
local function levelof(priority)
  local p = tonumber(priority or 50)
  if not p or p < 0 or p > 100 or p ~= math.floor(p) then p = 50 end
  return string.format('%03d', p)
end

-- pendinglist(queue, priority): the key of the list in which tasks of this priority wait, and the priority's name in
-- PRIORITIES_. For priority 50, a missing or invalid priority, and one whose list has the wrong type, returns only the
-- list that Python listeners know.
local function pendinglist(queue, priority)
  local p = levelof(priority)
  if p == '050' then return PENDING_TASKS_ .. queue end
  local list = PENDING_ .. p .. '_' .. queue
  if mistyped(list, 'list') then return PENDING_TASKS_ .. queue end
  return list, p
end

-- fairset(queue, level): the keys of the set in which tasks of a priority with a fairness key wait, and of the turns of
-- these keys; nil if one has the wrong type.
local function fairset(queue, level)
  local set, turns = FAIR_ .. level .. '_' .. queue, TURNS_ .. level .. '_' .. queue
  if mistyped(set, 'zset', turns, 'zset') then return nil end
  return set, turns
end

-- pendinglists(queue): the keys of the lists that may contain pending tasks, highest priority first. For those with
-- tasks that have a fairness key, fair[list] is the name of the priority.
local function pendinglists(queue)
  local levels = redis.call('SMEMBERS', PRIORITIES_ .. queue)
  if #levels == 0 then return { PENDING_TASKS_ .. queue }, {} end
  local known, lists, fair = { ['050'] = PENDING_TASKS_ .. queue }, {}, {}
  for _, entry in ipairs(levels) do
    local level = string.match(entry, '^f?(%d%d%d)$') -- otherwise Quern did not write this entry
    local list, is = pendinglist(queue, level or '')
    if level and (level == is or level == '050') then
      known[level] = list
      if level ~= entry and fairset(queue, level) then fair[list] = level end
    end
  end
  for level, list in pairs(known) do lists[#lists + 1] = { level, list } end
  table.sort(lists, function(a, b) return a[1] > b[1] end)
  for i, level in ipairs(lists) do lists[i] = level[2] end
  return lists, fair
end

-- reservable(queue): the number of pending tasks of all priorities that can be reserved.
local function reservable(queue)
  local n, lists, fair = 0, pendinglists(queue)
  for _, list in ipairs(lists) do
    n = n + redis.call('LLEN', list)
    if fair[list] then n = n + redis.call('ZCARD', (fairset(queue, fair[list]))) end
  end
  return n
end

-- inline(queue): the number of pending tasks that wait in the line of their concurrency key.
local function inline(queue)
  local n = redis.pcall('ZCARD', LINE_ .. queue)
  return type(n) == 'number' and n or 0
end

-- waiting(queue): the number of pending tasks.
local function waiting(queue) return reservable(queue) + inline(queue) end

-- stock(queue): the number of tasks that a queue's limit counts: pending, scheduled and blocked ones.
local function stock(queue)
  return waiting(queue) + redis.call('ZCARD', SCHEDULED_TASKS_ .. queue) + redis.call('ZCARD', BLOCKED_ .. queue)
end

-- shareof(fair): parses fair, the field of a task with a fairness key: the name of the key in TURNS_, and how far its
-- turn moves with each task. Returns nil if the field is damaged.
local function shareof(fair)
  local weight, key = string.match(fair, '^(%d+) (.+)$')
  if not key or tonumber(weight) == 0 then return nil end
  return 'K' .. key, 1000 / tonumber(weight)
end

-- scored(turn): formats a turn as a score.
local function scored(turn) return string.format('%.3f', turn) end

-- taketurn(queue, id, priority, fair, front): gives a task with a fairness key its turn among the tasks of its priority:
-- after the last one of its key, or before all others. Returns whether it did; not if a key has the wrong type.
local function taketurn(queue, id, priority, fair, front) -- rare
  local level, key, step = levelof(priority), shareof(fair)
  local set, turns = fairset(queue, level)
  if not key or not set then return false end
  local turn = tonumber(redis.call('ZSCORE', turns, 'turn') or '0')
  if front then
    turn = tonumber(redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2] or turn) - 1
  else
    turn = math.max(turn, tonumber(redis.call('ZSCORE', turns, key) or '0')) + step
    redis.call('ZADD', turns, scored(turn), key)
  end
  redis.call('ZADD', set, scored(turn), id)
  redis.call('SADD', PRIORITIES_ .. queue, 'f' .. level)
  return true
end

-- giveturn(queue, id, priority, fair): removes a task that ends before its turn, so that later tasks of its key come
-- earlier.
local function giveturn(queue, id, priority, fair) -- rare
  local key, step = shareof(fair)
  local set, turns = fairset(queue, levelof(priority))
  if key and set and redis.call('ZREM', set, id) == 1 and redis.call('ZSCORE', turns, key) then
    redis.call('ZINCRBY', turns, scored(-step), key)
  end
end

-- put(queue, id, priority, fair, command): puts a task where reserve.lua finds it: into the pending list of its
-- priority, or among the tasks with a fairness key. command is 'LPUSH' for the back of the list, 'RPUSH' for the front.
-- fair is the field of the task, or false.
local function put(queue, id, priority, fair, command)
  if fair and taketurn(queue, id, priority, fair, command == 'RPUSH') then return end
  local list, level = pendinglist(queue, priority)
  if level then redis.call('SADD', PRIORITIES_ .. queue, level) end
  redis.call(command, list, id)
end

-- laneof(lane): parses lane, the field of a task with a concurrency key: the SHA-1 of the key, and the maximum of its
-- tasks. Returns nil if the field is damaged.
local function laneof(lane)
  local max, key = string.match(lane, '^(%d+) (.+)$')
  if key then return redis.sha1hex(key), tonumber(max) end
end

-- The members of LANES_ and LINE_ begin with the SHA-1 of a concurrency key, and all have the same score. So those of a
-- lane are a range by name. In LANES_ "HASH ID" is a holder, and "HASH=MAX" is the lane's maximum if that is not 1. In
-- LINE_ "HASH NUMBER ID" is a task that waits, with a number of twelve digits.
local function holders(queue, hash) return redis.call('ZLEXCOUNT', LANES_ .. queue, '[' .. hash .. ' ', '(' .. hash .. '!') end

-- maximum(queue, hash): the member of LANES_ with the maximum of a lane, or nil; and the maximum.
local function maximum(queue, hash)
  local member = redis.call('ZRANGEBYLEX', LANES_ .. queue, '[' .. hash .. '=', '(' .. hash .. '>', 'LIMIT', 0, 1)[1]
  return member, member and tonumber(string.sub(member, #hash + 2)) or 1
end

-- letin(queue, hash): makes the first tasks of a line reservable while their lane has room, at most 32. A task that is
-- older than the next one of its list goes before it, because it was enqueued before. The others go to the back, or the
-- lane with the longest line would keep all other tasks waiting.
local function letin(queue, hash)
  local member, max = maximum(queue, hash)
  local n, woken = holders(queue, hash), false
  for _ = n + 1, math.min(max, n + 32) do
    local first = redis.call('ZRANGEBYLEX', LINE_ .. queue, '[' .. hash .. ' ', '(' .. hash .. '!', 'LIMIT', 0, 1)[1]
    if not first then
      if n == 0 and member then redis.call('ZREM', LANES_ .. queue, member) end
      break
    end
    redis.call('ZREM', LINE_ .. queue, first)
    local number, id = string.match(first, '^%x+ (%d+) (%S+)$')
    local h = redis.pcall('HMGET', TASK_ .. id, 'status', 'line', 'priority', 'fair', 'created')
    if not h.err and h[1] == 'pending' and h[2] == number then -- otherwise somebody deleted or changed it by hand
      redis.call('ZADD', LANES_ .. queue, 0, hash .. ' ' .. id)
      redis.call('HDEL', TASK_ .. id, 'line')
      local command, ahead = 'LPUSH', not h[4] and redis.call('LINDEX', pendinglist(queue, h[3]), -1)
      local born = ahead and redis.pcall('HGET', TASK_ .. ahead, 'created')
      if type(born) == 'string' and tonumber(moment(h[5], '0')) < tonumber(moment(born, '0')) then command = 'RPUSH' end
      put(queue, id, h[3], h[4], command)
      n, woken = n + 1, true
    end
  end
  if woken then announce(CHANNEL_ .. queue) end
end

-- enter(queue, id, lane): gives a task that is to become pending its place in its lane, which it keeps until it has
-- ended for good. Returns whether it has one. If not, it waits in line. A task without a lane has all the place it needs.
local function enter(queue, id, lane) -- rare
  local hash, max = laneof(lane)
  if not hash or mistyped(LANES_ .. queue, 'zset', LINE_ .. queue, 'zset') or
    redis.call('ZSCORE', LANES_ .. queue, hash .. ' ' .. id) then return true end
  local member, is = maximum(queue, hash)
  if is ~= max then -- the last task decides
    if member then redis.call('ZREM', LANES_ .. queue, member) end
    if max ~= 1 then redis.call('ZADD', LANES_ .. queue, 0, hash .. '=' .. max) end
  end
  local last = redis.call('ZREVRANGEBYLEX', LINE_ .. queue, '(' .. hash .. '!', '[' .. hash .. ' ', 'LIMIT', 0, 1)[1]
  if not last and holders(queue, hash) < max then
    redis.call('ZADD', LANES_ .. queue, 0, hash .. ' ' .. id)
    return true
  end
  local number = string.format('%012d', (tonumber(last and string.match(last, ' (%d+) ') or '0') or 0) + 1)
  redis.call('ZADD', LINE_ .. queue, 0, hash .. ' ' .. number .. ' ' .. id)
  redis.call('HSET', TASK_ .. id, 'line', number)
  if is < max then letin(queue, hash) end
  return false
end

-- leave(queue, id, lane): takes a task that has ended for good out of its lane or out of the line, and lets the next
-- ones in.
local function leave(queue, id, lane) -- rare
  local hash = laneof(lane)
  if not hash or mistyped(LANES_ .. queue, 'zset', LINE_ .. queue, 'zset', PENDING_TASKS_ .. queue, 'list', PRIORITIES_ .. queue, 'set') then
    return
  end
  if redis.call('ZREM', LANES_ .. queue, hash .. ' ' .. id) == 0 then
    local number = redis.call('HGET', TASK_ .. id, 'line')
    if number then
      redis.call('ZREM', LINE_ .. queue, hash .. ' ' .. number .. ' ' .. id)
      redis.call('HDEL', TASK_ .. id, 'line')
    end
  end
  letin(queue, hash)
end

-- push(queue, id, priority, fair, lane, command): makes a task reservable as put does, as soon as its lane has room. fair
-- and lane are the fields of the task, or false.
local function push(queue, id, priority, fair, lane, command)
  if not lane or enter(queue, id, lane) then put(queue, id, priority, fair, command) end
end

-- describe(reason, message): a failure in the JSON form that hosts write. Neither argument may contain an unescaped
-- quote.
local function describe(reason, message)
  return '{"reason":"' .. reason .. '","message":"' .. message .. '"}'
end

-- version(plugin, digest): the name of a version's field in CRASHES, or nil if plugin or digest is missing. The hash of
-- a task has the digest without the algorithm, because Redis stores a hash compactly only if no field has more than 64
-- bytes.
local function version(plugin, digest)
  if not plugin or plugin == '' or not digest or digest == '' then return nil end
  return plugin .. ' ' .. (string.find(digest, ':', 1, true) and digest or 'sha256:' .. digest)
end

-- record(id, clock, outcome, text): appends the run that has ended to the task's history, of which it keeps the last 20
-- runs. An entry is "RUN STARTED ENDED LISTENER PLUGIN DIGEST OUTCOME TEXT", with - for unknown values, and
-- DIGEST@RELEASE if the version is a release, and /VERSION behind that if it has a name. The task's last run is not
-- recorded, because the task's hash describes it.
local function record(id, clock, outcome, text)
  local h = redis.call('HMGET', TASK_ .. id, 'run', 'started_at', 'node', 'plugin', 'digest', 'version', 'release')
  local line = {}
  for i = 1, 4 do
    local word = h[i]
    line[i] = word and word ~= '' and string.gsub(word, ' ', '-') or '-'
  end
  redis.pcall('RPUSH', ATTEMPTS_ .. id, line[1] .. ' ' .. line[2] .. ' ' .. clock .. ' ' .. line[3] .. ' ' ..
    (version(line[4], h[5] and string.gsub(h[5], ' ', '-')) or line[4] .. ' -') .. (h[7] and '@' .. string.gsub(h[7], ' ', '-') or '') ..
    (h[6] and '/' .. string.gsub(h[6], ' ', '-') or '') .. ' ' .. outcome .. ' ' .. text)
  redis.pcall('LTRIM', ATTEMPTS_ .. id, -20, -1)
end

-- surplus(queue): checks a queue that was just added to QUEUES. If the tenant now has more queues than it may have,
-- surplus removes the queue again and returns an error reply; else nil.
local function surplus(queue)
  local most = redis.pcall('HGET', LIMITS, '.')
  most = type(most) == 'string' and tonumber(most)
  if not most or redis.call('ZCARD', QUEUES) <= most then return nil end
  redis.call('ZREM', QUEUES, queue)
  return redis.error_reply(string.format('MANYQUEUES the tenant may have %d queues', most))
end

-- unlisted(queue): an error reply if the queue is new and the tenant already has its maximum number of queues, else
-- nil. If the tenant has a maximum, it also adds a new queue to QUEUES, so it must come after all other checks.
local function unlisted(queue)
  return redis.pcall('HEXISTS', LIMITS, '.') == 1 and redis.call('ZADD', QUEUES, 'NX', '0', queue) == 1 and surplus(queue) or nil
end

-- shut(mark, queue): an error reply if the queue, or the tenant, accepts no new tasks, else nil. mark is the field ".." of
-- LIMITS, or false.
local function shut(mark, queue)
  if not mark or not string.find(mark, 'p', 1, true) then return nil end
  for _, scope in ipairs({ '.', queue }) do
    local pause = redis.pcall('HGET', PAUSES, 'accepting ' .. scope)
    if type(pause) == 'string' then return redis.error_reply('PAUSED ' .. scope .. ' ' .. pause) end
  end
end

-- RULE and a queue are the field of LIMITS with the concurrency of the queue's plugin: "MAX key", "MAX fair_key",
-- "MAX queue", or "MAX label NEEDLE" with the JSON of a label's name and a colon. No queue's name has a space.
local RULE = 'concurrency '

-- ruled(rule, o): the value for the field "lane" of a task of a queue with this rule, or nil if the rule leaves the task
-- alone. o contains fields of the task.
local function ruled(rule, o) -- rare
  local max, source, needle = string.match(rule, '^(%d+) (%S+) ?(.*)$')
  local key
  if source == 'queue' then
    key = source
  elseif source == 'key' then
    key = o.key
  elseif source == 'fair_key' then
    key = o.fair and string.match(o.fair, '^%d+ (.+)$')
  elseif source == 'label' and o.labels then
    local _, at = string.find(o.labels, '{' .. needle .. '"', 1, true)
    if not at then _, at = string.find(o.labels, ',' .. needle .. '"', 1, true) end
    local ends = at and at + 1
    while ends and string.sub(o.labels, ends, ends) ~= '"' do -- a quote within the value is escaped
      local special = string.find(o.labels, '["\\\\]', ends)
      ends = special and (string.sub(o.labels, special, special) == '"' and special or special + 2)
    end
    key = ends and string.sub(o.labels, at + 1, ends - 1)
  end
  return key and key ~= '' and max .. ' ' .. key or nil
end

-- FINISHED has the finished tasks of a tenant with the quota bytes_finished, and its publications that have all their tasks.
-- It exists only then. A member is "ID KEPT", and of a publication "ID KEPT TOPIC", scored by the second of the end; KEPT is
-- the field "kept" of the hash, "SIZE.NUMBER": the bytes, and digits that make the member unique. '.' comes first, scored by
-- minus the bytes of all.

-- begun(clock): the microsecond since which the tenant's finished tasks are counted, or nil if it does not have the quota
-- bytes_finished. If they are not counted yet, that begins now.
local function begun(clock)
  if redis.call('HEXISTS', QUOTAS, 'bytes_finished') == 0 then return nil end
  local since = redis.call('HGET', USED, 'bytes_finished')
  if not since or redis.call('EXISTS', FINISHED) == 0 then
    since = string.gsub(clock, '%.', '')
    redis.call('HSET', USED, 'bytes_finished', since)
    redis.call('ZADD', FINISHED, 0, '.')
  end
  return since
end

-- finishing(clock): makes a table for finished tasks that charge adds and book writes together; nil if the tenant does
-- not have the quota. Each task comes after those before, also if Redis's clock was set back.
local function finishing(clock)
  local last = redis.pcall('ZRANGE', FINISHED, -1, -1, 'WITHSCORES')
  return last[1] and { at = math.max(tonumber(clock), tonumber(last[2]) + 0.000002), sum = 0, entries = {} } or nil
end

-- charge(f, id, size, at, topic): adds a finished task, or a publication of the topic, to f, and returns the value of its
-- field "kept". at is when it ended; now without it.
local function charge(f, id, size, at, topic)
  local score = string.format('%.6f', at or f.at)
  if not at then f.at = f.at + 0.000002 end
  local kept = string.format('%.0f', size) .. string.sub(score, -7)
  f.entries[#f.entries + 1], f.entries[#f.entries + 2] = score, id .. ' ' .. kept .. (topic and ' ' .. topic or '')
  f.sum = f.sum + size
  return kept
end

-- book(f): writes the finished tasks in f.
local function book(f)
  if #f.entries == 0 then return end
  redis.call('ZADD', FINISHED, unpack(f.entries))
  redis.call('ZINCRBY', FINISHED, string.format('%.0f', -f.sum), '.')
end

-- uncount(members): takes members off FINISHED.
local function uncount(members)
  local sum = 0
  for _, member in ipairs(members) do
    if redis.pcall('ZREM', FINISHED, member) == 1 then sum = sum + (string.match(member, '^%S+ (%d+)%.') or 0) end
  end
  if sum > 0 then redis.call('ZINCRBY', FINISHED, string.format('%.0f', sum), '.') end
end

-- The fields of a task whose sizes count, in this order, beside parameters and result.
local WEIGHED = { 'run', 'after', 'labels', 'headers', 'error', 'last_error', 'checkpoint' }

-- weightof(id, h, result): about how many bytes a finished task takes: 1 KiB for what every task has, 100 for each of its
-- dependencies, and its data. h has the WEIGHED fields. result is the size of the result, if the caller knows it.
local function weightof(id, h, result)
  local sum = 1024 + 100 * tonumber(string.match(h[2] or '', '^%l+ %l+ (%d+)') or '0')
  for i = 3, 6 do sum = sum + #(h[i] or '') end
  sum = sum + tonumber(moment(h[7], '0'))
  for _, field in ipairs({ 'parameters', not result and 'result' or nil }) do
    local size = redis.call('HSTRLEN', TASK_ .. id, field)
    if size > 70 and size <= 100 then size = math.max(size, companion(id, field)) end -- it may be a marker
    sum = sum + size
  end
  if tonumber(moment(h[1], '0')) > 1 then
    for _, entry in ipairs(redis.pcall('LRANGE', ATTEMPTS_ .. id, 0, -1)) do sum = sum + #entry end
  end
  return sum + (result or 0)
end

-- countend(id, clock): counts a task that has just ended without a result, if the tenant has the quota bytes_finished.
-- Returns whether it did: then the script should end with retain. Tasks that other clients enqueued do not count, because
-- they are not forgotten either.
local function countend(id, clock)
  local f = finishing(clock)
  local h = f and redis.call('HMGET', TASK_ .. id, 'foreign', unpack(WEIGHED))
  if not h or h[1] or not h[2] then return false end
  redis.call('HSET', TASK_ .. id, 'kept', charge(f, id, weightof(id, { unpack(h, 2) }, 0)))
  book(f)
  return true
end

-- The prefix of the IDs of dead letters.
local LETTER = 'dead-'

-- inherit(id, letter): copies a task's parameters into its dead letter, if the letter only refers to them.
local function inherit(id, letter)
  local h = redis.pcall('HMGET', TASK_ .. letter, 'live_id', 'parameters', 'kept')
  local parameters = redis.call('HGET', TASK_ .. id, 'parameters')
  if h.err or h[1] ~= id or h[2] or not parameters then return end
  redis.call('HSET', TASK_ .. letter, 'parameters', parameters)
  local bytes = companion(id, 'parameters')
  if bytes > 0 then redis.pcall('HSET', BYTES_ .. letter, 'parameters', redis.call('HGET', BYTES_ .. id, 'parameters')) end
  local ended = h[3] and redis.pcall('ZSCORE', FINISHED, letter .. ' ' .. h[3])
  if type(ended) == 'string' then -- the letter has ended, and now takes more
    uncount({ letter .. ' ' .. h[3] })
    local f = { sum = 0, entries = {} }
    local size = string.match(h[3], '^%d+') + math.max(#parameters, bytes)
    redis.call('HSET', TASK_ .. letter, 'kept', charge(f, letter, size, tonumber(ended)))
    book(f)
  end
end

-- unburied: the reason why a dead letter could not be made, for the script's reply; "" if all were made.
local unburied = ''

-- bury(id, clock, dead, run, priority): makes a dead letter for a task that failed for good. The letter is a new task
-- in the queue whose name is dead, and refers to the parameters and history of the failed task. A letter that fails
-- gets a letter too. The chain ends with the fifth letter, because plugins can name each other's queues for dead
-- letters. If a key of the queue has the wrong type, or the tenant may have no more queues, no letter is made. The
-- task's field dead_error and the variable unburied then say why.
local function bury(id, clock, dead, run, priority)
  local bad = mistyped(PENDING_TASKS_ .. dead, 'list', TASKS_ .. dead, 'zset', STATS_ .. dead, 'hash', PRIORITIES_ .. dead, 'set',
    QUEUES, 'zset')
  local h = redis.call('HMGET', TASK_ .. id, 'live_id', 'letters', 'depth', 'traceparent', 'retried_at', 'created', 'headers')
  -- The letter's ID depends on the failure, so that each failure gets one letter, even if a new task has the ID of a
  -- deleted one.
  local letter = LETTER .. redis.sha1hex(id .. ' ' .. run .. ' ' .. (h[5] or '') .. ' ' .. (h[6] or ''))
  if redis.call('EXISTS', TASK_ .. letter) == 1 then return end
  local live, letters = h[1] or id, tonumber(h[2] or '0') or 0 -- live: if a letter failed, the first task of the chain
  if redis.call('HEXISTS', TASK_ .. id, 'parameters') == 1 then live = id end -- a letter with its own parameters
  if letters >= 5 then return end
  bad = bad or redis.call('ZADD', QUEUES, 'NX', '0', dead) == 1 and surplus(dead)
  if bad then
    unburied = bad.err
    redis.call('HSET', TASK_ .. id, 'dead_error', unburied)
    return
  end
  local rule = redis.pcall('HGET', LIMITS, RULE .. dead)
  local lane = type(rule) == 'string' and ruled(rule, {})
  local fields = { 'status', 'pending', 'queue', dead, 'created', clock, 'updated', clock, 'run', '0', 'live_id', live,
    'letters', letters + 1 }
  local function set(field, value)
    if value then fields[#fields + 1], fields[#fields + 2] = field, value end
  end
  set('priority', priority)
  set('depth', h[3]) -- otherwise a cycle through letters would not end
  set('traceparent', h[4])
  set('headers', h[7])
  set('lane', lane)
  redis.call('HSET', TASK_ .. letter, unpack(fields))
  redis.call('ZADD', TASKS_ .. dead, clock, letter)
  count(STATS_ .. dead, 'enqueued')
  redis.call('HSET', TASK_ .. id, 'dead_id', letter)
  if live ~= id and redis.call('TYPE', TASK_ .. live)['ok'] == 'hash' then
    local before = redis.call('HGET', TASK_ .. live, 'dead_id')
    if before then inherit(live, before) end -- the earlier letter may be retried after the first task is deleted
    redis.call('HSET', TASK_ .. live, 'dead_id', letter)
  end
  push(dead, letter, priority, false, lane, 'LPUSH')
  announce(CHANNEL_ .. dead)
end

-- owner(queue, unique, id, whole): the ID of the task that holds a uniqueness, or nil if no task other than id holds
-- it. Unless whole is set, a finished task does not hold its uniqueness any more.
local function owner(queue, unique, id, whole)
  local first = redis.pcall('GET', UNIQUE_ .. queue .. '_' .. unique)
  if type(first) ~= 'string' or first == id or not exists(queue, first) then return nil end
  local status = redis.call('HGET', TASK_ .. first, 'status')
  if not whole and (status == 'complete' or status == 'failed') then return nil end
  return first
end

-- unlock(queue, id, unique): removes the uniqueness of a finished task, because its key has no use any more. If a task
-- is not settled by these scripts, the next task with the same uniqueness takes the key over.
local function unlock(queue, id, unique)
  local key = UNIQUE_ .. queue .. '_' .. unique
  if redis.pcall('GET', key) == id then redis.call('DEL', key) end
end

-- noteend(id, code): adds a task to ENDED, so that advance.lua reports its end to its dependents. code is 1 if the task
-- failed, 2 if it is complete, and 3 if advance.lua is to look at its status. The score in ENDED is -(4 x number of
-- dependents that know of the end + code). noteend sets that number to 0, so advance.lua begins with the first
-- dependent.
local function noteend(id, code)
  redis.pcall('ZADD', ENDED, -code, id)
  announce(ENDED)
end

-- reopened(id): makes the dependents of a retried task wait again, although they know of its earlier end.
local function reopened(id)
  redis.call('HSET', TASK_ .. id, 'awaited', '1')
  noteend(id, 3)
end

-- fail(queue, id, clock, reason, text, ...): fails a task for good. The caller has made sure that no listener holds the
-- task, and has checked the types of the keys. Further arguments are fields and values for the task's hash. Returns
-- whether retain may have something to do.
local function fail(queue, id, clock, reason, text, ...)
  local key = TASK_ .. id
  redis.call('HSET', key, 'status', 'failed', 'reason', reason, 'error', text, 'updated', clock, ...)
  redis.call('LPUSH', FAILED_TASKS_ .. queue, id)
  count(STATS_ .. queue, 'failed')
  count(STATS_ .. queue, 'failed:' .. reason)
  local h = redis.call('HMGET', key, 'expires', 'dead', 'run', 'priority', 'unique', 'unique_for', 'awaited', 'dead_queue', 'fair', 'lane')
  local dead = h[8] or h[2]
  if h[9] then giveturn(queue, id, h[4], h[9]) end
  if h[10] then leave(queue, id, h[10]) end
  if h[1] then redis.call('ZREM', EXPIRY_ .. queue, id) end
  if h[7] then noteend(id, 1) end
  if h[5] and not h[6] then unlock(queue, id, h[5]) end
  if dead and dead ~= '' and dead ~= queue and reason ~= 'cancelled' and reason ~= 'dependency' then bury(id, clock, dead, h[3] or '0', h[4]) end
  announce(DONE_ .. id)
  return countend(id, clock)
end

-- back(queue, id, clock, delay, command, outcome, text, ...): makes a task wait again. The caller has made sure that no
-- listener holds the task. If delay is above 0, the task is scheduled. Otherwise it is put into its pending list;
-- command is 'LPUSH' for the back, 'RPUSH' for the front. A task marked for cancellation fails instead. If outcome is
-- not "", the run is recorded in the task's history with outcome and text. Further arguments are fields and values for
-- the task's hash. Returns whether the task waits, and whether it is in the pending list.
local function back(queue, id, clock, delay, command, outcome, text, ...)
  local key = TASK_ .. id
  local h = redis.call('HMGET', key, 'priority', 'cancel', 'expires', 'run', 'fair', 'lane')
  if h[4] == PLAIN then redis.call('HSET', key, 'run', '0') end -- a Python listener held it, and has added fields
  if h[2] then
    fail(queue, id, clock, 'cancelled', describe('cancelled', tonumber(h[4]) == 0 and 'cancelled before it ran' or 'cancelled while it ran'), ...)
    return false, false
  end
  if outcome ~= '' then record(id, clock, outcome, text) end
  local expires = moment(h[3])
  if expires then redis.call('ZADD', EXPIRY_ .. queue, expires, id) end -- expire.lua may have removed it while the task ran
  redis.call('HDEL', key, 'node', 'pid', 'result', 'error', 'reason', 'reserved_at', 'started_at', 'progress', 'message',
    'reclaimed_node', 'plugin', 'digest', 'version', 'release')
  if tonumber(delay) > 0 then
    local eta = after(clock, delay)
    redis.call('HSET', key, 'status', 'scheduled', 'eta', eta, 'updated', clock, ...)
    local first = redis.call('ZRANGE', SCHEDULED_TASKS_ .. queue, 0, 0, 'WITHSCORES')[2]
    redis.call('ZADD', SCHEDULED_TASKS_ .. queue, eta, id)
    if not first or tonumber(eta) < tonumber(first) then announce(CHANNEL_ .. queue) end
    return true, false
  end
  redis.call('HSET', key, 'status', 'pending', 'updated', clock, ...)
  push(queue, id, h[1], h[5], h[6], command)
  return true, true
end

-- place(number, id): a number below 2^32 that decides whether a task is one of the share of a canary, the release with
-- this number. The client computes the same.
local function place(number, id)
  return tonumber(string.sub(redis.sha1hex(number .. ' ' .. id), 1, 8), 16)
end

-- labelled(text, needle): whether text, the JSON of a task's labels, has the label of which needle is the JSON. A quote
-- in a name or value is escaped, so the needle is found only where a label begins.
local function labelled(text, needle)
  return text and (string.find(text, '{' .. needle, 1, true) or string.find(text, ',' .. needle, 1, true))
end

-- runners(serving, listener, from, to, clock): makes a function that decides which release of a plugin runs a task of a
-- listener. serving is the number of the one that serves. ARGV[from] to ARGV[to] are: the canary as "NUMBER PERCENT" or
-- "NUMBER label NEEDLE", or "" if there is none; then for each further release its number, its version or "" if it is
-- gone, "1" if it has a circuit breaker, the number of further values, and these values: field, value, ... that are
-- written to its tasks.
--
-- The function takes an ID, and the fields "pinned" of the task, the number of the release on which it began, and
-- "aside", since when it waits for a host that has its release. It returns the number of the task's release, or nil if
-- that serves; and the release as { version, breaks, first, last }, with the place of its values in the arguments. Without
-- a release, the third value is whether the task must wait, because this host lacks its release or another host tries it.
-- If not, no host took it for a minute or it is gone, and the release that serves runs the task.
local function runners(serving, listener, from, to, clock)
  local others, gone, bars = {}, {}, {}
  local canary, percent, needle = string.match(ARGV[from] or '', '^(%d+) (%S+) ?(.*)$')
  local at = from + 1
  while at <= to do
    local number, version, breaks, n = unpack(ARGV, at, at + 3)
    if version == '' then
      gone[number] = true
    else
      others[number] = { version = version, breaks = breaks, first = at + 4, last = at + 3 + n }
    end
    at = at + 4 + n
  end
  -- takes(id): whether the task is one of the canary's share.
  local function takes(id)
    if percent == 'label' then return labelled(redis.call('HGET', TASK_ .. id, 'labels'), needle) end
    return canary and place(canary, id) * 100 < tonumber(percent) * 4294967296
  end
  -- runs(number): the release, if this host has it, and it is not quarantined.
  local function runs(number)
    local one = others[number]
    if one and not bars[number] then bars[number] = barrier(one.version, one.breaks, clock) end
    return one and (bars[number].cause == 0 or bars[number].half) and one or nil
  end
  -- tries(id): whether this listener may run tasks of the canary. A canary may end each host that runs it. So it begins
  -- on one listener alone, until some of its tasks have ended there: the field "N first" is how many are left, that
  -- listener, and one of its tasks. When that task has ended or its listener is gone, it is the turn of the listener that
  -- asks. After a second death it is nobody's for a minute, in which hosts halt the canary.
  local mine
  local function tries(id)
    if mine ~= nil then return mine end
    local key = RELEASE_ .. string.match(others[canary].version, '^%S+')
    local h = redis.pcall('HMGET', key, canary .. ' first', canary .. ' deaths')
    local left, who, last = string.match(not h.err and h[1] or '', '^(%d+) (%S+) (%S+)$')
    mine = true
    if not left then return true end
    local task = redis.pcall('HMGET', TASK_ .. last, 'node', 'status', 'reason', 'settled', 'run')
    if task.err then task = {} end
    local deaths, at = 0, '0'
    for second in string.gmatch(h[2] or '', ' %S+ (%S+)') do deaths, at = deaths + 1, second end
    if task[1] == who and task[2] == 'started' and redis.call('ZSCORE', NODES, who) then
      mine = who == listener
    elseif deaths > 1 and tonumber(clock) - tonumber(moment(at, '0')) < 60 then
      mine = false
    else
      local ended = task[1] == who and (task[2] == 'complete' or task[2] == 'failed' and task[3] ~= 'crashed')
      local run = who .. ' ' .. (task[5] or '') .. '@' -- the last one: an earlier run may have settled the task as well
      local again = string.sub((task[4] or '') .. '@', 1, #run) == run -- its last run has ended, and it waits again
      if ended or again then left = left - 1 end
      if tonumber(left) > 0 then
        redis.call('HSET', key, canary .. ' first', string.format('%d %s %s', left, listener, id))
      else
        redis.call('HDEL', key, canary .. ' first')
      end
    end
    return mine
  end
  return function(id, pinned, aside)
    local number = pinned
    if not pinned or gone[pinned] then number = takes(id) and canary or serving end
    if number == serving then
      if pinned and pinned ~= serving then return pinned, nil, false end
      return nil
    end
    local one = runs(number)
    if one and number == canary and not tries(id) then one = nil end
    local half = one and bars[number].half
    if half then
      probe(one.version, half, listener, id)
      bars[number].half = nil
    end
    return number, one, not one and tonumber(clock) - tonumber(moment(aside, clock)) < 60
  end
end

-- The fields of a task that reserve.lua reads. Fields 4 to 22 are also in its reply. A plain task has none of the
-- fields from 5 on.
local TAKEN = { 'parameters', 'status', 'run', 'created',
  'retried_at', 'eta', 'max_age', 'expires', 'retry', 'max_attempts', 'timeout', 'deadline', 'parent', 'key', 'depth', 'traceparent',
  'headers', 'attempts', 'reschedules', 'rejects', 'checkpoint', 'last_error', 'rejected_by', 'cancel', 'pinned', 'aside' }

-- read(key, max, ask): a list of the TAKEN fields of a task, and the size of its parameters; nil if the key has the
-- wrong type. If ask is set, the size is read first, and parameters of more than max bytes are left out, because
-- copying them into a script takes long.
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

-- payload(id, h, size, max): the parameters of a task, or false if they have more than max bytes, and their size. h and
-- size are what read returned for the task. Parameters that are not UTF-8 text are in the companion hash, and the field
-- contains a marker. A dead letter has the parameters of the task that failed.
local function payload(id, h, size, max)
  if size == 0 and not h[1] then
    id = redis.call('HGET', TASK_ .. id, 'live_id')
    if id then h, size = read(TASK_ .. id, max, true) end
    if not id or not h then return '', 0 end
  end
  local text = size <= max and h[1] -- without ask, read returns larger parameters too
  if text and #text <= 100 and string.sub(text, 1, 12) == 'quern:bytes:' then
    local bytes = companion(id, 'parameters')
    if bytes > max then return false, bytes end
    if bytes > 0 then return redis.call('HGET', BYTES_ .. id, 'parameters'), bytes end
  end
  return text or size == 0 and '', size
end

-- take(out, id, run, h, size, max): appends a task to out, the reply of reserve.lua, and returns the number of bytes of
-- its parameters in the reply. h and size are what read returned for the task. The reply is one flat list, because
-- Redis takes long for lists in lists.
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

-- dependencies(text): parses text, the field "after" of a task: the state (open, blocked or released), the condition
-- under which the task runs, the number of dependencies, and how many of them have ended and failed. Returns nil if the
-- field is missing or damaged.
local function dependencies(text)
  local state, when, of, ends, failures = string.match(type(text) == 'string' and text or '', '^(%l+) (%l+) (%d+) (%d+) (%d+)$')
  return state and { state = state, when = when, of = tonumber(of), ends = tonumber(ends), failures = tonumber(failures) }
end

-- endow(id, other): if a task has no parameters, gives it the result of its only dependency, other. Returns whether the
-- task can run.
local function endow(id, other)
  local key = TASK_ .. id
  if redis.call('HSTRLEN', key, 'parameters') > 0 or redis.call('HEXISTS', key, 'live_id') == 1 then return true end
  local h = other and redis.pcall('HMGET', TASK_ .. other, 'status', 'result') or {}
  local result = h[2]
  if not result then return h[1] == 'complete' end -- a task that Python completed may have no result
  redis.call('HSET', key, 'parameters', result)
  if companion(other, 'result') > 0 then redis.pcall('HSET', BYTES_ .. id, 'parameters', redis.call('HGET', BYTES_ .. other, 'result')) end
  return true
end

-- TOLD is the value of the field "awaited" of a finished task after all its dependents have been told of its end.
local TOLD = '2'

-- noteuntold(id, awaited, status): whether some dependents of a finished task do not know of its end yet. awaited is
-- that field of the task. If the task is not in ENDED, because a Python listener has ended it, noteuntold adds it.
local function noteuntold(id, awaited, status)
  if not awaited then return false end
  if redis.call('ZSCORE', ENDED, id) then return true end
  if awaited == TOLD then return false end
  noteend(id, status == 'complete' and 2 or 1)
  return true
end

-- The fields of a task that forget needs, in this order.
local OWNED = { 'key', 'dead_id', 'lane', 'kept' }

-- forget(queue, ids, owned): deletes finished tasks and their data, except their entries in lists. The caller has made
-- sure that all dependents know of their end. owned contains the OWNED fields of each task. A task's dead letter gets a
-- copy of the parameters.
local function forget(queue, ids, owned)
  local members = {}
  for i, id in ipairs(ids) do
    local key, h = TASK_ .. id, owned[i]
    if h[1] then redis.call('ZREM', KEYS_ .. queue, 'K' .. redis.sha1hex(h[1]) .. ' ' .. id) end
    if h[2] then inherit(id, h[2]) end
    if h[3] then leave(queue, id, h[3]) end -- a Python listener may have ended it
    if h[4] then members[#members + 1] = id .. ' ' .. h[4] end
    redis.call('UNLINK', key, BYTES_ .. id, LOG_ .. id, ATTEMPTS_ .. id, AFTER_ .. id, CHILDREN_ .. id)
  end
  uncount(members)
  for from = 1, #ids, 1000 do
    redis.call('ZREM', TASKS_ .. queue, unpack(ids, from, math.min(#ids, from + 999)))
  end
end

-- cast(queue, status, ids): takes the entries of tasks that retain has forgotten off the old end of their list. An entry
-- elsewhere in the list stays as a stale entry.
local function cast(queue, status, ids)
  local list, is, n = (status == 'complete' and COMPLETE_TASKS_ or FAILED_TASKS_) .. queue, {}, 0
  for _, id in ipairs(ids) do is[id] = true end
  local ends = redis.call('LRANGE', list, -#ids, -1)
  while is[ends[#ends - n]] do n = n + 1 end
  if n > 0 then redis.call('RPOP', list, n) end
  if n < #ids then count(STATS_ .. queue, 'stale:' .. status, #ids - n) end
end

-- unpublish(topic, ids): deletes publications of a topic, and the topic with its last one.
local function unpublish(topic, ids)
  local counts = redis.pcall('EXISTS', FINISHED) == 1
  for _, id in ipairs(ids) do
    local kept = counts and redis.pcall('HGET', PUBLICATION_ .. id, 'kept')
    if type(kept) == 'string' then uncount({ id .. ' ' .. kept .. ' ' .. topic }) end
    redis.call('UNLINK', PUBLICATION_ .. id, PUBLISHED_ .. id)
  end
  if #ids > 0 then redis.call('ZREM', PUBLICATIONS_ .. topic, unpack(ids)) end
  if redis.call('EXISTS', PUBLICATIONS_ .. topic) == 0 then
    redis.call('ZREM', TOPICS, topic)
    redis.call('UNLINK', TOPIC_ .. topic)
  end
end

-- retain(most): while the finished tasks and publications have more bytes than the quota bytes_finished allows, forgets the
-- oldest ones, up to most in this call. If that is not enough, it announces that advance.lua is to go on. It passes over
-- tasks of which some dependents do not know the end, and never forgets the last one. Returns whether there is more to do.
local function retain(most) -- rare
  local list = redis.pcall('ZRANGE', FINISHED, 0, 2 * most + 1, 'WITHSCORES')
  local quota = list[1] == '.' and redis.pcall('HGET', QUOTAS, 'bytes_finished')
  quota = type(quota) == 'string' and tonumber(quota)
  if not quota then return false end
  local sum, n, groups, order = -list[2], 0, {}, {}
  local last = #list < 4 * most + 4 and #list - 2 or #list
  for i = 3, last, 2 do
    if sum <= quota or n == most then break end
    local id, kept, topic = string.match(list[i], '^(%S+) (%d+%.%d+) ?(%S*)$')
    local published = id and topic ~= ''
    local h = redis.pcall('HMGET', (published and PUBLICATION_ or TASK_) .. (id or ''), 'kept', 'status', 'queue', 'awaited',
      unpack(OWNED))
    local told = not h[4] or h[4] == TOLD
    if published then
      local whole = h[1] == kept and not mistyped(PUBLICATIONS_ .. topic, 'zset', TOPICS, 'zset')
      if whole then unpublish(topic, { id }) else uncount({ list[i] }) end
    elseif not id or h[1] ~= kept or h[2] ~= 'complete' and h[2] ~= 'failed' or not h[3] then
      uncount({ list[i] }) -- somebody deleted or changed it by hand
    elseif told then
      local g = groups[h[3] .. ' ' .. h[2]]
      if not g then
        g = { queue = h[3], status = h[2], ids = {}, owned = {} }
        groups[h[3] .. ' ' .. h[2]], order[#order + 1] = g, g
      end
      g.ids[#g.ids + 1], g.owned[#g.owned + 1] = id, { unpack(h, 5) }
    end
    if told then n, sum = n + 1, sum - (string.match(kept or '', '^%d+') or 0) end
  end
  for _, g in ipairs(order) do
    if mistyped(COMPLETE_TASKS_ .. g.queue, 'list', FAILED_TASKS_ .. g.queue, 'list', TASKS_ .. g.queue, 'zset', KEYS_ .. g.queue, 'zset',
      STATS_ .. g.queue, 'hash') then
      n = n - #g.ids
    else
      forget(g.queue, g.ids, g.owned)
      cast(g.queue, g.status, g.ids)
    end
  end
  local more = sum > quota and n > 0
  if more then announce(ENDED) end
  return more
end

-- endof(id): how a task has ended: 'complete' or 'failed', 'gone' if it does not exist (any more), or '' if it has not
-- ended.
local function endof(id)
  local status = redis.pcall('HGET', TASK_ .. id, 'status')
  if status == 'complete' or status == 'failed' then return status end
  if type(status) == 'string' then return '' end
  return redis.call('TYPE', TASK_ .. id)['ok'] == 'hash' and '' or 'gone'
end

-- noted(d): formats the dependencies d for the field "after".
local function noted(d) return string.format('%s %s %d %d %d', d.state, d.when, d.of, d.ends, d.failures) end

-- counted(d, was, is): updates the counts of the dependencies d when the end of one dependency changes from was to is;
-- '' means that the dependency has not ended.
local function counted(d, was, is)
  local function add(state, n)
    if state ~= '' then d.ends = d.ends + n end
    if state ~= '' and state ~= 'complete' then d.failures = d.failures + n end
  end
  add(was, -1)
  add(is, 1)
end

-- decide(d): what to do with a task that has the dependencies d: 'wait', 'run', 'fail', or 'skip' (complete the task
-- without a run).
local function decide(d)
  local all = d.ends == d.of
  if d.state == 'open' then return 'wait' end
  if d.when == 'ended' then return all and 'run' or 'wait' end
  if d.when == 'failed' then return d.failures > 0 and 'run' or all and 'skip' or 'wait' end
  if d.when == 'any' and d.of > 0 then return d.ends > d.failures and 'run' or all and 'fail' or 'wait' end
  return d.failures > 0 and 'fail' or all and 'run' or 'wait'
end

-- hinder(queue): an error reply if a blocked task of this queue cannot be changed, because a key has the wrong type.
local function hinder(queue)
  return mistyped(BLOCKED_ .. queue, 'zset', SCHEDULED_TASKS_ .. queue, 'zset', PENDING_TASKS_ .. queue, 'list', EXPIRY_ .. queue, 'zset',
    PRIORITIES_ .. queue, 'set', COMPLETE_TASKS_ .. queue, 'list', FAILED_TASKS_ .. queue, 'list', STATS_ .. queue, 'hash')
end

-- setexpiry(queue, id, from, age, deadline): records when a waiting task expires: at its deadline, or age seconds after
-- the time from, whichever is earlier. age and deadline can be missing.
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

-- release(queue, id, clock, d): makes a blocked task pending, or scheduled if its eta is in the future. The task's
-- maximum age counts from when it is due. If the task has no parameters and one dependency, it gets the dependency's
-- result as its parameters.
local function release(queue, id, clock, d)
  local key = TASK_ .. id
  local h = redis.call('HMGET', key, 'priority', 'eta', 'max_age', 'deadline', 'fair', 'lane')
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
    push(queue, id, h[1], h[5], h[6], 'LPUSH')
  end
  announce(CHANNEL_ .. queue)
end

-- resolve(queue, id, clock, d, why): carries out what decide returns for a blocked task. why is the message for a
-- failure.
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
  countend(id, clock)
end

-- culprit(id, state): the message for the failure of a dependent of task id, after id has ended in this state.
local function culprit(id, state)
  local ends = { failed = 'failed', gone = 'is gone', open = 'could not be waited for, because it was still open' }
  return 'task ' .. id .. ', which it waited for, ' .. (ends[state] or state)
end

-- revive(queue, id, clock, d): makes a task blocked again that failed because of its dependencies, after the end of one
-- of them has changed. Tasks that failed because of this task are revived too, by advance.lua. revive does nothing if
-- another task has the task's uniqueness now.
local function revive(queue, id, clock, d)
  local key = TASK_ .. id
  local h = redis.call('HMGET', key, 'unique', 'unique_for', 'deadline', 'awaited', 'kept')
  if h[1] and owner(queue, h[1], id, false) then return end
  if h[5] then uncount({ id .. ' ' .. h[5] }) end
  if redis.call('LLEN', FAILED_TASKS_ .. queue) <= SEARCHED then
    redis.call('LREM', FAILED_TASKS_ .. queue, 1, id)
  else
    count(key, 'stale')
    count(STATS_ .. queue, 'stale:failed')
  end
  redis.call('HDEL', key, 'error', 'reason', 'expires', 'kept', 'finished_at') -- version 0.1.0 wrote finished_at
  redis.call('HSET', key, 'status', 'scheduled', 'updated', clock)
  redis.call('ZADD', BLOCKED_ .. queue, clock, id)
  if h[1] and not h[2] then redis.pcall('SET', UNIQUE_ .. queue .. '_' .. h[1], id, 'EX', UNIQUE_LIFE) end
  setexpiry(queue, id, clock, nil, h[3])
  if h[4] then reopened(id) end
  resolve(queue, id, clock, d, '')
end

-- REPORT begins the entry of a list of reports among the dependents of a task. No ID has a space.
local REPORT = 'report '

-- tell(id, other, state, clock): reports to task id that its dependency other is now in this state, as endof returns
-- it. A repeated report changes nothing.
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

-- Makes, serves or deletes a release of a plugin, changes its canary, or freezes the plugin. A canary is a release that
-- gets a share of the tasks beside the one that serves.
-- KEYS    1 releases  2 the plugin's releases
-- ARGV    1 clock  2 plugin  3 what
--         for push: 4 the release  5 a text that is the same for the same content  6 maximum number of kept releases
--         7 maximum number of plugins  8 the share of a canary as JSON, or "" if the release is to serve
--         9 its number of steps  10... digest, size, ... of the pieces that it names
--         for serve: 4 number, or "" for the newest one before the release that serves, without those rolled back
--         for delete: 4 number, or "" for all of the plugin
--         for promote: 4 number of the canary, or ""
--         for halt: the same, and 5 the reason
--         for stop: 4 number of the canary, or of the release that serves if a push made it serve  5 the reason
--         for advance: 4 number of the canary  5 the step that ends, from 0
--         for freeze and thaw: none
-- RETURNS 'ok' and the number; 'same' and the number if there is nothing to change; 'none' if there is no such release;
--         'nocanary' if there is no such canary; 'canary' and its number if the release to delete is one;
--         'frozen'; 'serves' if the release to delete serves; 'full' if there are too many plugins; 'missing' and a
--         digest if Redis does not have a piece; the error QUOTA if no more plugins of the tenant may have releases
local bad = mistyped(KEYS[1], 'hash', KEYS[2], 'hash', PIECES, 'hash', STOPPED, 'hash')
if bad then return bad end
local clock, plugin, what = now(ARGV[1]), ARGV[2], ARGV[3]
local key = KEYS[2]
local function get(field) return redis.call('HGET', key, field) end
local serving = get('serving')
local frozen = get('frozen')
local canary = get('canary')

-- numbers(): the numbers of the plugin's releases, the newest first.
local function numbers()
  local all = {}
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.find(field, '^%d+$') then all[#all + 1] = tonumber(field) end
  end
  table.sort(all, function(a, b) return a > b end)
  return all
end

-- before(number): the newest release before this one that served and was not rolled back; nil if there is none.
local function before(number)
  for _, n in ipairs(numbers()) do
    n = string.format('%d', n)
    if tonumber(n) < tonumber(number) and not get(n .. ' back') and not get(n .. ' halted') and n ~= canary then return n end
  end
end

-- halt(reason): ends the canary if there is one. It gets no more tasks.
local function halt(reason)
  if not canary then return end
  redis.call('HDEL', key, 'canary')
  redis.call('HSET', key, canary .. ' halted', clock .. ' ' .. reason)
  canary = nil
end

-- show(): tells hosts which release to serve, which one if that fails, and which one is the canary. A host that knows no
-- canaries ignores the last line, because it reads lines in pairs. Returns whether they were told something else.
local function show()
  serving = get('serving')
  local text = serving .. '\n' .. get(serving)
  local fallback = before(serving)
  if fallback then text = text .. '\n' .. fallback .. '\n' .. get(fallback) end
  if canary then
    local step, since = string.match(get(canary .. ' step'), '^(%S+) (%S+)')
    text = text .. string.format('\n{"number":%s,"stage":{"share":%s,"step":%s,"since":%s},"release":%s}', canary,
      get(canary .. ' share'), step, since, get(canary))
  end
  local other = redis.call('HGET', KEYS[1], plugin) ~= text
  redis.call('HSET', KEYS[1], plugin, text)
  return other
end

local function changed(number)
  redis.call('HSET', KEYS[1], '.', redis.sha1hex(clock .. plugin .. what .. (number or '')))
  announce(CONTROL)
  return 'ok ' .. (number or '')
end

local function drop(number)
  redis.call('HDEL', key, number, number .. ' at', number .. ' back', number .. ' is', number .. ' share', number .. ' step',
    number .. ' halted', number .. ' trial', number .. ' first', number .. ' deaths')
end

-- started(): forgets that hosts stopped a release of the plugin.
local function started() redis.call('HDEL', STOPPED, plugin) end

-- serve(number): makes this release serve, as one that was never a canary.
local function serve(number)
  started()
  redis.call('HSET', key, 'serving', number)
  redis.call('HDEL', key, number .. ' back', number .. ' share', number .. ' step', number .. ' halted', number .. ' trial',
    number .. ' first')
  show()
  return changed(number)
end

-- promote(): makes the canary serve.
local function promote()
  local number = canary
  redis.call('HDEL', key, 'canary')
  canary = nil
  return serve(number)
end

if what == 'push' then
  local share = ARGV[8]
  if share ~= '' and not serving then return 'none' end
  local same = serving and get(serving .. ' is') == ARGV[5] and serving
  if not same and share ~= '' and canary and get(canary .. ' is') == ARGV[5] and get(canary .. ' share') == share then
    same = canary
  end
  if same then
    local entry = get(same) or ''
    local function files(text) return string.match(text, '"files":%b[]') end
    if not pcall(cjson.decode, entry) or files(entry) ~= files(ARGV[4]) then -- somebody has damaged it
      redis.call('HSET', key, same, ARGV[4])
    end
    if show() then changed(same) end
    return 'same ' .. same
  end
  if frozen then return 'frozen' end
  if not serving and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[7]) then return 'full' end
  -- HLEN counts the field "." as well.
  bad = not serving and scarce('releases', math.max(0, redis.call('HLEN', KEYS[1]) - 1))
  if bad then return bad end
  for i = 10, #ARGV, 2 do
    if not redis.call('HGET', PIECES, ARGV[i]) or redis.call('EXISTS', PIECE_ .. ARGV[i]) == 0 then
      return 'missing ' .. ARGV[i]
    end
  end
  for i = 10, #ARGV, 2 do redis.call('HSET', PIECES, ARGV[i], ARGV[i + 1] .. ' ' .. clock) end
  local number = following(get('last'))
  halt('replaced by release ' .. number)
  started()
  if serving then redis.call('HDEL', key, serving .. ' trial') end
  redis.call('HSET', key, 'last', number, number, ARGV[4], number .. ' at', clock, number .. ' is', ARGV[5])
  if share == '' then
    redis.call('HSET', key, 'serving', number, number .. ' trial', clock)
  else
    redis.call('HSET', key, 'canary', number, number .. ' share', share, number .. ' step', '0 ' .. clock .. ' ' .. ARGV[9],
      number .. ' first', '3 - -') -- see runners
    canary = number
  end
  serving = get('serving')
  local all, fallback = numbers(), before(serving)
  for i = tonumber(ARGV[6]) + 1, #all do
    local old = string.format('%d', all[i])
    if old ~= serving and old ~= fallback then drop(old) end
  end
  show()
  return changed(number)
end

if not serving then return 'none' end
if what == 'freeze' or what == 'thaw' then
  if (what == 'freeze') == (frozen and true or false) then return 'same ' .. serving end
  if frozen then redis.call('HDEL', key, 'frozen') else redis.call('HSET', key, 'frozen', clock) end
  return changed(serving)
elseif what == 'serve' then
  local number = ARGV[4] == '' and before(serving) or ARGV[4]
  if number == '' or not string.find(number, '^%d+$') or not get(number) then return 'none' end
  if number == serving then return 'same ' .. serving end
  if number == canary then
    if frozen then return 'frozen' end
    return promote()
  end
  halt('release ' .. number .. ' was made to serve')
  for _, n in ipairs(numbers()) do -- also those between: whoever passes them over does not want them back
    n = string.format('%d', n)
    local passed = tonumber(n) > tonumber(number) and tonumber(n) <= tonumber(serving)
    if passed and not get(n .. ' back') and not get(n .. ' halted') then redis.call('HSET', key, n .. ' back', clock) end
  end
  return serve(number)
elseif what == 'promote' or what == 'halt' or what == 'advance' then
  if what == 'promote' and ARGV[4] == serving then return 'same ' .. serving end
  if what == 'halt' and ARGV[4] ~= '' and get(ARGV[4] .. ' halted') then return 'same ' .. ARGV[4] end
  if not canary or ARGV[4] ~= '' and ARGV[4] ~= canary then return 'nocanary' end
  local number = canary
  if what == 'halt' then
    halt(ARGV[5])
    show()
    return changed(number)
  end
  if frozen then return 'frozen' end
  if what == 'promote' then return promote() end
  local step, steps = string.match(get(canary .. ' step'), '^(%S+) %S+ (%S+)$')
  if step ~= ARGV[5] then return 'same ' .. canary end
  if tonumber(step) + 1 >= tonumber(steps) then return promote() end
  redis.call('HSET', key, canary .. ' step', following(step) .. ' ' .. clock .. ' ' .. steps)
  show()
  return changed(number)
end

if what == 'stop' then
  local number, instead = ARGV[4], serving
  if number == canary then
    halt(ARGV[5])
    show()
  elseif number == serving and get(number .. ' trial') and before(number) then
    instead = before(number)
    redis.call('HSET', key, number .. ' back', clock .. ' ' .. ARGV[5])
    redis.call('HDEL', key, number .. ' trial')
    serve(instead)
  else
    return 'same ' .. number
  end
  redis.call('HSET', STOPPED, plugin, number .. ' ' .. instead .. ' ' .. clock .. ' ' .. ARGV[5])
  return changed(number)
end

-- delete
if ARGV[4] ~= '' then
  if not string.find(ARGV[4], '^%d+$') or not get(ARGV[4]) then return 'none' end
  if ARGV[4] == serving then return 'serves' end
  if ARGV[4] == canary then return 'canary ' .. canary end
  drop(ARGV[4])
  if string.match(redis.call('HGET', STOPPED, plugin) or '', '^%d+') == ARGV[4] then started() end
  show()
  return changed(ARGV[4])
end
if frozen then return 'frozen' end
local last = get('last')
redis.call('UNLINK', key, TRIAL_ .. plugin)
redis.call('HSET', key, 'last', last) -- a pinned task must not find its number on another release
redis.call('HDEL', KEYS[1], plugin)
started()
return changed(serving)

-- Makes, serves or deletes a release of a plugin, or freezes the plugin.
-- KEYS    1 releases  2 the plugin's releases
-- ARGV    1 clock  2 plugin  3 what
--         for push: 4 the release  5 a text that is the same for the same content  6 maximum number of kept releases
--         7 maximum number of plugins  8... digest, size, ... of the pieces that it names
--         for serve: 4 number, or "" for the newest one before the release that serves, without those rolled back
--         for delete: 4 number, or "" for all of the plugin
--         for freeze and thaw: none
-- RETURNS 'ok' and the number; 'same' and the number if there is nothing to change; 'none' if there is no such release;
--         'frozen'; 'serves' if the release to delete serves; 'full' if there are too many plugins; 'missing' and a
--         digest if Redis does not have a piece
local bad = mistyped(KEYS[1], 'hash', KEYS[2], 'hash', PIECES, 'hash')
if bad then return bad end
local clock, plugin, what = now(ARGV[1]), ARGV[2], ARGV[3]
local key = KEYS[2]
local function get(field) return redis.call('HGET', key, field) end
local serving = get('serving')
local frozen = get('frozen')

-- numbers(): the numbers of the plugin's releases, the newest first.
local function numbers()
  local all = {}
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.find(field, '^%d+$') then all[#all + 1] = tonumber(field) end
  end
  table.sort(all, function(a, b) return a > b end)
  return all
end

-- before(number): the newest release before this one that was not rolled back; nil if there is none.
local function before(number)
  for _, n in ipairs(numbers()) do
    if n < tonumber(number) and not get(n .. ' back') then return string.format('%d', n) end
  end
end

-- show(): tells hosts which release to serve, and which one if that fails.
local function show()
  serving = get('serving')
  local text = serving .. '\n' .. get(serving)
  local fallback = before(serving)
  if fallback then text = text .. '\n' .. fallback .. '\n' .. get(fallback) end
  redis.call('HSET', KEYS[1], plugin, text)
end

local function changed(number)
  redis.call('HSET', KEYS[1], '.', redis.sha1hex(clock .. plugin .. what .. (number or '')))
  announce(CONTROL)
  return 'ok ' .. (number or '')
end

local function drop(number) redis.call('HDEL', key, number, number .. ' at', number .. ' back', number .. ' is') end

if what == 'push' then
  if frozen then return 'frozen' end
  if serving and get(serving .. ' is') == ARGV[5] then return 'same ' .. serving end
  if not serving and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[7]) then return 'full' end
  for i = 8, #ARGV, 2 do
    if not redis.call('HGET', PIECES, ARGV[i]) or redis.call('EXISTS', PIECE_ .. ARGV[i]) == 0 then
      return 'missing ' .. ARGV[i]
    end
  end
  for i = 8, #ARGV, 2 do redis.call('HSET', PIECES, ARGV[i], ARGV[i + 1] .. ' ' .. clock) end
  local number = following(get('last'))
  redis.call('HSET', key, 'last', number, 'serving', number, number, ARGV[4], number .. ' at', clock, number .. ' is',
    ARGV[5])
  local all = numbers()
  for i = tonumber(ARGV[6]) + 1, #all do drop(string.format('%d', all[i])) end
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
  if tonumber(number) < tonumber(serving) then redis.call('HSET', key, serving .. ' back', clock) end
  redis.call('HSET', key, 'serving', number)
  redis.call('HDEL', key, number .. ' back')
  show()
  return changed(number)
end

-- delete
if ARGV[4] ~= '' then
  if not string.find(ARGV[4], '^%d+$') or not get(ARGV[4]) then return 'none' end
  if ARGV[4] == serving then return 'serves' end
  drop(ARGV[4])
  show()
  return changed(ARGV[4])
end
if frozen then return 'frozen' end
redis.call('UNLINK', key)
redis.call('HDEL', KEYS[1], plugin)
return changed(serving)

-- Notes what a request with an idempotency key asks for, and what became of it. The key has a digest of that, and behind a space how many
-- requests with it are under way, until one of them is done.
-- KEYS    1 once  then for each of its tasks, with 'begin' and 'refused': task, once
-- ARGV    1 'begin', 'done' or 'refused'  2 digest  3 life of the key in seconds
-- RETURNS {'other'} if the key has another digest: nothing is changed. Else {'begun'}, with 'begin' {'done'} if one was done before, and
--         if there was no key the places of the tasks that are known all the same, from 0. Who hears 'begun' must tell how it ended.
--         'refused' deletes the key when no other is under way, unless one of the tasks is known
local bad = mistyped(KEYS[1], 'string')
if bad then return bad end

local digest, underway = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+) ?(%d*)$')
if digest and digest ~= ARGV[2] then return { 'other' } end
underway = tonumber(underway or '')
local known = #KEYS > 1 and redis.call('EXISTS', unpack(KEYS, 2)) > 0

local function set(text) redis.call('SET', KEYS[1], ARGV[2] .. text, 'EX', ARGV[3]) end

local answer = { 'begun' }
if ARGV[1] == 'done' then
  set('')
elseif ARGV[1] == 'begin' then
  if digest and not underway then return { 'done' } end
  set(' ' .. (underway or 0) + 1)
  for i = 2, known and not digest and #KEYS or 0, 2 do
    if redis.call('EXISTS', KEYS[i], KEYS[i + 1]) > 0 then answer[#answer + 1] = i / 2 - 1 end
  end
elseif underway and underway > 1 then
  set(' ' .. underway - 1)
elseif underway and known then
  set('')
elseif underway then
  redis.call('UNLINK', KEYS[1])
end
return answer

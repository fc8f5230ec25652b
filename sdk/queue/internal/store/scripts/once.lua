-- Records a request with an idempotency key. The Redis key contains a digest of the request's content. Until one
-- request with the idempotency key is done, the digest is followed by a space and the number of such requests in
-- progress.
-- KEYS    1 once  then, with 'begin' and 'refused', for each task of the request: task, once
-- ARGV    1 what happened: 'begin' (the request begins), 'done' (it was enqueued) or 'refused' (it was refused)
--         2 digest  3 seconds after which the key expires
-- RETURNS {'other'} if the key has another digest; nothing is changed. {'done'}, only for 'begin', if an earlier
--         request with this digest is done. Otherwise {'begun'}; for 'begin', if there was no key, the indices (from 0)
--         of those tasks follow whose task hash or mark (once) exists. After 'begin' has returned 'begun', the caller
--         must call 'done' or 'refused'. If no other request is in progress, 'refused' deletes the key, unless one of
--         the task hashes or marks exists
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
  for i = 2, known and not digest and #KEYS - 1 or 0, 2 do
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

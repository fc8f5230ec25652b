-- Keeps the pieces of releases. The field of a piece in KEYS[1] is "SIZE SECOND": its bytes, and when somebody last
-- asked for it. The field "." has the bytes of all pieces.
-- KEYS    1 pieces
-- ARGV    1 clock  2 what
--         for want: 3 maximum bytes of all pieces  4 maximum number of pieces  5... digest, size, ...
--         for put: 3 digest  4 the piece
--         for drop: 3 second  4... digests
-- RETURNS for want: a list of those digests whose pieces Redis does not have, or "full" and the bytes of all pieces
--         for put: 'ok'; 'unwanted' if nobody has asked for the piece in this size
--         for drop: how many were deleted. Those that somebody has asked for since that second stay
local bad = mistyped(KEYS[1], 'hash')
if bad then return bad end
local clock = now(ARGV[1])
local function sizeof(digest)
  return string.match(redis.call('HGET', KEYS[1], digest) or '', '^(%d+) (%S+)$')
end

if ARGV[2] == 'put' then
  if tonumber(sizeof(ARGV[3]) or -1) ~= #ARGV[4] then return 'unwanted' end
  redis.call('SET', PIECE_ .. ARGV[3], ARGV[4])
  return 'ok'
elseif ARGV[2] == 'drop' then
  local dropped = 0
  for i = 4, #ARGV do
    local size, asked = sizeof(ARGV[i])
    if size and tonumber(moment(asked, '0')) < tonumber(ARGV[3]) then
      redis.call('UNLINK', PIECE_ .. ARGV[i])
      redis.call('HDEL', KEYS[1], ARGV[i])
      count(KEYS[1], '.', '-' .. size)
      dropped = dropped + 1
    end
  end
  return dropped
end

local new, added, missing = 0, 0, {}
for i = 5, #ARGV, 2 do
  if redis.call('EXISTS', PIECE_ .. ARGV[i]) == 0 then missing[#missing + 1] = ARGV[i] end
  if not sizeof(ARGV[i]) then new, added = new + tonumber(ARGV[i + 1]), added + 1 end
end
local total = tonumber(redis.call('HGET', KEYS[1], '.') or 0) or 0
if added > 0 and (total + new > tonumber(ARGV[3]) or redis.call('HLEN', KEYS[1]) + added > tonumber(ARGV[4])) then
  return 'full ' .. string.format('%d', total)
end
for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1] .. ' ' .. clock) end
if new > 0 then count(KEYS[1], '.', string.format('%d', new)) end
return missing

-- Appends numbered lines to a task's log, and keeps only the last lines. The caller's run must hold the task or have
-- settled it. If the tenant has the quota log_bytes, its logs are counted, in LOGS: the IDs, scored by the second at which
-- a call last looked at the log, with the bytes of the log as millionths. Each call looks at those for which that is
-- longest ago, and takes off the logs that went with their tasks.
-- KEYS    1 log
-- ARGV    1 clock override  2 listener  3 run, in the form that holder takes
--         4 maximum number of lines in the log  5 maximum bytes of the log  6 number of lines that the caller left out
--         before these lines (their numbers are skipped)  7 id  then the lines
-- RETURNS 'ok', 'lost' or 'gone'; the error QUOTA if a line in the log says that these lines are left out, or there is
--         no room for it
-- An entry is "NUMBER SECONDS TEXT". The numbers continue from run to run, so a reader who follows the log recognizes
-- new lines although the list is trimmed.
local bad = mistyped(KEYS[1], 'list', TASK_ .. ARGV[7], 'hash', LOGS, 'zset')
if bad then return bad end

local hold = holder(TASK_ .. ARGV[7], ARGV[2], ARGV[3])
if hold == 'gone' or hold == 'lost' then return hold end
local clock = now(ARGV[1])
local last = redis.call('LINDEX', KEYS[1], -1)
local digits = string.match(last or '', '^(%d+) ')
local number = tonumber(digits or '0') + tonumber(ARGV[6])
local entries, new = {}, 0
local function entry(text)
  number = number + 1
  entries[#entries + 1] = string.format('%.0f', number) .. ' ' .. clock .. ' ' .. text
  new = new + #entries[#entries]
end
for i = 8, #ARGV do entry(ARGV[i]) end

-- scoreof(bytes): the score of a log in LOGS at which this call looks. sizeof(score): the bytes in a score.
local function scoreof(bytes) return string.format('%.6f', math.floor(clock) + math.min(bytes, 999999) / 1000000) end
local function sizeof(score) return math.floor(score % 1 * 1000000 + 0.5) end
local quota = redis.pcall('HGET', QUOTAS, 'log_bytes')
quota = type(quota) == 'string' and tonumber(quota)
local own, sum = 0, 0
local refused
if quota then
  own = sizeof(redis.call('ZSCORE', LOGS, ARGV[7]) or 0)
  sum = tonumber(moment(redis.call('HGET', USED, 'log_bytes'), '0'))
  local function fits(most) return sum + math.max(0, math.min(own + new, ARGV[5] + 0) - own) <= most end
  local lines = quota * 0.9 -- the rest is for what says that lines are left out
  local n = fits(lines) and 1 or 63
  local old, kept = redis.call('ZRANGE', LOGS, 0, n, 'WITHSCORES'), {}
  for i = 1, #old, 2 do
    local id, bytes = old[i], sizeof(old[i + 1])
    if id == ARGV[7] or redis.call('EXISTS', LOG_ .. id) == 1 then
      kept[#kept + 1], kept[#kept + 2] = scoreof(bytes), id
    else
      sum = sum - bytes
      redis.call('ZREM', LOGS, id)
    end
  end
  if #kept > 0 then redis.call('ZADD', LOGS, unpack(kept)) end
  if redis.call('EXISTS', LOGS) == 0 then sum = 0 end
  if #entries > 0 and not fits(lines) then
    refused = over('log_bytes', sum, string.format('%.0f', quota), 0, #entries, new)
    entries, new = {}, 0
    local notice = 'lines are left out: the logs of tenant ' .. NS .. ' have reached the quota log_bytes of ' ..
      string.format('%.0f', quota) .. ': delete tasks, or raise it with `quern tenant set --log-bytes`'
    if not last or string.sub(last, -#notice) ~= notice then entry(notice) end
    if not fits(quota) then entries = {} end
  end
end

if #entries > 0 then redis.call('RPUSH', KEYS[1], unpack(entries)) end
redis.call('LTRIM', KEYS[1], -tonumber(ARGV[4]), -1)
local bytes, keep = 0, 0
local lines = redis.call('LRANGE', KEYS[1], 0, -1)
for i = #lines, 1, -1 do
  if keep > 0 and bytes + #lines[i] > tonumber(ARGV[5]) then break end
  bytes = bytes + #lines[i]
  keep = keep + 1
end
if keep < #lines then redis.call('LTRIM', KEYS[1], -keep, -1) end
if quota then
  if bytes > 0 then redis.call('ZADD', LOGS, scoreof(bytes), ARGV[7]) else redis.call('ZREM', LOGS, ARGV[7]) end
  redis.call('HSET', USED, 'log_bytes', string.format('%.0f', math.max(0, sum + bytes - own)))
end
return refused or 'ok'

-- Appends numbered lines to a task's log, and keeps only the last lines. The caller's run must hold the task or have
-- settled it. If the tenant has the quota log_bytes, its logs are counted, in LOGS: the IDs, scored by the second of the
-- first line, with the bytes of the log as millionths. Logs that went with their tasks are taken off when the count
-- comes to the oldest ones.
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

-- split(score): the second and the bytes of a score in LOGS.
local function split(score)
  local second = math.floor(score)
  return second, math.floor((score - second) * 1000000 + 0.5)
end
local quota = redis.pcall('HGET', QUOTAS, 'log_bytes')
quota = type(quota) == 'string' and tonumber(quota)
local second, own, sum = math.floor(clock), 0, 0
local refused
if quota then
  local score = redis.call('ZSCORE', LOGS, ARGV[7])
  if score then second, own = split(tonumber(score)) end
  sum = tonumber(moment(redis.call('HGET', USED, 'log_bytes'), '0'))
  local function fits(most) return sum + math.max(0, math.min(own + new, ARGV[5] + 0) - own) <= most end
  local lines = quota * 0.9 -- the rest is for what says that lines are left out
  local n = fits(lines) and 1 or 63
  local old = redis.call('ZRANGE', LOGS, 0, n, 'WITHSCORES')
  for i = 1, #old, 2 do
    if old[i] ~= ARGV[7] and redis.call('EXISTS', LOG_ .. old[i]) == 0 then
      local _, bytes = split(tonumber(old[i + 1]))
      sum = sum - bytes
      redis.call('ZREM', LOGS, old[i])
    end
  end
  if redis.call('EXISTS', LOGS) == 0 then sum = 0 end
  if #entries > 0 and not fits(lines) then
    local much = #entries
    refused = over('log_bytes', sum, string.format('%.0f', quota), 0, much)
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
  if bytes > 0 then
    redis.call('ZADD', LOGS, string.format('%.6f', second + math.min(bytes, 999999) / 1000000), ARGV[7])
  end
  redis.call('HSET', USED, 'log_bytes', string.format('%.0f', math.max(0, sum + bytes - own)))
end
return refused or 'ok'

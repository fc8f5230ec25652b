-- Appends numbered lines to a task's log, and keeps only the last lines. The caller's run must hold the task or have
-- settled it.
-- KEYS    1 log
-- ARGV    1 clock override  2 listener  3 run, in the form that holder takes
--         4 maximum number of lines in the log  5 maximum bytes of the log  6 number of lines that the caller left out
--         before these lines (their numbers are skipped)  7 id  then the lines
-- RETURNS 'ok', 'lost' or 'gone'
-- An entry is "NUMBER SECONDS TEXT". The numbers continue from run to run, so a reader who follows the log recognizes
-- new lines although the list is trimmed.
local bad = mistyped(KEYS[1], 'list', TASK_ .. ARGV[7], 'hash')
if bad then return bad end

local hold = holder(TASK_ .. ARGV[7], ARGV[2], ARGV[3])
if hold == 'gone' or hold == 'lost' then return hold end
local clock = now(ARGV[1])
local last = redis.call('LINDEX', KEYS[1], -1)
local digits = string.match(last or '', '^(%d+) ')
local number = tonumber(digits or '0') + tonumber(ARGV[6])
for i = 8, #ARGV do
  number = number + 1
  redis.call('RPUSH', KEYS[1], string.format('%.0f', number) .. ' ' .. clock .. ' ' .. ARGV[i])
end
redis.call('LTRIM', KEYS[1], -tonumber(ARGV[4]), -1)
local bytes, keep = 0, 0
local lines = redis.call('LRANGE', KEYS[1], 0, -1)
for i = #lines, 1, -1 do
  bytes = bytes + #lines[i]
  if bytes > tonumber(ARGV[5]) then break end
  keep = keep + 1
end
if keep < #lines then redis.call('LTRIM', KEYS[1], -math.max(keep, 1), -1) end
return 'ok'

-- What redis-cell's CL.THROTTLE does, as a script: GCRA on the server's clock.
-- KEYS: the counter. ARGV: burst, µs per unit. Returns limited, limit, remaining, retry and reset in s.
local burst = tonumber(ARGV[1])
local interval = tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local arrival = tonumber(redis.call('GET', KEYS[1])) or now
if arrival < now then
  arrival = now
end
local tolerance = burst * interval
local new = arrival + interval
if new - tolerance > now then
  local retry = math.ceil((new - tolerance - now) / 1000000)
  return { 1, burst, 0, retry, math.ceil((arrival - now) / 1000000) }
end
local reset = new - now
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', math.ceil(reset / 1000))
return { 0, burst, math.floor((tolerance - reset) / interval), -1, math.ceil(reset / 1000000) }

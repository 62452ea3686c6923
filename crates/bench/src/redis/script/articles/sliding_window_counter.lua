-- Sliding window counter: a key per window, the previous one weighted.
-- KEYS: current and previous window. ARGV: limit, window in ms, now in ms.
local limit = tonumber(ARGV[1])
local window = tonumber(ARGV[2])
local now = tonumber(ARGV[3])

local current = tonumber(redis.call('GET', KEYS[1]) or '0')
local previous = tonumber(redis.call('GET', KEYS[2]) or '0')
local elapsed = (now % window) / window
local estimate = previous * (1 - elapsed) + current

if estimate + 1 > limit then
  return { 0, 0, math.ceil(window - now % window) }
end
redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], window * 2)
return { 1, math.floor(limit - estimate - 1), 0 }

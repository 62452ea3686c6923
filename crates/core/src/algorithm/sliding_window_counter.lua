-- Sliding window counter: two aligned windows, the previous one weighted by its overlap. The twin
-- of sliding_window_counter.rs.
-- Stored: the kind, the start of the current window, the previous count, the current count.

--@prelude
local start, previous, current
local share -- the weighted count of the previous window
local stays -- whether the stored window is still current and its expiry unchanged

--@advance
  --@stored
local is
if raw and #raw == 22 then
  is, start, previous, current = unpack('>BI7I7I7', raw)
end
if is ~= 2 or start > MAX or previous > MAX or current > MAX then
  raw, start, previous, current = '\0', WIDE, 0, 0
end
stays = current > 0
if start <= t then
  local next = start + period
  if t < next then
    -- Unchanged.
  elseif t < next + period then
    start, previous, current, stays = next, current, 0, false
  else
    start, previous, current, stays = t - t % period, 0, 0, false
  end
elseif start - t <= period then
  now = start
else
  start, previous, current, stays = t - t % period, 0, 0, false
end
share = 0
if previous > 0 then
  share = mul_div(previous, start + period - now, period)
end

--@fits
if share + current + cost > limit then
  fit = false
end

--@available
available = limit - share - current

--@keep
several[i - first + 1] = {
  taken, kind, verb, cost, limit, period, raw, now, start, previous, current, share, stays,
}

--@recall
start, previous, current, share, stays = seen[9], seen[10], seen[11], seen[12], seen[13]

--@take
current = current + grant
if current > MAX then
  current = MAX
end

--@refund
if verb == REFUND or start <= taken and taken < start + period then
  unchanged = current == 0
  current = current - cost
  if current <= 0 then
    current, stays = 0, false
  end
elseif start - period <= taken and taken < start then
  unchanged = previous == 0
  previous = previous > cost and previous - cost or 0
  share = mul_div(previous, start + period - now, period)
else
  unchanged = true
end
new = current == 0 and share == 0

--@pack
if stays then
  value, from = pack('>I7I7', previous, current), '8'
else
  value = pack('>BI7I7I7', 2, start, previous, current)
  expires = floor((start + (current > 0 and 2 or 1) * period + 999) / 1000)
end

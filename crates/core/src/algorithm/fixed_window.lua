-- Fixed window: one count, in windows aligned to the Unix epoch. The twin of fixed_window.rs.
-- Stored: the kind, the start of the window, its count.

--@prelude
local start, count
local stays -- whether the stored window is still current

--@advance
  --@stored
local is
if raw and #raw == 15 then
  is, start, count = unpack('>BI7I7', raw)
end
if is ~= 1 or start > MAX or count > MAX then
  raw, start, count = '\0', WIDE, 0
end
stays = true
if start <= t then
  stays = t < start + period
elseif start - t <= period then
  now = start
else
  stays = false
end
if not stays then
  start, count = t - t % period, 0
end

--@fits
if count + cost > limit then
  fit = false
end

--@available
available = limit - count

--@keep
several[i - first + 1] = { taken, kind, verb, cost, limit, period, raw, now, start, count, stays }

--@recall
start, count, stays = seen[9], seen[10], seen[11]

--@take
count = count + grant
if count > MAX then
  count = MAX
end

--@refund
if count > 0 and (verb == REFUND or start <= taken and taken < start + period) then
  count = count - cost
  new = count <= 0
else
  unchanged = true
end

--@pack
if stays then
  value, from = pack('>I7', count), '8'
else
  value, expires = pack('>BI7I7', 1, start, count), math.floor((start + period + 999) / 1000)
end

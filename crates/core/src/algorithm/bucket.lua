-- The buckets: a level that drains at limit/period. The twin of bucket.rs.
-- Stored: the kind, when the level was last changed, a: the whole microseconds it takes to drain,
-- b: the fraction of one in parts of 1/limit, that limit, c: the millisecond it expires at.
-- The argument adds how long the whole capacity (d, e) and the cost (f, g) take to drain.

--@advance
local changed, under
raw = pcall('GET', key)
if type(raw) == 'string' and #raw == 29 then
  e, changed, a, b, under, c = unpack('>BI7I7I4I4I6', raw)
end
if e ~= 3 or changed > MAX or a > MAX or b >= under then
  raw, changed, a, b, under, c = '\0', t, 0, 0, limit, 0
end
d, e, f, g = unpack('>I7I4I7I4', arg, at)
if t < changed then
  if changed - t <= d + (e > 0 and 1 or 0) then
    now = changed
  else
    changed, a, b = t, 0, 0
  end
end
if under ~= limit then
  -- The same used units, rounded up, under another limit: what a whole unit lacks is added.
  local _, over = mul_div(a, under, period)
  local lacks = (period - (over + b) % period) % period
  local us, rest = mul_div(a, under, limit)
  rest = rest + b + lacks
  a, b = us + floor(rest / limit), rest % limit
  if a >= MAX then
    a, b = MAX, 0
  end
end
a = a - (now - changed)
if a < 0 then
  a, b = 0, 0
end

--@fits
local us, part = a + f, b + g
if part >= limit then
  us, part = us + 1, part - limit
end
fits = us < d or us == d and part <= e

--@available
available = 0
if a < d or a == d and b < e then
  local us, part = d - a, e - b
  if part < 0 then
    us, part = us - 1, part + limit
  end
  local units, rest = mul_div(us, limit, period)
  available = units + floor((rest + part) / period)
end

--@take
if grant < cost then
  f, g = mul_div(grant, period, limit)
end
a, b = a + f, b + g
if b >= limit then
  a, b = a + 1, b - limit
end
if a >= MAX then
  a, b = MAX, 0
end

--@give_back
if taken and taken < now then
  -- Some of it has drained since; the rest of it is still in the level.
  f = f - (now - taken)
end
if f >= 0 then
  a, b = a - f, b - g
  if b < 0 then
    a, b = a - 1, b + limit
  end
end
new = a < 0 or a == 0 and b == 0

--@pack
local empty = now + a + (b > 0 and 1 or 0)
local latest = floor((empty + d + (e > 0 and 1 or 0)) / 1000)
if c * 1000 < empty or c > latest then
  c = floor((empty + 999) / 1000)
  if c < latest then
    c = latest
  end
  expires = c
end
value = pack('>BI7I7I4I4I6', 3, now, a, b, limit, c)

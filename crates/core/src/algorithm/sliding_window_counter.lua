-- Sliding window counter: two aligned windows, the previous one weighted by its overlap. The twin
-- of sliding_window_counter.rs.
-- Stored: the kind, a: when the current window started, b: the previous count, c: the current.

--@advance
raw = pcall('GET', key)
if type(raw) == 'string' and #raw == 22 then
  e, a, b, c = unpack('>BI7I7I7', raw)
end
if e ~= 2 or a > MAX or b > MAX or c > MAX then
  raw = '\0'
end
e = false -- whether the stored window is still the current one and will matter as long
if raw ~= '\0' and t < a and a - t <= period then
  now, e = a, c > 0
elseif raw ~= '\0' and a <= t and t < a + period then
  e = c > 0
elseif raw ~= '\0' and a <= t and t < a + 2 * period then
  a, b, c = a + period, c, 0
else
  a, b, c = t - t % period, 0, 0
end
-- d: what the previous window still counts for.
d = 0
if b > 0 then
  local overlap = a + period - now
  local product = b * overlap
  if product < WIDE then
    d = floor(product / period)
  else
    d = mul_div(b, overlap, period)
  end
end

--@fits
fits = d + c + cost <= limit

--@available
available = limit - d - c

--@take
c = c + grant
if c > MAX then
  c = MAX
end

--@give_back
if verb == REFUND or taken >= a then
  c = c - cost
  if c <= 0 then
    c, e = 0, false
  end
elseif taken >= a - period then
  b = b > cost and b - cost or 0
  d = b > 0 and mul_div(b, a + period - now, period) or 0
end
new = c == 0 and d == 0

--@pack
value = pack('>BI7I7I7', 2, a, b, c)
if not e then
  expires = floor((a + (c > 0 and 2 or 1) * period + 999) / 1000)
end

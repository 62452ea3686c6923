-- Fixed window: one count, in windows aligned to the Unix epoch. The twin of fixed_window.rs.
-- Stored: the kind, a: when the window started, b: its count.

--@advance
raw = pcall('GET', key)
if type(raw) == 'string' and #raw == 15 then
  e, a, b = unpack('>BI7I7', raw)
end
if e ~= 1 or a > MAX or b > MAX then
  raw = '\0'
end
e = false -- whether the stored window is still the one
if raw ~= '\0' and t < a and a - t <= period then
  now, e = a, true
elseif raw ~= '\0' and a <= t and t < a + period then
  e = true
else
  a, b = t - t % period, 0
end

--@fits
fits = b + cost <= limit

--@available
available = limit - b

--@take
b = b + grant
if b > MAX then
  b = MAX
end

--@give_back
if verb == REFUND or taken >= a then
  b = b - cost
end
new = b <= 0

--@pack
value = pack('>BI7I7', 1, a, b)
if not e then
  expires = floor((a + period + 999) / 1000)
end

-- Reads several counters in one call: a call costs more than what it reads. A few hundred at a
-- time, as Lua's stack has an end. False is read for what is not there.
if last > 1 then
  values = call('MGET', _G.unpack(KEYS, 1, last < 256 and last or 256))
  for from = 257, last, 256 do
    local to = from + 255 < last and from + 255 or last
    for k, value in ipairs(call('MGET', _G.unpack(KEYS, from, to))) do
      values[from + k - 1] = value
    end
  end
end

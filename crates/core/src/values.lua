-- Reads several counters in one call: a call costs more than what it reads. A few hundred at a
-- time, as Lua's stack has an end. False is read for what is not there.
if last > 1 then
  values = {}
  for from = 1, last, 256 do
    local to = from + 255
    if to > last then
      to = last
    end
    local got = call('MGET', _G.unpack(KEYS, from, to))
    for k = from, to do
      values[KEYS[k]] = got[k - from + 1]
    end
  end
end

-- The stored value of one counter: as read with the others, unless written since.
if values and not (written and written[key]) then
  raw = values[i]
else
  raw = pcall('GET', key)
  if type(raw) == 'table' then
    -- Of another type, unless it fails again.
    raw = not string.find(raw.err, 'WRONGTYPE', 1, true) and call('GET', key)
  end
end

-- The stored value of one counter: as read with the others, unless written since.
if values and not (written and written[key]) then
  raw = values[i]
else
  raw = pcall('GET', key)
end

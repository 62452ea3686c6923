-- What is stored of one counter: as it was read with the others, unless it has changed since.
if values and not (written and written[key]) then
  raw = values[i]
else
  raw = pcall('GET', key)
end

-- The further keys of the limits follow those of all counters.
last, offset = unpack('>I2', arguments)
local extra = last + 1 -- the position of the next one

-- The further keys of the limits follow those of all counters.
last, offset = unpack('>I2', arguments)
local extra = last + 1 -- the position of the next one
-- The reply to a command, nil if the key is of another type. Any other error, such as a missing
-- permission, is one of the script.
local function reply_to(...)
  local reply = pcall(...)
  if type(reply) == 'table' and reply.err then
    return not string.find(reply.err, 'WRONGTYPE', 1, true) and call(...) or nil
  end
  return reply
end

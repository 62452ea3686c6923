-- Divides a * b by c. Returns quotient and remainder. The twin of math.rs. b and c are below 2^45.
local floor = math.floor
local function mul_div(a, b, c)
  local product = a * b
  if product < WIDE then
    local quotient = floor(product / c)
    return quotient, product - quotient * c
  end
  -- By the bytes of a, highest first, so that no intermediate exceeds 2^53.
  local quotient, rest, scale = 0, 0, 281474976710656
  while scale >= 1 do
    local byte = floor(a / scale)
    a = a - byte * scale
    local above, part = rest * 256, b * byte
    local from_above, from_part = floor(above / c), floor(part / c)
    rest = above - from_above * c + part - from_part * c
    quotient = quotient * 256 + from_above + from_part
    if rest >= c then
      rest, quotient = rest - c, quotient + 1
    end
    scale = scale / 256
  end
  return quotient, rest
end

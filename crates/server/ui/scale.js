// Round numbers for the axes of charts.

/** The ticks of an axis from 0 to at least `highest`, in steps of 1, 2 or 5 times a power of ten. */
export function ticks(highest, most = 5) {
  const rough = Math.max(highest, 1) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * (1 - 1e-9)));
  const count = Math.ceil(Math.max(highest, 1) / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, at) => at * step);
}

/** Moves labels apart: the nearest positions at least `gap` apart and within bounds, in the given order. */
export function apart(positions, gap, lowest, highest) {
  const placed = positions.map((position, at) => ({ position, at })).sort((a, b) => a.position - b.position);
  let free = lowest;
  for (const one of placed) {
    one.position = Math.max(one.position, free);
    free = one.position + gap;
  }
  let last = highest;
  for (const one of placed.reverse()) {
    one.position = Math.min(one.position, last);
    last = one.position - gap;
  }
  return placed.sort((a, b) => a.at - b.at).map((one) => one.position);
}

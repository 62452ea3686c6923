// Parses and formats quotas, so that the form and the text stay in sync while typing. The server
// validates them.

const UNITS = [
  ['d', /^(d|days?)$/, 86400e6],
  ['h', /^(h|hours?)$/, 3600e6],
  ['min', /^(m|mins?|minutes?)$/, 60e6],
  ['s', /^(s|secs?|seconds?)$/, 1e6],
  ['ms', /^ms$/, 1e3],
];

const SHAPE = /^(?:([a-z-]+) )?(\d{1,10})\/([a-z0-9]+)(?: (burst|queue) (\d{1,10}))?$/;

/** Parses a quota, or returns null. */
export function parse(text) {
  const match = SHAPE.exec(text);
  if (!match) return null;
  const [, name, limit, periodText, keyword, amount] = match;
  const algorithm = name === 'gcra' ? 'token-bucket' : (name ?? 'sliding-window-counter');
  const period = periodUs(periodText);
  if (!period) return null;
  const bucket = algorithm.endsWith('bucket');
  if (bucket !== Boolean(keyword) && keyword) return null;
  return {
    algorithm,
    limit: Number(limit),
    period,
    keyword: keyword ?? (bucket ? 'burst' : null),
    capacity: amount === undefined ? Number(limit) : Number(amount),
  };
}

/** The canonical text of a quota. */
export function format({ algorithm, limit, period, keyword, capacity }) {
  const extra = keyword ? ` ${keyword} ${capacity}` : '';
  return `${algorithm} ${limit}/${periodText(period)}${extra}`;
}

/** A period as in a quota: `10s`, `min`, `1h30min`. */
export function periodText(us) {
  const whole = UNITS.find(([, , unit]) => unit === us);
  if (whole) return whole[0];
  let text = '';
  let rest = us;
  for (const [name, , unit] of UNITS) {
    if (rest < unit) continue;
    text += `${Math.floor(rest / unit)}${name}`;
    rest %= unit;
  }
  return text;
}

function periodUs(text) {
  const single = UNITS.find(([, names]) => names.test(text));
  if (single) return single[2];
  let total = 0;
  let previous = -1;
  for (const [part, count, unit] of text.matchAll(/(\d*)([a-z]*)/g)) {
    if (part === '') continue;
    const match = UNITS.findIndex(([, names]) => names.test(unit));
    if (count === '' || match <= previous) return null;
    total += Number(count) * UNITS[match][2];
    previous = match;
  }
  return total;
}

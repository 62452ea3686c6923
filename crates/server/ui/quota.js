// The text form of a quota, read and written as the engine does it, so that form and text move
// together while somebody types. Whether a quota is good the engine says; this only knows the shape.

const UNITS = [
  ['d', /^(d|days?)$/, 86400e6],
  ['h', /^(h|hours?)$/, 3600e6],
  ['min', /^(m|mins?|minutes?)$/, 60e6],
  ['s', /^(s|secs?|seconds?)$/, 1e6],
  ['ms', /^ms$/, 1e3],
];

const SHAPE = /^(?:([a-z-]+) )?(\d{1,10})\/([a-z0-9]+)(?: (burst|queue) (\d{1,10}))?$/;

/** Reads a quota into its parts, or answers null where it has not the shape of one. */
export function parse(text) {
  const found = SHAPE.exec(text);
  if (!found) return null;
  const [, name, limit, periodText, word, amount] = found;
  const algorithm = name === 'gcra' ? 'token-bucket' : (name ?? 'sliding-window-counter');
  const period = periodUs(periodText);
  if (!period) return null;
  const bucket = algorithm.endsWith('bucket');
  if (bucket !== Boolean(word) && word) return null;
  return {
    algorithm,
    limit: Number(limit),
    period,
    word: word ?? (bucket ? 'burst' : null),
    capacity: amount === undefined ? Number(limit) : Number(amount),
  };
}

/** Writes the one canonical text of a quota. */
export function format({ algorithm, limit, period, word, capacity }) {
  const extra = word ? ` ${word} ${capacity}` : '';
  return `${algorithm} ${limit}/${periodText(period)}${extra}`;
}

/** A period as quotas write it: `10s`, `min`, `1h30min`. */
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
  const lone = UNITS.find(([, names]) => names.test(text));
  if (lone) return lone[2];
  let total = 0;
  let rank = -1;
  for (const [part, count, unit] of text.matchAll(/(\d*)([a-z]*)/g)) {
    if (part === '') continue;
    const found = UNITS.findIndex(([, names]) => names.test(unit));
    if (count === '' || found <= rank) return null;
    total += Number(count) * UNITS[found][2];
    rank = found;
  }
  return total;
}

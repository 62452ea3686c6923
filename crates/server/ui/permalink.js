// The whole setting as a link, and back. What is as it comes is left out. Knows which settings there
// are; knows nothing of how they are shown.

import { BEHAVIOURS } from './algorithms.js';
import { MODES, SPEEDS } from './clock.js';
import { BARS, OPTIONS, SOURCES } from './traffic.js';

const RANGES = { rate: [0.5, 20], size: [1, 50], gap: [1, 30], jobs: [0.5, 10], span: [1, 30] };

export const DEFAULTS = { source: 'bursty', clock: 'real', speed: 0.2, span: 10 };

/** Reads a link's hash; whatever makes no sense is as it comes. */
export function read(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ''));
  const number = (name, otherwise) => {
    const [least, most] = RANGES[name];
    const value = Number(given.get(name) ?? otherwise);
    return Number.isFinite(value) ? Math.min(most, Math.max(least, value)) : otherwise;
  };
  const choice = (name, all, otherwise) => (all.includes(given.get(name)) ? given.get(name) : otherwise);
  const bars = (given.get('bars') ?? '').split('.').map(Number);
  const good = bars.length === BARS && bars.every((bar) => Number.isInteger(bar) && bar >= 0 && bar <= 20);
  const speed = Number(given.get('speed'));
  return {
    // Something was set: a visitor who comes by link wants that, not a welcome.
    any: hash.includes('='),
    quotas: Object.fromEntries(BEHAVIOURS.map(({ id, quota }) => [id, (given.get(id) ?? quota).slice(0, 120)])),
    source: choice('traffic', Object.keys(SOURCES), DEFAULTS.source),
    clock: choice('clock', MODES, DEFAULTS.clock),
    speed: SPEEDS.includes(speed) ? speed : DEFAULTS.speed,
    span: number('span', DEFAULTS.span),
    options: {
      rate: number('rate', OPTIONS.rate), size: Math.round(number('size', OPTIONS.size)), gap: number('gap', OPTIONS.gap),
      jobs: number('jobs', OPTIONS.jobs), obey: given.get('obey') === 'yes', bars: good ? bars : [...OPTIONS.bars],
    },
  };
}

/** Writes the setting as a hash. */
export function write({ quotas, source, clock, speed, span, options }) {
  const link = new URLSearchParams();
  const note = (name, value, usual) => {
    if (value !== usual) link.set(name, value);
  };
  for (const { id, quota } of BEHAVIOURS) note(id, quotas[id], quota);
  note('traffic', source, DEFAULTS.source);
  note('clock', clock, DEFAULTS.clock);
  if (clock === 'slow') note('speed', String(speed), String(DEFAULTS.speed));
  note('span', String(span), String(DEFAULTS.span));
  for (const name of ['rate', 'size', 'gap', 'jobs']) note(name, String(options[name]), String(OPTIONS[name]));
  if (options.obey) link.set('obey', 'yes');
  note('bars', options.bars.join('.'), OPTIONS.bars.join('.'));
  const text = link.toString().replaceAll('%2F', '/');
  return text ? `#${text}` : '';
}

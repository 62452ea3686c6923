// The settings of the page as a URL hash. Defaults are omitted.

import { ALGORITHMS } from './algorithms.js';
import { MODES, SPEEDS } from './clock.js';
import { BARS, OPTIONS, SOURCES } from './traffic.js';

const RANGES = { rate: [0.5, 20], size: [1, 50], gap: [1, 30], jobs: [0.5, 10], span: [1, 30] };

export const DEFAULTS = { source: 'bursty', clock: 'real', speed: 0.2, span: 10 };

/** Parses a hash; invalid values become defaults. */
export function parseHash(hash) {
  const params = new URLSearchParams(hash.replace(/^#/, ''));
  const number = (name, fallback) => {
    const [min, max] = RANGES[name];
    const value = Number(params.get(name) ?? fallback);
    return Number.isFinite(value) ? Math.min(max, Math.max(min, value)) : fallback;
  };
  const choice = (name, all, fallback) => (all.includes(params.get(name)) ? params.get(name) : fallback);
  const bars = (params.get('bars') ?? '').split('.').map(Number);
  const valid = bars.length === BARS && bars.every((bar) => Number.isInteger(bar) && bar >= 0 && bar <= 20);
  const speed = Number(params.get('speed'));
  return {
    // Whether the link has settings: then there is no welcome.
    custom: hash.includes('='),
    quotas: Object.fromEntries(ALGORITHMS.map(({ id, quota }) => [id, (params.get(id) ?? quota).slice(0, 120)])),
    source: choice('traffic', Object.keys(SOURCES), DEFAULTS.source),
    clock: choice('clock', MODES, DEFAULTS.clock),
    speed: SPEEDS.includes(speed) ? speed : DEFAULTS.speed,
    span: number('span', DEFAULTS.span),
    options: {
      rate: number('rate', OPTIONS.rate), size: Math.round(number('size', OPTIONS.size)), gap: number('gap', OPTIONS.gap),
      jobs: number('jobs', OPTIONS.jobs), obey: params.get('obey') === 'yes', bars: valid ? bars : [...OPTIONS.bars],
    },
  };
}

/** Formats the settings as a hash. */
export function formatHash({ quotas, source, clock, speed, span, options }) {
  const link = new URLSearchParams();
  const add = (name, value, fallback) => {
    if (value !== fallback) link.set(name, value);
  };
  for (const { id, quota } of ALGORITHMS) add(id, quotas[id], quota);
  add('traffic', source, DEFAULTS.source);
  add('clock', clock, DEFAULTS.clock);
  if (clock === 'slow') add('speed', String(speed), String(DEFAULTS.speed));
  add('span', String(span), String(DEFAULTS.span));
  for (const name of ['rate', 'size', 'gap', 'jobs']) add(name, String(options[name]), String(OPTIONS[name]));
  if (options.obey) link.set('obey', 'yes');
  add('bars', options.bars.join('.'), OPTIONS.bars.join('.'));
  const text = link.toString().replaceAll('%2F', '/');
  return text ? `#${text}` : '';
}

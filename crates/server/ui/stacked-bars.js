// Rates over the last three minutes as stacked bars.

import { renderEach, s, setAttributes } from './dom.js';

export const SECONDS = 180;
/** From the bottom up: the name and the CSS class. */
export const KINDS = [['admitted', 'admit'], ['delayed', 'wait'], ['would refuse', 'shadow-refuse'], ['refused', 'refuse'], ['degraded', 'unchecked']];

/** Maps outcomes to kinds. */
export function kinds(rates) {
  return {
    admitted: rates.admitted ?? 0,
    delayed: rates.delayed ?? 0,
    'would refuse': rates.shadow_refused ?? 0,
    refused: rates.refused ?? 0,
    degraded: (rates.degraded_admitted ?? 0) + (rates.degraded_refused ?? 0),
  };
}

/** Stacked bars, one per second. */
export function stackedBars(wide, tall, name) {
  const groups = KINDS.map(([, colour]) => s('g', { class: colour }));
  const floor = s('line', { x1: 0, x2: wide, y1: tall - 0.5, y2: tall - 0.5, class: 'axis' });
  const element = s('svg', { viewBox: `0 0 ${wide} ${tall}`, class: 'bands', role: 'img', 'aria-label': name, preserveAspectRatio: 'none' }, floor, ...groups);
  return {
    element,
    /** `past` has the kinds of each second, the latest last. Returns the highest sum. */
    draw(past) {
      const sums = past.map((one) => KINDS.reduce((sum, [kind]) => sum + one[kind], 0));
      const tallest = Math.max(0, ...sums);
      const highest = Math.max(1, tallest);
      const width = wide / SECONDS;
      // A gap between bars only if there is room for one.
      const bar = wide > 2 * SECONDS ? width * 0.82 : width * 1.05;
      KINDS.forEach(([kind], level) => {
        const bars = [];
        past.forEach((one, at) => {
          if (!one[kind]) return;
          const below = KINDS.slice(0, level).reduce((sum, [lower]) => sum + one[lower], 0);
          bars.push({ x: wide - (past.length - at) * width, y: (below + one[kind]) / highest, height: one[kind] / highest });
        });
        renderEach(groups[level], 'rect', bars, (rect, { x, y, height }) =>
          setAttributes(rect, { x, y: (1 - y) * (tall - 3) + 2, width: bar, height: height * (tall - 3) }));
      });
      return tallest;
    },
  };
}

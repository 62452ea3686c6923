// Rates over the last three minutes as stacked bars.

import { renderEach, h, s, setAttributes, setText } from './dom.js';
import { ticks } from './scale.js';

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

/** What happened in each of the last seconds. A stream that broke leaves a gap. */
export class History {
  #past = [];

  push(t_ms, rates) {
    // A clock that was set back would hide what follows.
    this.#past = this.#past.filter((one) => one.t_ms < t_ms && one.t_ms > t_ms - SECONDS * 1000);
    this.#past.push({ t_ms, rates });
  }

  /** `[seconds ago, rates]` of each. */
  get entries() {
    const latest = this.#past.at(-1)?.t_ms ?? 0;
    return this.#past.map(({ t_ms, rates }) => [Math.round((latest - t_ms) / 1000), rates]);
  }

  get idle() {
    return this.#past.every(({ rates }) => KINDS.every(([kind]) => rates[kind] === 0));
  }
}

/** Stacked bars, one per second. */
export function stackedBars(wide, tall, name) {
  const groups = KINDS.map(([, colour]) => s('g', { class: colour }));
  const grid = s('g', { class: 'grid' });
  const floor = s('line', { x1: 0, x2: wide, y1: tall - 0.5, y2: tall - 0.5, class: 'axis' });
  const element = s('svg', { viewBox: `0 0 ${wide} ${tall}`, class: 'bands', role: 'img', 'aria-label': name, preserveAspectRatio: 'none' }, grid, floor, ...groups);
  return {
    element,
    /** Draws entries of a history up to a highest sum, with lines at some. */
    draw(entries, highest, marks = []) {
      const width = wide / SECONDS;
      // A gap between bars only if there is room for one.
      const bar = wide > 2 * SECONDS ? width * 0.82 : width * 1.05;
      renderEach(grid, 'line', marks, (line, mark) => setAttributes(line, { x1: 0, x2: wide, y1: tall * (1 - mark / highest), y2: tall * (1 - mark / highest) }));
      KINDS.forEach(([kind], level) => {
        const bars = [];
        for (const [ago, rates] of entries) {
          if (!rates[kind]) continue;
          const below = KINDS.slice(0, level).reduce((sum, [lower]) => sum + rates[lower], 0);
          bars.push({ x: wide - (ago + 1) * width, y: (below + rates[kind]) / highest, height: rates[kind] / highest });
        }
        renderEach(groups[level], 'rect', bars, (rect, { x, y, height }) =>
          setAttributes(rect, { x, y: (1 - y) * tall, width: bar, height: height * tall }));
      });
    },
  };
}

/** The highest sum of all kinds in a second. */
export function tallest(entries) {
  return Math.max(0, ...entries.map(([, rates]) => KINDS.reduce((sum, [kind]) => sum + rates[kind], 0)));
}

/** Stacked bars with labelled axes. */
export function barChart(name) {
  const bars = stackedBars(720, 150, name);
  const counts = h('div', { class: 'y-axis', 'aria-hidden': 'true' });
  const times = h('div', { class: 'x-axis', 'aria-hidden': 'true' }, ...['−3 min', '−2 min', '−1 min', 'now'].map((text) => h('span', {}, text)));
  return {
    element: h('div', { class: 'chart' }, counts, bars.element, times),
    draw(entries) {
      const marks = ticks(tallest(entries), 4);
      const highest = marks.at(-1);
      bars.draw(entries, highest, marks.slice(1));
      while (counts.childElementCount > marks.length) counts.lastElementChild.remove();
      while (counts.childElementCount < marks.length) counts.append(h('span'));
      marks.forEach((mark, at) => {
        setText(counts.children[at], mark.toLocaleString('en'));
        counts.children[at].style.bottom = `${(mark / highest) * 100}%`;
      });
      bars.element.setAttribute('aria-label', `${name}: at most ${tallest(entries)} per second`);
    },
  };
}

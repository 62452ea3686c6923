// What the pictures share: the sheet they are drawn on, labels, and the lane of arrivals below. Draws
// what it is given; asks nobody.

import { each, s, set } from '../dom.js';

export const WIDTH = 360;
export const HEIGHT = 158;
/** The picture proper ends here; the lane is below. */
export const FLOOR = 98;

/** A sheet with a title for those who do not see it. */
export function sheet(name, ...children) {
  return s('svg', { class: 'picture', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': name }, ...children);
}

export function label(x, y, anchor = 'start', kind = '') {
  return s('text', { x, y, 'text-anchor': anchor, class: `label ${kind}` });
}

/** Where in the lane an instant is: the last two periods. */
const MIDDLE = 126;
const ARM = 17;
const BIN = 4;

/** The seismograph of the last two periods: admitted up, refused down. */
export function lane() {
  const [up, down] = [s('g', { class: 'admit' }), s('g', { class: 'refuse' })];
  const [then, now] = [label(1, 155), label(WIDTH - 1, 155, 'end')];
  now.textContent = 'now';
  const axis = s('line', { x1: 0, x2: WIDTH, y1: MIDDLE, y2: MIDDLE, class: 'axis' });
  const element = s('g', { class: 'lane' }, axis, up, down, then, now);
  return {
    element,
    draw(history, quota, at) {
      const span = 2 * quota.period;
      then.textContent = `${shortSpan(span)} ago`;
      const bins = new Map();
      for (let i = history.length - 1; i >= 0 && history[i].t > at - span; i -= 1) {
        // Bins stand still in time, so that bars slide and do not flicker.
        const width = (span * BIN) / WIDTH;
        const bin = Math.floor(history[i].t / width);
        const sums = bins.get(bin) ?? [0, 0, (bin + 0.5) * width];
        sums[history[i].allowed ? 0 : 1] += 1;
        bins.set(bin, sums);
      }
      const all = [...bins.values()];
      // A tall stack is squeezed: its height tells ten from a hundred, not 97 from 98.
      const tallest = Math.max(10, ...all.flatMap(([yes, no]) => [yes, no]));
      const height = (count) => Math.max(3, (ARM * count) / tallest);
      const x = (t) => WIDTH - BIN / 2 - ((at - t) / span) * WIDTH;
      each(up, 'rect', all.filter(([yes]) => yes), (bar, [count, , t]) =>
        set(bar, { x: x(t) - 1.5, y: MIDDLE - 1 - height(count), width: 3, height: height(count), rx: 1 }));
      each(down, 'rect', all.filter(([, no]) => no), (bar, [, count, t]) =>
        set(bar, { x: x(t) - 1.5, y: MIDDLE + 1, width: 3, height: height(count), rx: 1 }));
    },
  };
}

/** `20 s`, `2 min`: a span that stays as it is. */
export function shortSpan(us) {
  if (us < 1e6) return `${Math.round(us / 100) / 10} ms`;
  if (us < 12e7) return `${Math.round(us / 1e5) / 10} s`;
  if (us < 72e8) return `${Math.round(us / 6e6) / 10} min`;
  return `${Math.round(us / 36e7) / 10} h`;
}

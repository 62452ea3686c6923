// Shared by the diagrams: the SVG element, labels, and the timeline of requests at the bottom.

import { renderEach, s, setAttributes } from '../dom.js';

export const WIDTH = 360;
export const HEIGHT = 122;
/** The bottom of the state; the timeline is below. */
export const FLOOR = 80;

export function diagram(name, ...children) {
  return s('svg', { class: 'diagram', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': name }, ...children);
}

export function label(x, y, anchor = 'start', kind = '') {
  return s('text', { x, y, 'text-anchor': anchor, class: `label ${kind}` });
}

const MIDDLE = 100;
const ARM = 14;
const BIN = 4;

/** The last two periods: admitted requests up, refused ones down. */
export function timeline() {
  const [up, down] = [s('g', { class: 'admit' }), s('g', { class: 'refuse' })];
  const [then, now] = [label(1, 119, 'start', 'small'), label(WIDTH - 1, 119, 'end', 'small')];
  now.textContent = 'now';
  const axis = s('line', { x1: 0, x2: WIDTH, y1: MIDDLE, y2: MIDDLE, class: 'axis' });
  const element = s('g', { class: 'timeline' }, axis, up, down, then, now);
  return {
    element,
    draw(history, quota, at) {
      const span = 2 * quota.period;
      then.textContent = `${shortSpan(span)} ago`;
      const bins = new Map();
      for (let i = history.length - 1; i >= 0 && history[i].t > at - span; i -= 1) {
        // Bins are fixed in time, so that bars slide without flicker.
        const width = (span * BIN) / WIDTH;
        const bin = Math.floor(history[i].t / width);
        const sums = bins.get(bin) ?? [0, 0, (bin + 0.5) * width];
        sums[history[i].allowed ? 0 : 1] += 1;
        bins.set(bin, sums);
      }
      const all = [...bins.values()];
      // Scaled down to fit.
      const tallest = Math.max(10, ...all.flatMap(([yes, no]) => [yes, no]));
      const height = (count) => Math.max(3, (ARM * count) / tallest);
      const x = (t) => WIDTH - BIN / 2 - ((at - t) / span) * WIDTH;
      renderEach(up, 'rect', all.filter(([yes]) => yes), (bar, [count, , t]) =>
        setAttributes(bar, { x: x(t) - 1.5, y: MIDDLE - 1 - height(count), width: 3, height: height(count), rx: 1 }));
      renderEach(down, 'rect', all.filter(([, no]) => no), (bar, [, count, t]) =>
        setAttributes(bar, { x: x(t) - 1.5, y: MIDDLE + 1, width: 3, height: height(count), rx: 1 }));
    },
  };
}

/** A span: `20 s`, `2 min`. */
export function shortSpan(us) {
  if (us < 1e6) return `${Math.round(us / 100) / 10} ms`;
  if (us < 12e7) return `${Math.round(us / 1e5) / 10} s`;
  if (us < 72e8) return `${Math.round(us / 6e6) / 10} min`;
  return `${Math.round(us / 36e7) / 10} h`;
}

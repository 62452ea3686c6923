// Sliding counter: two windows, and a frame of one period over both. What the frame still covers of
// the last window counts.

import { each, s, say, set } from '../dom.js';
import { FLOOR, label, lane, sheet } from './shared.js';

const [LEFT, MIDDLE, RIGHT, TOP] = [16, 180, 344, 22];
const TALL = FLOOR - TOP;

export function slidingCounter() {
  const block = (kind) => s('rect', { class: kind });
  const frame = (x) => s('rect', { x, y: TOP, width: MIDDLE - LEFT, height: TALL, class: 'frame' });
  const [faded, counted, current] = [block('admit ghost'), block('admit soft'), block('admit')];
  const span = s('rect', { y: TOP - 4, height: TALL + 8, rx: 5, class: 'span' });
  const [sum, about] = [label(LEFT, 11, 'start', 'strong'), label(RIGHT, 11, 'end')];
  const gaps = s('g', { class: 'gap' });
  const below = lane();
  const element = sheet('', frame(LEFT), frame(MIDDLE), faded, counted, current, gaps, span, sum, about, below.element);
  return {
    element,
    draw(view, quota, now, history) {
      const wide = MIDDLE - LEFT;
      const inside = 1 - view.share;
      const cut = LEFT + wide * inside;
      const height = (count) => (TALL * Math.min(count, quota.limit)) / quota.limit;
      const bar = (rect, x, width, count) =>
        set(rect, { x, width: Math.max(0, width), y: FLOOR - height(count), height: height(count) });
      bar(faded, LEFT, wide * inside, view.previous);
      bar(counted, cut, wide * view.share, view.previous);
      bar(current, MIDDLE, Math.max(wide * inside, view.current ? 3 : 0), view.current);
      set(span, { x: cut, width: wide });
      // The same cells as in a fixed window, as long as they can be told apart.
      each(gaps, 'line', Array.from({ length: quota.limit <= 24 ? quota.limit - 1 : 0 }), (gap, _, at) => {
        const y = FLOOR - ((at + 1) * TALL) / quota.limit;
        set(gap, { x1: LEFT + 1, x2: RIGHT - 1, y1: y, y2: y });
      });
      say(sum, `${view.used} of ${quota.limit}`);
      say(about, `⌊last ${view.previous} × ${view.share.toFixed(2)}⌋ + this ${view.current}`);
      below.draw(history, quota, now);
      return `${view.previous} in the last window, of which ${Math.round(view.share * 100)} % count, and ${view.current} in this one: ${view.used} of ${quota.limit}`;
    },
  };
}

// Sliding window counter: two windows, and a frame of one period that covers part of the previous one.

import { renderEach, s, setText, setAttributes } from '../dom.js';
import { FLOOR, label, timeline, diagram } from './shared.js';

const [LEFT, MIDDLE, RIGHT, TOP] = [16, 180, 344, 20];
const TALL = FLOOR - TOP;

export function slidingCounter() {
  const block = (kind) => s('rect', { class: kind });
  const frame = (x) => s('rect', { x, y: TOP, width: MIDDLE - LEFT, height: TALL, class: 'frame' });
  const [faded, counted, current] = [block('admit ghost'), block('admit soft'), block('admit')];
  const span = s('rect', { y: TOP - 3, height: TALL + 6, rx: 4, class: 'span' });
  const [sum, about] = [label(LEFT, 11, 'start', 'strong'), label(RIGHT, 11, 'end')];
  const gaps = s('g', { class: 'gap' });
  const below = timeline();
  const element = diagram('', frame(LEFT), frame(MIDDLE), faded, counted, current, gaps, span, sum, about, below.element);
  return {
    element,
    draw(view, quota, now, history) {
      const wide = MIDDLE - LEFT;
      const inside = 1 - view.share;
      const cut = LEFT + wide * inside;
      const height = (count) => (TALL * Math.min(count, quota.limit)) / quota.limit;
      const bar = (rect, x, width, count) =>
        setAttributes(rect, { x, width: Math.max(0, width), y: FLOOR - height(count), height: height(count) });
      bar(faded, LEFT, wide * inside, view.previous);
      bar(counted, cut, wide * view.share, view.previous);
      bar(current, MIDDLE, Math.max(wide * inside, view.current ? 3 : 0), view.current);
      setAttributes(span, { x: cut, width: wide });
      // Cells as in a fixed window, if they are large enough.
      renderEach(gaps, 'line', Array.from({ length: quota.limit <= 24 ? quota.limit - 1 : 0 }), (gap, _, at) => {
        const y = FLOOR - ((at + 1) * TALL) / quota.limit;
        setAttributes(gap, { x1: LEFT + 1, x2: RIGHT - 1, y1: y, y2: y });
      });
      setText(sum, `${view.used} of ${quota.limit}`);
      setText(about, `${view.weighted} of the previous ${view.previous} + current ${view.current}`);
      below.draw(history, quota, now);
      return `${view.previous} in the previous window, weighted ${Math.round(view.share * 100)} %, and ${view.current} in the current one: ${view.used} of ${quota.limit}`;
    },
  };
}

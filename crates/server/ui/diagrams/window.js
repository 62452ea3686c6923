// Fixed window: a count that resets when the next window starts.

import { countdown, renderEach, s, setText, setAttributes } from '../dom.js';
import { FLOOR, WIDTH, label, timeline, diagram, shortSpan } from './shared.js';

const [LEFT, RIGHT, TOP] = [62, 298, 19];
const TALL = FLOOR - TOP;

export function fixedWindow() {
  const cells = s('g', { class: 'admit' });
  const box = s('rect', { x: LEFT, y: TOP, width: RIGHT - LEFT, height: TALL, class: 'frame' });
  const past = s('rect', { x: 0, y: TOP, width: LEFT, height: TALL, class: 'faint' });
  const next = s('rect', { x: RIGHT, y: TOP, width: WIDTH - RIGHT, height: TALL, class: 'faint' });
  const cursor = s('line', { y1: TOP - 4, y2: FLOOR, class: 'cursor' });
  const [count, rest] = [label(LEFT, 12, 'start', 'strong'), label(RIGHT, 12, 'end')];
  const [gone, coming] = [label(LEFT / 2, 54, 'middle'), label((RIGHT + WIDTH) / 2, 54, 'middle')];
  gone.textContent = 'previous';
  coming.textContent = 'next';
  const below = timeline();
  const element = diagram('', past, next, gone, coming, box, cells, cursor, count, rest, below.element);
  return {
    element,
    draw(view, quota, now, history) {
      const inside = (now - view.start_us) / quota.period;
      const x = LEFT + (RIGHT - LEFT) * Math.min(1, Math.max(0, inside));
      setAttributes(cursor, { x1: x, x2: x });
      stack(cells, view.used, quota.limit, LEFT, RIGHT - LEFT);
      setText(count, `${view.used} of ${quota.limit}`);
      setText(rest, `resets in ${countdown(view.end_us - now)}`);
      below.draw(history, quota, now);
      return `${view.used} of ${quota.limit} used in this window of ${shortSpan(quota.period)}`;
    },
  };
}

/** A count as cells up to the limit, or as one block if there are too many. */
export function stack(group, used, limit, x, width) {
  const shown = Math.min(used, limit);
  const single = limit <= 24;
  const tall = TALL / limit;
  const items = single ? Array.from({ length: shown }, (_, at) => at) : [0];
  renderEach(group, 'rect', items, (cell, at) =>
    setAttributes(cell, single
      ? { x: x + 2, y: FLOOR - (at + 1) * tall + 0.75, width: Math.max(0, width - 4), height: Math.max(1, tall - 1.5), rx: 1.5 }
      : { x: x + 2, y: FLOOR - shown * tall, width: Math.max(0, width - 4), height: shown * tall, rx: 0 }));
}

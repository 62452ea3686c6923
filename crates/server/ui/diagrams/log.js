// Sliding window log: every stored request, which expires after one period.

import { countdown, renderEach, plural, s, setText, setAttributes } from '../dom.js';
import { FLOOR, label, timeline, diagram, shortSpan } from './shared.js';

const [LEFT, RIGHT, TOP] = [34, 330, 19];
const TALL = FLOOR - TOP;

export function slidingLog() {
  const box = s('rect', { x: LEFT, y: TOP, width: RIGHT - LEFT, height: TALL, class: 'frame' });
  const entries = s('g', { class: 'admit' });
  const leaving = s('g', { class: 'admit ghost' });
  const cursor = s('line', { x1: RIGHT, x2: RIGHT, y1: TOP - 4, y2: FLOOR, class: 'cursor' });
  const [count, rest] = [label(LEFT, 12, 'start', 'strong'), label(RIGHT, 12, 'end')];
  const below = timeline();
  const element = diagram('', box, leaving, entries, cursor, count, rest, below.element);
  return {
    element,
    draw(view, quota, now, history, state) {
      const x = (t) => RIGHT - ((now - t) / quota.period) * (RIGHT - LEFT);
      const cells = stackEntries(view.entries, quota.limit, x);
      const gone = (state?.entries ?? []).filter(({ t_us: t }) => t <= now - quota.period && x(t) > 0);
      renderEach(entries, 'rect', cells, drawEntry);
      renderEach(leaving, 'rect', stackEntries(gone, quota.limit, x), (cell, at) => {
        drawEntry(cell, at);
        setAttributes(cell, { opacity: Math.max(0, (at.x - 6) / LEFT) });
      });
      setText(count, `${view.used} of ${quota.limit}`);
      const oldest = view.entries[0];
      setText(rest, oldest ? `oldest expires in ${countdown(oldest.t_us + quota.period - now)}` : `the last ${shortSpan(quota.period)}`);
      below.draw(history, quota, now);
      return `${plural(view.used, 'request')} stored from the last ${shortSpan(quota.period)}`;
    },
  };
}

/** Stacks entries of nearly the same time. */
function stackEntries(list, limit, x) {
  const cells = [];
  const single = limit <= 40;
  const tall = TALL / Math.max(10, Math.min(limit, 40));
  let [first, from] = [-Infinity, 0];
  for (const { t_us: t, units } of list) {
    if (x(t) - x(first) >= 7) [first, from] = [t, 0];
    for (let unit = 0; unit < (single ? units : 1); unit += 1) {
      const height = single ? tall : Math.max(2, (TALL * units) / limit);
      const y = single ? FLOOR - (from + unit + 1) * tall : FLOOR - (TALL * (from + units)) / limit;
      cells.push({ x: x(t), y: Math.max(TOP, y), height });
    }
    from += units;
  }
  return cells;
}

function drawEntry(cell, { x, y, height }) {
  setAttributes(cell, { x: x - 7, y: y + 0.75, width: 7, height: Math.max(1, height - 1.5), rx: 1.5 });
}

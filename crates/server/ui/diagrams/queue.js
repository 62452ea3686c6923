// Leaky bucket (shaping): a queue that drains at an even rate.

import { countdown, renderEach, s, setText, setAttributes } from '../dom.js';
import { FLOOR, WIDTH, label, timeline, diagram, shortSpan } from './shared.js';

const [LEFT, GATE, AXIS] = [8, 270, 50];
const REACH = WIDTH - GATE;

export function queue() {
  const slots = s('g', { class: 'slots' });
  const waiting = s('g', { class: 'wait' });
  const out = s('g', { class: 'admit' });
  const pipe = s('path', { d: `M ${LEFT} ${AXIS - 17} H ${GATE} M ${LEFT} ${AXIS + 17} H ${GATE}`, class: 'wall' });
  const gate = s('line', { x1: GATE, x2: GATE, y1: AXIS - 22, y2: AXIS + 22, class: 'cursor' });
  const [count, rest, rate] = [label(LEFT, 12, 'start', 'strong'), label(WIDTH - 2, 12, 'end'), label(WIDTH - 2, FLOOR + 1, 'end')];
  const below = timeline();
  const element = diagram('', slots, waiting, pipe, gate, out, count, rest, rate, below.element);
  return {
    element,
    draw(view, quota, now, history) {
      const interval = quota.period / quota.limit;
      const shown = Math.min(quota.capacity, 40);
      const wide = (GATE - LEFT - 4) / shown;
      const size = Math.min(11, wide / 2 - 1);
      const number = Math.ceil(view.level - 1e-9);
      // The fraction of the head that is still in the queue.
      const head = view.level - (number - 1);
      const items = Array.from({ length: Math.min(number, shown) }, (_, at) => at);
      const x = (at) => GATE - 4 - wide * (at + head - 0.5);
      renderEach(slots, 'circle', Array.from({ length: shown }, (_, at) => at), (slot, at) =>
        setAttributes(slot, { cx: GATE - 4 - wide * (at + 0.5), cy: AXIS, r: Math.max(1, size - 3) }));
      renderEach(waiting, 'circle', items, (dot, at) => setAttributes(dot, { cx: Math.max(LEFT + size, x(at)), cy: AXIS, r: size }));
      const left = [];
      for (let i = history.length - 1; i >= 0 && left.length < 24; i -= 1) {
        const one = history[i];
        const since = now - one.t - one.delay;
        if (one.allowed && since >= 0 && since < 3 * interval) left.push(since / interval);
      }
      renderEach(out, 'circle', left, (dot, since) =>
        setAttributes(dot, { cx: GATE + 10 + since * (REACH / 3), cy: AXIS, r: Math.min(size, 8), opacity: Math.max(0, 1 - since / 3) }));
      setText(count, `${number} of ${quota.capacity} queued`);
      setText(rest, view.level > 0 ? `empty in ${countdown(view.level * interval)}` : 'empty');
      setText(rate, `one every ${shortSpan(interval)}`);
      below.draw(history, quota, now);
      return `${number} of ${quota.capacity} queued, one leaves every ${shortSpan(interval)}`;
    },
  };
}

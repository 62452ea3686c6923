// Token bucket, and leaky bucket (policing).

import { countdown, renderEach, decimal, s, setText, setAttributes } from '../dom.js';
import { label, timeline, diagram, shortSpan } from './shared.js';

const [LEFT, RIGHT, TOP, BOTTOM] = [22, 152, 20, 76];
const TEXT = 186;

export function tokenBucket() {
  const tokens = s('g', { class: 'admit' });
  const coming = s('circle', { class: 'admit ghost' });
  const drop = s('circle', { cx: (LEFT + RIGHT) / 2, r: 4, class: 'admit' });
  const tap = s('path', { d: `M ${(LEFT + RIGHT) / 2 - 9} 4 h 18 v 4 h -5 v 4 h -8 v -4 h -5 z`, class: 'metal' });
  return bucket([tap, drop, tokens, coming], (view, quota) => {
    const whole = view.left;
    const part = Math.min(1, Math.max(0, view.level - whole));
    const full = view.level >= quota.capacity;
    const position = grid(quota.capacity);
    if (position) {
      renderEach(tokens, 'circle', range(whole), (dot, at) => setAttributes(dot, { ...position(at), r: position.size }));
      setAttributes(coming, { ...position(Math.min(whole, quota.capacity - 1)), r: full ? 0 : Math.max(0.01, position.size * part) });
    } else {
      renderEach(tokens, 'rect', [view.level], (block, level) => fillUp(block, level, quota));
      setAttributes(coming, { r: 0 });
    }
    setAttributes(drop, { cy: 11 + 10 * part, opacity: full ? 0 : part });
    const interval = quota.period / quota.limit;
    return {
      strong: `${whole} of ${quota.capacity} tokens`,
      line: full ? 'full' : `next token in ${countdown(view.next_us || (1 - part) * interval)}`,
      rate: `one more every ${shortSpan(interval)}`,
    };
  });
}

export function leakyBucket() {
  const water = s('rect', { class: 'admit soft' });
  const marks = s('g', { class: 'mark' });
  const middle = (LEFT + RIGHT) / 2;
  const drop = s('circle', { cx: middle, r: 3.5, class: 'admit' });
  const hole = s('path', { d: `M ${middle - 8} ${BOTTOM} h 16 l -3 6 h -10 z`, class: 'metal' });
  const spill = s('g', { class: 'refuse' });
  return bucket([water, marks, hole, drop, spill], (view, quota, now, history) => {
    fillUp(water, view.level, quota);
    const tall = (BOTTOM - TOP) / quota.capacity;
    renderEach(marks, 'line', quota.capacity <= 20 ? range(quota.capacity - 1) : [], (mark, at) =>
      setAttributes(mark, { x1: LEFT + 3, x2: LEFT + 11, y1: BOTTOM - (at + 1) * tall, y2: BOTTOM - (at + 1) * tall }));
    const part = 1 - (view.level - Math.floor(view.level));
    setAttributes(drop, { cy: BOTTOM + 6 + 8 * part, opacity: view.level > 0 ? 1 - part / 2 : 0 });
    // A recent refusal is drawn as an overflow.
    const lately = quota.period / 12;
    const last = history.at(-1);
    const age = last && !last.allowed ? (now - last.t) / lately : 1;
    renderEach(spill, 'circle', age < 1 ? range(3) : [], (one, at) =>
      setAttributes(one, { cx: RIGHT + 6 + at * 4, cy: TOP + 4 + age * (30 + at * 12), r: 3, opacity: 1 - age }));
    const interval = quota.period / quota.limit;
    return {
      strong: `${decimal(view.level)} of ${quota.capacity} in the bucket`,
      line: view.level > 0 ? `empty in ${countdown(view.level * interval)}` : 'empty',
      rate: `one drains every ${shortSpan(interval)}`,
    };
  });
}

/** A bucket with text beside it and the timeline below. */
function bucket(inside, update) {
  const wall = s('path', { d: `M ${LEFT} ${TOP - 6} V ${BOTTOM - 6} q 0 6 6 6 H ${RIGHT - 6} q 6 0 6 -6 V ${TOP - 6}`, class: 'wall' });
  const strong = label(TEXT, 34, 'start', 'strong');
  const [line, rate] = [label(TEXT, 52), label(TEXT, 68)];
  const below = timeline();
  const element = diagram('', ...inside, wall, strong, line, rate, below.element);
  return {
    element,
    draw(view, quota, now, history) {
      const text = update(view, quota, now, history);
      setText(strong, text.strong);
      setText(line, text.line);
      setText(rate, text.rate);
      below.draw(history, quota, now);
      return `${text.strong}, ${text.rate}`;
    },
  };
}

/** The position of each token, or null if there are too many to draw. */
function grid(capacity) {
  if (capacity > 60) return null;
  const columns = capacity <= 10 ? 5 : capacity <= 24 ? 8 : 12;
  const rows = Math.ceil(capacity / columns);
  const wide = (RIGHT - LEFT - 8) / columns;
  const tall = Math.min((BOTTOM - TOP - 2) / rows, wide);
  const position = (at) => ({
    cx: LEFT + 4 + wide * ((at % columns) + 0.5),
    cy: BOTTOM - 2 - tall * (Math.floor(at / columns) + 0.5),
  });
  position.size = Math.min(wide, tall) / 2 - 1.2;
  return position;
}

function fillUp(block, level, quota) {
  const height = ((BOTTOM - TOP) * Math.min(level, quota.capacity)) / quota.capacity;
  setAttributes(block, { x: LEFT + 2, y: BOTTOM - 1 - height, width: RIGHT - LEFT - 4, height: Math.max(0, height), rx: 2 });
}

function range(count) {
  return Array.from({ length: Math.max(0, count) }, (_, at) => at);
}

// Throughput per card, all on one scale: bars per second, a line for a sliding span, the limit dashed.

import { renderEach, h, s, setText, setAttributes } from './dom.js';
import { apart, ticks } from './scale.js';

const [WIDTH, HEIGHT] = [360, 142];
/** The edges of the plot; the axes' labels are outside of it. */
const [LEFT, RIGHT, TOP, FLOOR] = [28, 300, 8, 124];

export class Chart {
  #cards;
  #plots;
  #drawn = 0;

  constructor(cards, parent) {
    this.#cards = cards;
    /** The span of the sliding line, in seconds. */
    this.span = 10;
    this.#plots = cards.map((card) => plot(card.algorithm.name));
    parent.append(...this.#plots.map((one) => one.element));
  }

  /** Draws at most ten times a second. */
  frame(now) {
    if (performance.now() - this.#drawn < 100) return;
    this.#drawn = performance.now();
    const span = this.span * 1e6;
    const range = Math.max(60e6, 4 * span);
    const series = this.#cards.map((card) => measure(card, now, span, range));
    const highest = Math.max(...series.map((one) => Math.max(one.worst, one.limit, one.tallest)));
    // Guaranteed maxima are in the picture unless they would flatten it.
    const bounds = series.map((one) => one.bound).filter((bound) => bound <= 2.2 * highest);
    const marks = ticks(Math.max(highest, ...bounds) * 1.02);
    series.forEach((one, at) => this.#plots[at].draw(one, { now, span, range, marks, seconds: this.span }));
  }
}

/** When requests proceed: after their delay. */
function proceedTimes(card, now) {
  return card.history.filter((one) => one.allowed && one.t + one.delay <= now).map((one) => one.t + one.delay).sort((a, b) => a - b);
}

function measure(card, now, span, range) {
  const times = proceedTimes(card, now);
  const seconds = new Map();
  for (const t of times) {
    if (t > now - range) seconds.set(Math.floor(t / 1e6), (seconds.get(Math.floor(t / 1e6)) ?? 0) + 1);
  }
  let [worst, from] = [0, 0];
  times.forEach((t, at) => {
    while (times[from] <= t - span) from += 1;
    worst = Math.max(worst, at - from + 1);
  });
  const { quota, algorithm } = card;
  return {
    times, seconds, worst,
    sent: card.counts.admitted + card.counts.refused,
    admitted: card.counts.admitted,
    tallest: Math.max(0, ...seconds.values()),
    // The whole limit may be used at once, also within a span shorter than a period.
    limit: quota.limit * Math.max(1, span / quota.period),
    bound: algorithm.delayedWorst ? algorithm.delayedWorst(quota, span) : algorithm.worst(quota, span),
  };
}

function plot(name) {
  const grid = s('g', { class: 'grid' });
  const counts = s('g');
  const bars = s('g', { class: 'admit soft' });
  const line = s('path', { class: 'curve' });
  const limit = s('line', { x1: LEFT, x2: RIGHT, class: 'limit' });
  const bound = s('line', { x1: LEFT, x2: RIGHT, class: 'bound' });
  const floor = s('line', { x1: LEFT, x2: RIGHT, y1: FLOOR, y2: FLOOR, class: 'axis' });
  const text = (props) => s('text', { class: 'label', ...props });
  const [limitLabel, boundLabel] = [text({ x: RIGHT + 6 }), text({ x: RIGHT + 6 })];
  const times = [0, 0.5, 1].map((part) => text({ x: LEFT + (RIGHT - LEFT) * part, y: HEIGHT - 3, 'text-anchor': ['start', 'middle', 'end'][part * 2] }));
  const svg = s('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: 'plot', role: 'img', 'aria-label': name },
    grid, bars, floor, bound, limit, line, counts, limitLabel, boundLabel, ...times);
  const [worst, sums] = [h('b'), h('p', { class: 'muted' })];
  const verdict = h('p', { class: 'worst' }, worst);
  return {
    element: h('figure', {}, h('figcaption', {}, h('h3', {}, name), verdict), svg, sums),
    draw(one, { now, span, range, marks, seconds }) {
      const highest = marks.at(-1);
      const x = (t) => RIGHT - ((now - t) / range) * (RIGHT - LEFT);
      const y = (count) => FLOOR - (count / highest) * (FLOOR - TOP);
      renderEach(grid, 'line', marks.slice(1), (mark, count) => setAttributes(mark, { x1: LEFT, x2: RIGHT, y1: y(count), y2: y(count) }));
      renderEach(counts, 'text', marks, (mark, count) => {
        setAttributes(mark, { x: LEFT - 5, y: y(count) + 4, 'text-anchor': 'end', class: 'label' });
        setText(mark, String(count));
      });
      ['start', 'middle', 'end'].forEach((_, at) => setText(times[at], at === 2 ? 'now' : `−${round((range * (1 - at / 2)) / 1e6)} s`));
      const width = ((RIGHT - LEFT) * 1e6) / range;
      renderEach(bars, 'rect', [...one.seconds].filter(([second]) => second * 1e6 > now - range), (bar, [second, count]) =>
        setAttributes(bar, { x: x(second * 1e6) + 0.3, y: y(count), width: Math.max(1, Math.min(width - 0.6, RIGHT - x(second * 1e6))), height: FLOOR - y(count) }));
      setAttributes(line, { d: curve(one.times, now, span, range, x, y) });
      setAttributes(limit, { y1: y(one.limit), y2: y(one.limit) });
      // Drawn with the limit if it is the same, and if it is not above the chart.
      const shown = one.bound <= highest && one.bound !== one.limit;
      setAttributes(bound, { y1: y(one.bound), y2: y(one.bound), visibility: shown ? 'visible' : 'hidden' });
      const [limitAt, boundAt] = apart([y(one.limit), y(Math.min(one.bound, highest))], 13, TOP, FLOOR);
      setAttributes(limitLabel, { y: limitAt + 4 });
      setText(limitLabel, `limit ${round(one.limit)}`);
      setAttributes(boundLabel, { y: boundAt + 4, visibility: shown ? 'visible' : 'hidden' });
      setText(boundLabel, `max ${round(one.bound)}`);
      setText(worst, String(one.worst));
      verdict.classList.toggle('over', one.worst > one.limit);
      verdict.replaceChildren(worst, ` in any ${seconds} s`);
      setText(sums, `${one.sent} sent, ${one.admitted} admitted. Never more than ${Math.floor(one.bound)} in any ${seconds} s.`);
      svg.setAttribute('aria-label', `${name}: at most ${one.worst} in any ${seconds} seconds, limit ${round(one.limit)}`);
    },
  };
}

/** How many proceeded within the span before each moment. */
function curve(times, now, span, range, x, y) {
  let [from, to, path] = [0, 0, ''];
  let before = -1;
  for (let step = 0; step <= 180; step += 1) {
    const t = now - range + (step * range) / 180;
    while (to < times.length && times[to] <= t) to += 1;
    while (from < to && times[from] <= t - span) from += 1;
    const count = to - from;
    if (count !== before) path += path ? `V${y(count).toFixed(1)}` : `M${LEFT} ${y(count).toFixed(1)}`;
    path += `H${x(t).toFixed(1)}`;
    before = count;
  }
  return path;
}

function round(number) {
  return Math.round(number * 10) / 10;
}

// Throughput per card: bars per second, a line for a sliding span, the limit dashed.

import { renderEach, h, s, setText, setAttributes } from './dom.js';

const [WIDE, TALL, TOP] = [360, 112, 8];

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
    series.forEach((one, at) => {
      // Each has its own scale: a large limit does not flatten the others.
      const highest = Math.max(one.worst, one.limit, one.tallest) * 1.12;
      this.#plots[at].draw(one, { now, span, range, highest, seconds: this.span });
    });
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
  const bars = s('g', { class: 'admit soft' });
  const line = s('path', { class: 'curve' });
  const limit = s('line', { x1: 0, x2: WIDE, class: 'limit' });
  const bound = s('line', { x1: 0, x2: WIDE, class: 'bound' });
  const floor = s('line', { x1: 0, x2: WIDE, y1: TALL, y2: TALL, class: 'axis' });
  const limitLabel = s('text', { x: 2, class: 'label' });
  const svg = s('svg', { viewBox: `0 0 ${WIDE} ${TALL + 4}`, class: 'plot', role: 'img', 'aria-label': name }, bars, floor, bound, limit, line, limitLabel);
  const [worst, sums] = [h('b'), h('p', { class: 'muted' })];
  const verdict = h('p', { class: 'worst' }, worst);
  return {
    element: h('figure', {}, h('figcaption', {}, h('h3', {}, name), verdict), svg, sums),
    draw(one, { now, span, range, highest, seconds }) {
      const x = (t) => WIDE - ((now - t) / range) * WIDE;
      const y = (count) => TALL - (count / highest) * (TALL - TOP);
      renderEach(bars, 'rect', [...one.seconds], (bar, [second, count]) =>
        setAttributes(bar, { x: x(second * 1e6) + 0.5, y: y(count), width: Math.max(1, (1e6 / range) * WIDE - 1), height: TALL - y(count) }));
      setAttributes(line, { d: curve(one.times, now, span, range, x, y) });
      setAttributes(limit, { y1: y(one.limit), y2: y(one.limit) });
      setAttributes(bound, { y1: y(one.bound), y2: y(one.bound), visibility: one.bound > highest ? 'hidden' : 'visible' });
      setAttributes(limitLabel, { y: y(one.limit) - 3 });
      setText(limitLabel, `limit ${round(one.limit)}`);
      setText(worst, String(one.worst));
      const over = one.worst > one.limit;
      verdict.classList.toggle('over', over);
      verdict.replaceChildren(worst, ` max in any ${seconds} s`);
      setText(sums, `${one.sent} sent, ${one.admitted} admitted. Worst case: ${Math.floor(one.bound)}.`);
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
    if (count !== before) path += path ? `V${y(count).toFixed(1)}` : `M0 ${y(count).toFixed(1)}`;
    path += `H${x(t).toFixed(1)}`;
    before = count;
  }
  return path;
}

function round(number) {
  return Math.round(number * 10) / 10;
}

// An editor of twenty bars, by pointer or arrow keys.

import { h } from './dom.js';

const MAX_COUNT = 20;

export function patternEditor(bars, onchange) {
  const list = bars.map((_, at) => h('span', {
    class: 'bar', role: 'slider', tabindex: 0,
    'aria-label': `Requests in second ${at + 1}`, 'aria-valuemin': 0, 'aria-valuemax': MAX_COUNT,
  }, h('i')));
  const show = (at) => {
    list[at].setAttribute('aria-valuenow', bars[at]);
    list[at].firstChild.style.height = `${(bars[at] / MAX_COUNT) * 100}%`;
  };
  const put = (at, count) => {
    const next = Math.max(0, Math.min(MAX_COUNT, Math.round(count)));
    if (bars[at] === next) return;
    bars[at] = next;
    show(at);
    onchange();
  };
  let drawing = false;
  const paint = (event) => {
    if (!drawing) return;
    const box = element.getBoundingClientRect();
    const at = Math.floor(((event.clientX - box.left) / box.width) * bars.length);
    if (at >= 0 && at < bars.length) put(at, (1 - (event.clientY - box.top) / box.height) * MAX_COUNT);
  };
  const element = h('div', {
    class: 'pattern-editor', role: 'group', 'aria-label': 'Requests per second, for twenty seconds',
    onpointerdown: (event) => { drawing = true; element.setPointerCapture(event.pointerId); paint(event); },
    onpointermove: paint,
    onpointerup: () => { drawing = false; },
    onpointercancel: () => { drawing = false; },
    onkeydown: (event) => {
      const at = list.indexOf(document.activeElement);
      if (at < 0) return;
      const by = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 5, PageDown: -5, Home: -MAX_COUNT, End: MAX_COUNT }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      put(at, bars[at] + by);
    },
  }, ...list);
  bars.forEach((_, at) => show(at));
  return element;
}

// Traffic drawn by hand: twenty bars, by pointer or by arrow keys. Knows nothing of who sends it.

import { h } from './dom.js';

const HIGHEST = 20;

export function drawing(bars, onchange) {
  const list = bars.map((_, at) => h('span', {
    class: 'bar', role: 'slider', tabindex: 0,
    'aria-label': `Requests in second ${at + 1}`, 'aria-valuemin': 0, 'aria-valuemax': HIGHEST,
  }, h('i')));
  const show = (at) => {
    list[at].setAttribute('aria-valuenow', bars[at]);
    list[at].firstChild.style.height = `${(bars[at] / HIGHEST) * 100}%`;
  };
  const put = (at, count) => {
    const next = Math.max(0, Math.min(HIGHEST, Math.round(count)));
    if (bars[at] === next) return;
    bars[at] = next;
    show(at);
    onchange();
  };
  let drawn = false;
  const paint = (event) => {
    if (!drawn) return;
    const box = element.getBoundingClientRect();
    const at = Math.floor(((event.clientX - box.left) / box.width) * bars.length);
    if (at >= 0 && at < bars.length) put(at, (1 - (event.clientY - box.top) / box.height) * HIGHEST);
  };
  const element = h('div', {
    class: 'drawing', role: 'group', 'aria-label': 'Requests a second, for twenty seconds',
    onpointerdown: (event) => { drawn = true; element.setPointerCapture(event.pointerId); paint(event); },
    onpointermove: paint,
    onpointerup: () => { drawn = false; },
    onpointercancel: () => { drawn = false; },
    onkeydown: (event) => {
      const at = list.indexOf(document.activeElement);
      if (at < 0) return;
      const by = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 5, PageDown: -5, Home: -HIGHEST, End: HIGHEST }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      put(at, bars[at] + by);
    },
  }, ...list);
  bars.forEach((_, at) => show(at));
  return element;
}

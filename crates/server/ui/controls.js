// The bar with the controls for traffic and time.

import { SPEEDS } from './clock.js';
import { countdown, h, setText } from './dom.js';
import { patternEditor } from './pattern-editor.js';
import { SOURCES } from './traffic.js';

const TIMES = {
  real: ['Real', 'The store’s clock, as in production'],
  slow: ['Slowed', 'The page supplies the time, slowed down'],
  step: ['Manual', 'The page supplies the time; it stands still until you advance it'],
};
const STEPS = [['+ 0.1 s', 1e5], ['+ 1 s', 1e6], ['+ 10 s', 1e7]];

const byId = (id) => document.getElementById(id);

export class Controls {
  #traffic;
  #clock;
  #app;

  /** `app` has `resetAll()`, `burstAll(count)`, `changed()`, `timeChanged()` and `announce(text)`. */
  constructor(traffic, clock, app) {
    this.#traffic = traffic;
    this.#clock = clock;
    this.#app = app;
    segments('sources', 'source', Object.entries(SOURCES).map(([id, { name, about }]) => [id, name, about]), traffic.source, (id) => {
      traffic.source = id;
      if (traffic.running) this.#start();
      this.#showSource();
      app.changed();
    });
    segments('modes', 'mode', Object.entries(TIMES).map(([id, [name, about]]) => [id, name, about]), clock.mode, (mode) => {
      this.stop();
      clock.choose(mode);
      app.timeChanged();
      this.#showTime();
    });
    byId('run').addEventListener('click', () => (traffic.running ? this.stop() : this.#start()));
    byId('burst-all').addEventListener('click', () => app.burstAll(10));
    byId('reset-all').addEventListener('click', () => {
      this.stop();
      app.resetAll();
      app.announce('All limiters reset');
    });
    // On a phone the desk is hidden until it is asked for.
    byId('more').addEventListener('click', () => {
      const open = byId('bar').classList.toggle('open');
      byId('more').setAttribute('aria-expanded', String(open));
    });
    this.#showSource();
    this.#showTime();
    // What is scrolled to must not be behind the bar.
    new ResizeObserver(() => {
      document.documentElement.style.setProperty('--bar', `${byId('bar').offsetHeight}px`);
    }).observe(byId('bar'));
  }

  stop() {
    this.#traffic.stop();
    this.#showRun();
  }

  /** Updates the time and the countdown. */
  frame(now) {
    setText(byId('time'), this.#clock.supplied ? `${(now / 1e6).toFixed(1)} s` : '');
    const wait = this.#traffic.untilNext(now);
    setText(byId('hint'), wait === null ? '' : `next attack in ${countdown(wait)}`);
  }

  #start() {
    this.#app.resetAll();
    this.#traffic.start();
    this.#showRun();
    this.#app.announce(`${SOURCES[this.#traffic.source].name} traffic on all limiters`);
  }

  #showRun() {
    const { running } = this.#traffic;
    setText(byId('run'), running ? 'Stop' : 'Start');
    byId('run').classList.toggle('running', running);
  }

  #showSource() {
    const { source, options } = this.#traffic;
    const slider = (name, label, min, max, step, unit) => range(name, label, min, max, step, options[name], unit, (value) => {
      options[name] = value;
      this.#app.changed();
    });
    const obey = h('label', { class: 'check' }, h('input', {
      type: 'checkbox', checked: options.obey, onchange: (event) => { options.obey = event.target.checked; this.#app.changed(); },
    }), 'obey Retry-After');
    const parts = {
      steady: () => [slider('rate', 'Rate', 0.5, 20, 0.5, '/s')],
      bursty: () => [slider('size', 'Burst', 1, 50, 1, ''), slider('gap', 'every', 1, 30, 1, 's')],
      retry: () => [slider('jobs', 'Jobs', 0.5, 10, 0.5, '/s'), obey],
      boundary: () => [],
      draw: () => [patternEditor(options.bars, () => this.#app.changed())],
    };
    byId('options').replaceChildren(...parts[source]());
    setText(byId('more'), SOURCES[source].name);
    byId('more').setAttribute('aria-label', `Traffic and time: ${SOURCES[source].name}`);
  }

  #showTime() {
    const { mode, speed } = this.#clock;
    const speeds = h('select', { id: 'speed', 'aria-label': 'Speed', onchange: (event) => {
      this.#clock.choose('slow', Number(event.target.value));
      this.#app.changed();
    } }, ...SPEEDS.map((one) => h('option', { value: one, selected: one === speed }, `${Math.round(1 / one)} × slower`)));
    const steps = STEPS.map(([label, us]) => h('button', { type: 'button', class: 'small', onclick: () => this.#clock.step(us) }, label));
    byId('time-options').replaceChildren(...{ real: [], slow: [speeds], step: steps }[mode]);
  }
}

/** Radio buttons that look like one bar. */
function segments(id, name, choices, chosen, onchange) {
  byId(id).replaceChildren(...choices.map(([value, label, about]) => h('label', { title: about },
    h('input', { type: 'radio', name, value, checked: value === chosen, onchange: () => onchange(value) }), h('span', {}, label))));
}

function range(id, label, min, max, step, value, unit, onchange) {
  const output = h('output', { for: id });
  const show = (number) => setText(output, `${number} ${unit}`.trim());
  const input = h('input', { type: 'range', id, min, max, step, value, oninput: () => { show(input.value); onchange(Number(input.value)); } });
  show(value);
  return h('span', { class: 'range' }, h('label', { for: id }, label), input, output);
}

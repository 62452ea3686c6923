// The desk: which traffic, which time, start and stop. Moves what it is given; knows nothing of how
// cards answer.

import { SPEEDS } from './clock.js';
import { countdown, h, say } from './dom.js';
import { drawing } from './pattern-editor.js';
import { SOURCES } from './traffic.js';

const TIMES = { real: 'Real', slow: 'Slowed', step: 'By hand' };
const STEPS = [['+ 0.1 s', 1e5], ['+ 1 s', 1e6], ['+ 10 s', 1e7]];

const find = (id) => document.getElementById(id);

export class Desk {
  #traffic;
  #clock;
  #stage;

  /** `stage` has `resetAll()`, `burstAll(count)`, `changed()`, `timeChanged()` and `announce(text)`. */
  constructor(traffic, clock, stage) {
    this.#traffic = traffic;
    this.#clock = clock;
    this.#stage = stage;
    segments('sources', 'source', Object.entries(SOURCES).map(([id, { name }]) => [id, name]), traffic.source, (id) => {
      traffic.source = id;
      if (traffic.running) this.#start();
      this.#showSource();
      stage.changed();
    });
    segments('modes', 'mode', Object.entries(TIMES), clock.mode, (mode) => {
      this.stop();
      clock.choose(mode);
      stage.timeChanged();
      this.#showTime();
    });
    find('run').addEventListener('click', () => (traffic.running ? this.stop() : this.#start()));
    find('burst-all').addEventListener('click', () => stage.burstAll(10));
    find('reset-all').addEventListener('click', () => {
      this.stop();
      stage.resetAll();
      stage.announce('All limiters reset');
    });
    this.#showSource();
    this.#showTime();
  }

  stop() {
    this.#traffic.stop();
    this.#showRun();
  }

  /** What moves by itself: the time, and the wait for an attack. */
  frame(now) {
    say(find('time'), this.#clock.supplied ? `t = ${(now / 1e6).toFixed(this.#clock.mode === 'step' ? 3 : 1)} s` : '');
    const wait = this.#traffic.untilNext(now);
    const { words } = SOURCES[this.#traffic.source];
    say(find('words'), wait ? `The next attack begins in ${countdown(wait)}.` : words(this.#traffic.options));
  }

  #start() {
    this.#stage.resetAll();
    this.#traffic.start();
    this.#showRun();
    this.#stage.announce(`${SOURCES[this.#traffic.source].name} traffic on all limiters`);
  }

  #showRun() {
    const { running } = this.#traffic;
    say(find('run'), running ? 'Stop' : 'Start');
    find('run').classList.toggle('running', running);
  }

  #showSource() {
    const { source, options } = this.#traffic;
    const slider = (name, label, min, max, step, unit) => range(name, label, min, max, step, options[name], unit, (value) => {
      options[name] = value;
      this.#stage.changed();
    });
    const obey = h('label', { class: 'check' }, h('input', {
      type: 'checkbox', checked: options.obey, onchange: (event) => { options.obey = event.target.checked; this.#stage.changed(); },
    }), 'obeys Retry-After');
    const parts = {
      steady: () => [slider('rate', 'Rate', 0.5, 20, 0.5, 'a second')],
      bursty: () => [slider('size', 'Burst of', 1, 50, 1, ''), slider('gap', 'every', 1, 30, 1, 's')],
      retry: () => [slider('jobs', 'Jobs', 0.5, 10, 0.5, 'a second'), obey],
      boundary: () => [],
      draw: () => [drawing(options.bars, () => this.#stage.changed())],
    };
    find('options').replaceChildren(...parts[source]());
  }

  #showTime() {
    const { mode, speed } = this.#clock;
    const words = {
      real: 'The engine’s own clock, as in production.',
      slow: 'The page supplies the time, slower than yours.',
      step: 'Time stands still until you move it.',
    };
    const speeds = h('select', { id: 'speed', 'aria-label': 'Speed', onchange: (event) => {
      this.#clock.choose('slow', Number(event.target.value));
      this.#stage.changed();
    } }, ...SPEEDS.map((one) => h('option', { value: one, selected: one === speed }, `${Math.round(1 / one)} × slower`)));
    const steps = STEPS.map(([label, us]) => h('button', { type: 'button', onclick: () => this.#clock.step(us) }, label));
    find('time-options').replaceChildren(...{ real: [], slow: [speeds], step: steps }[mode]);
    say(find('time-words'), words[mode]);
  }
}

/** A choice of one, as radio buttons that look like one bar. */
function segments(place, name, choices, chosen, onchange) {
  find(place).replaceChildren(...choices.map(([id, label]) => h('label', {},
    h('input', { type: 'radio', name, value: id, checked: id === chosen, onchange: () => onchange(id) }), h('span', {}, label))));
}

function range(id, label, min, max, step, value, unit, onchange) {
  const output = h('output', { for: id });
  const show = (number) => say(output, `${number} ${unit}`.trim());
  const input = h('input', { type: 'range', id, min, max, step, value, oninput: () => { show(input.value); onchange(Number(input.value)); } });
  show(value);
  return h('span', { class: 'range' }, h('label', { for: id }, label), input, output);
}

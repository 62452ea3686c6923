// A card's quota as text and as a form, kept in step both ways. The engine judges; what it says is
// shown beside the field. Knows quotas; knows nothing of traffic.

import { Problem, judge } from './api.js';
import { matches } from './algorithms.js';
import { h, say } from './dom.js';
import { format, parse } from './quota.js';

const UNITS = [['ms', 1e3], ['s', 1e6], ['min', 6e7], ['h', 36e8]];

export class Settings {
  #behaviour;
  #asked = 0;
  #timer = 0;

  /** `onchange` is called with the quota and its text once the engine took them. */
  constructor(behaviour, text, onchange) {
    this.#behaviour = behaviour;
    this.onchange = onchange;
    this.text = text;
    this.quota = parse(text);
    const id = `quota-${behaviour.id}`;
    const typed = () => this.#typed(this.input.value);
    this.error = h('p', { class: 'error', id: `${id}-error`, role: 'alert' });
    this.input = h('input', {
      id, class: 'mono', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', maxlength: 120,
      'aria-describedby': `${id}-error`, oninput: typed,
    });
    this.field = h('div', { class: 'quota' }, h('label', { for: id }, 'Quota'), this.input, this.error);
    this.form = this.#makeForm(id);
    this.#show(text);
  }

  /** Takes a text from elsewhere, such as a link, as if it had been typed. */
  take(text) {
    this.input.value = text;
    this.#typed(text, 0);
  }

  #makeForm(id) {
    const number = (name, label) => {
      const input = h('input', {
        id: `${id}-${name}`, type: 'number', min: 1, step: 1, inputmode: 'numeric', required: true,
        'aria-describedby': `${id}-error`, oninput: () => this.#filled(),
      });
      return [h('label', { for: input.id }, label), input];
    };
    const [limitLabel, limit] = number('limit', 'Limit');
    const [countLabel, count] = number('count', 'Period');
    const unit = h('select', { id: `${id}-unit`, 'aria-label': 'Unit of the period', onchange: () => this.#filled() },
      ...UNITS.map(([name]) => h('option', { value: name }, name)));
    const word = this.quota.word;
    const [capacityLabel, capacity] = number('capacity', word === 'queue' ? 'Queue' : 'Burst');
    this.parts = { limit, count, unit, capacity };
    const row = (label, ...fields) => h('div', { class: 'row' }, label, h('span', { class: 'fields' }, ...fields));
    return h('div', { class: 'form' }, row(limitLabel, limit), row(countLabel, count, unit),
      word ? row(capacityLabel, capacity) : null);
  }

  /** The form speaks: write the text. */
  #filled() {
    const { limit, count, unit, capacity } = this.parts;
    const us = Number(count.value) * UNITS.find(([name]) => name === unit.value)[1];
    const quota = { ...this.quota, limit: limit.value || '0', period: us, capacity: capacity.value || '0' };
    const text = us > 0 && Number.isInteger(us) ? format(quota) : `${this.quota.algorithm} ${quota.limit}/${count.value || '0'}${unit.value}`;
    this.input.value = text;
    this.#typed(text, 150, true);
  }

  /** The text speaks: ask the engine, then fill the form. */
  #typed(text, wait = 150, fromForm = false) {
    clearTimeout(this.#timer);
    this.#asked += 1;
    const asked = this.#asked;
    this.#timer = setTimeout(async () => {
      const { quota, problem } = await this.#judge(text);
      if (asked !== this.#asked) return;
      this.#complain(problem);
      if (problem) return;
      this.text = text;
      this.quota = quota;
      if (!fromForm) this.#show(text);
      this.onchange(this.quota, text);
    }, wait);
  }

  /** What a text means, or what is wrong with it, in the engine's words. */
  async #judge(text) {
    let canonical = text;
    try {
      const { quota, problem } = await judge(text);
      if (problem) return { problem };
      canonical = quota;
    } catch (error) {
      // Where nobody answers, the shape will do until somebody does.
      if (error instanceof Problem && error.status < 500) return { problem: error.message };
    }
    const quota = parse(canonical);
    if (!quota) return { problem: 'this does not read as a quota' };
    if (!matches(this.#behaviour, quota)) return { problem: `this card is the ${this.#behaviour.name.toLowerCase()}, such as ${this.#behaviour.quota}` };
    return { quota, problem: '' };
  }

  #complain(problem) {
    say(this.error, problem);
    for (const field of [this.input, ...Object.values(this.parts)]) {
      field.toggleAttribute('aria-invalid', Boolean(problem));
      if (problem) field.setAttribute('aria-invalid', 'true');
    }
  }

  #show(text) {
    if (this.input.value !== text) this.input.value = text;
    const { limit, period, capacity } = this.quota;
    const [name, us] = UNITS.findLast(([, unit]) => period % unit === 0);
    this.parts.limit.value = limit;
    this.parts.count.value = period / us;
    this.parts.unit.value = name;
    this.parts.capacity.value = capacity;
  }
}

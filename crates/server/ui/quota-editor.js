// A card's quota as text and as a form, kept in sync. The server validates it.

import { Problem, checkQuota } from './api.js';
import { matches } from './algorithms.js';
import { h, setText } from './dom.js';
import { format, parse } from './quota.js';

const UNITS = [['ms', 1e3], ['s', 1e6], ['min', 6e7], ['h', 36e8]];

export class QuotaEditor {
  #algorithm;
  #version = 0;
  #timer = 0;

  /** `onchange` is called with the quota and its text once they are valid. */
  constructor(algorithm, text, onchange) {
    this.#algorithm = algorithm;
    this.onchange = onchange;
    this.text = text;
    this.quota = parse(text);
    const id = `quota-${algorithm.id}`;
    const typed = () => this.#textChanged(this.input.value);
    this.error = h('p', { class: 'error', id: `${id}-error`, role: 'alert' });
    this.input = h('input', {
      id, class: 'mono', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', maxlength: 120,
      'aria-describedby': `${id}-error`, oninput: typed,
    });
    this.field = h('div', { class: 'quota' }, h('label', { for: id }, 'Quota'), this.input, this.error);
    this.form = this.#makeForm(id);
    this.#show(text);
  }

  /** Sets the text as if it had been typed. */
  setQuota(text) {
    this.input.value = text;
    this.#textChanged(text, 0);
  }

  #makeForm(id) {
    const number = (name, label) => {
      const input = h('input', {
        id: `${id}-${name}`, type: 'number', min: 1, step: 1, inputmode: 'numeric', required: true,
        'aria-describedby': `${id}-error`, oninput: () => this.#formChanged(),
      });
      return [h('label', { for: input.id }, label), input];
    };
    const [limitLabel, limit] = number('limit', 'Limit');
    const [countLabel, count] = number('count', 'Period');
    const unit = h('select', { id: `${id}-unit`, 'aria-label': 'Unit of the period', onchange: () => this.#formChanged() },
      ...UNITS.map(([name]) => h('option', { value: name }, name)));
    const keyword = this.quota.keyword;
    const [capacityLabel, capacity] = number('capacity', keyword === 'queue' ? 'Queue' : 'Burst');
    this.parts = { limit, count, unit, capacity };
    const row = (label, ...fields) => h('div', { class: 'row' }, label, h('span', { class: 'fields' }, ...fields));
    return h('div', { class: 'form' }, row(limitLabel, limit), row(countLabel, count, unit),
      keyword ? row(capacityLabel, capacity) : null);
  }

  /** Updates the text from the form. */
  #formChanged() {
    const { limit, count, unit, capacity } = this.parts;
    const us = Number(count.value) * UNITS.find(([name]) => name === unit.value)[1];
    const quota = { ...this.quota, limit: limit.value || '0', period: us, capacity: capacity.value || '0' };
    const text = us > 0 && Number.isInteger(us) ? format(quota) : `${this.quota.algorithm} ${quota.limit}/${count.value || '0'}${unit.value}`;
    this.input.value = text;
    this.#textChanged(text, 150, true);
  }

  /** Validates the text, then updates the form. */
  #textChanged(text, wait = 150, fromForm = false) {
    clearTimeout(this.#timer);
    this.#version += 1;
    const version = this.#version;
    this.#timer = setTimeout(async () => {
      const { quota, problem } = await this.#check(text);
      if (version !== this.#version) return;
      this.#showProblem(problem);
      if (problem) return;
      this.text = text;
      this.quota = quota;
      if (!fromForm) this.#show(text);
      this.onchange(this.quota, text);
    }, wait);
  }

  /** Parses a text, or returns what is wrong with it. */
  async #check(text) {
    let canonical = text;
    try {
      const { quota, problem } = await checkQuota(text);
      if (problem) return { problem };
      canonical = quota;
    } catch (error) {
      // Without a server, parsing has to do.
      if (error instanceof Problem && error.status < 500) return { problem: error.message };
    }
    const quota = parse(canonical);
    if (!quota) return { problem: 'this is not a quota' };
    if (!matches(this.#algorithm, quota)) return { problem: `this card is the ${this.#algorithm.name.toLowerCase()}, such as ${this.#algorithm.quota}` };
    return { quota, problem: '' };
  }

  #showProblem(problem) {
    setText(this.error, problem);
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

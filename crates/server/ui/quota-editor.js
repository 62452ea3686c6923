// A card's quota as text and as a form, kept in sync. The server validates it. A problem is shown once,
// and marks the field it is in: the text if that was typed, or else the field of the form.

import { Problem, checkQuota } from './api.js';
import { matches } from './algorithms.js';
import { h, setText } from './dom.js';
import { format, parse } from './quota.js';

const UNITS = [['ms', 1e3], ['s', 1e6], ['min', 6e7], ['h', 36e8]];
/** As in the server, which has the last word. */
const MAX_NUMBER = 1000;

export class QuotaEditor {
  #algorithm;
  #version = 0;
  #timer = 0;

  /** `onchange` is called once a quota is valid. */
  constructor(algorithm, text, onchange) {
    this.#algorithm = algorithm;
    this.onchange = onchange;
    this.text = text;
    this.quota = parse(text);
    /** As the server writes it. */
    this.canonical = text;
    const id = `quota-${algorithm.id}`;
    this.input = h('input', {
      id, class: 'mono', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', maxlength: 120,
      'aria-describedby': `${id}-error`, oninput: () => this.#textChanged(this.input.value, this.input),
    });
    this.field = h('span', { class: 'quota-text' }, h('label', { for: id, class: 'visually-hidden' }, `Quota: ${algorithm.name}`), this.input);
    this.error = h('p', { class: 'error', id: `${id}-error`, role: 'alert' });
    this.form = this.#makeForm(id);
    this.#show(text);
  }

  /** Sets the text as if it had been typed. */
  setQuota(text) {
    this.input.value = text;
    this.#textChanged(text, this.input, 0);
  }

  #makeForm(id) {
    const { keyword } = this.quota;
    this.formError = h('p', { class: 'error', id: `${id}-form-error`, role: 'alert' });
    const number = (name, label) => {
      const input = h('input', {
        id: `${id}-${name}`, type: 'number', min: 1, step: 1, inputmode: 'numeric', required: true,
        'aria-describedby': `${id}-form-error`, oninput: () => this.#formChanged(input),
      });
      return [h('label', { for: input.id }, label), input];
    };
    const [limitLabel, limit] = number('limit', 'Limit');
    const [countLabel, count] = number('count', 'Period');
    const unit = h('select', { id: `${id}-unit`, 'aria-label': 'Unit of the period', onchange: () => this.#formChanged(unit) },
      ...UNITS.map(([name]) => h('option', { value: name }, name)));
    const [capacityLabel, capacity] = number('capacity', keyword === 'queue' ? 'Queue' : 'Burst');
    this.parts = { limit, count, unit, capacity };
    const row = (label, ...fields) => h('div', { class: 'row' }, label, h('span', { class: 'fields' }, ...fields));
    return h('div', { class: 'form' }, row(limitLabel, limit), row(countLabel, count, unit),
      keyword ? row(capacityLabel, capacity) : null, this.formError);
  }

  /** Updates the text from the form. */
  #formChanged(edited) {
    const wrong = this.#wrongPart();
    if (wrong) {
      clearTimeout(this.#timer);
      this.#version += 1;
      this.#showProblem(wrong[1], wrong[0]);
      return;
    }
    const { limit, count, unit, capacity } = this.parts;
    const us = Number(count.value) * UNITS.find(([name]) => name === unit.value)[1];
    const text = format({ ...this.quota, limit: limit.value, period: us, capacity: capacity.value });
    this.input.value = text;
    this.#textChanged(text, edited);
  }

  /** The first field that is wrong by itself, and what is wrong with it. */
  #wrongPart() {
    const { limit, count, capacity } = this.parts;
    const number = (name, field, most) => {
      const value = Number(field.value);
      return Number.isInteger(value) && value >= 1 && value <= most ? null : [field, `The ${name} is a whole number from 1 to ${most.toLocaleString('en')}.`];
    };
    return number('limit', limit, MAX_NUMBER) ?? number('period', count, 1e6)
      ?? (this.quota.keyword ? number(this.quota.keyword, capacity, MAX_NUMBER) : null);
  }

  /** Validates the text, then updates the form. `edited` is the field that was changed. */
  #textChanged(text, edited, wait = 150) {
    clearTimeout(this.#timer);
    this.#version += 1;
    const version = this.#version;
    this.#timer = setTimeout(async () => {
      const { quota, canonical, problem } = await this.#check(text);
      if (version !== this.#version) return;
      this.#showProblem(problem, edited);
      if (problem) return;
      this.text = text;
      this.quota = quota;
      this.canonical = canonical;
      if (edited === this.input) this.#show(text);
      this.onchange();
    }, wait);
  }

  /** Parses a text, or returns what is wrong with it. */
  async #check(text) {
    const example = `such as ${this.#algorithm.quota}`;
    let canonical = text;
    try {
      const { quota, problem, reason, suggestion } = await checkQuota(text);
      if (problem) {
        const meant = suggestion && matches(this.#algorithm, parse(suggestion) ?? {}) ? `did you mean ${suggestion}?` : example;
        return { problem: `${reason ?? problem}; ${meant}` };
      }
      canonical = quota;
    } catch (error) {
      // Without a server, parsing has to do.
      if (error instanceof Problem && error.status < 500) return { problem: error.message };
    }
    const quota = parse(canonical);
    if (!quota) return { problem: `this is not a quota; ${example}` };
    if (!matches(this.#algorithm, quota)) return { problem: `this card is the ${this.#algorithm.name.toLowerCase()}, ${example}` };
    return { quota, canonical, problem: '' };
  }

  /** Shows a problem beside the field that it is in, and marks no other. */
  #showProblem(problem, wrong) {
    const inForm = wrong !== this.input;
    setText(this.error, inForm ? '' : problem);
    setText(this.formError, inForm ? problem : '');
    for (const field of [this.input, ...Object.values(this.parts)]) {
      if (problem && field === wrong) field.setAttribute('aria-invalid', 'true');
      else field.removeAttribute('aria-invalid');
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

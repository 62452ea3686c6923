// "Use this": a card's quota as YAML, Rust and curl, to copy.

import { h, setText } from './dom.js';
import { snippets } from './snippets.js';
import { tabs } from './tabs.js';

export class UseThis {
  #texts;
  #copy;
  #chosen = 0;
  #announce;

  constructor(id, name, quota, announce) {
    this.#announce = announce;
    const all = snippets(quota, location.origin);
    this.#texts = all.map(([language]) => h('pre', { class: 'snippet mono', tabindex: 0, 'aria-label': `${name} as ${language}` }));
    this.#copy = h('button', { type: 'button', class: 'small', 'aria-label': `Copy: ${name}`, onclick: () => this.#copyChosen() }, 'Copy');
    this.element = tabs(`use-${id}`, `${name}: use this`, all.map(([language], at) => [language, this.#texts[at]]),
      (chosen) => { this.#chosen = chosen; }, this.#copy);
    this.show(quota);
  }

  show(quota) {
    snippets(quota, location.origin).forEach(([, text], at) => setText(this.#texts[at], text));
  }

  focus() {
    this.element.querySelector('[role=tab][aria-selected=true]').focus({ preventScroll: true });
  }

  async #copyChosen() {
    let done = 'Copied';
    try {
      await navigator.clipboard.writeText(this.#texts[this.#chosen].textContent);
    } catch {
      // Without a secure context there is no clipboard: the text is selected instead.
      getSelection().selectAllChildren(this.#texts[this.#chosen]);
      done = 'Selected';
    }
    setText(this.#copy, done);
    this.#announce(done);
    setTimeout(() => setText(this.#copy, 'Copy'), 2000);
  }
}

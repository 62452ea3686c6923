// Tabs with keyboard support.

import { h } from './dom.js';

/** Creates tabs from `[name, ...content]`; `onchange` gets the index of the selected one. `beside` follows the tabs. */
export function tabs(id, label, pages, onchange = () => {}, ...beside) {
  const buttons = pages.map(([name], at) => h('button', {
    type: 'button', role: 'tab', id: `${id}-tab-${at}`, 'aria-controls': `${id}-panel-${at}`, onclick: () => choose(at),
  }, name));
  const panels = pages.map(([, ...content], at) => h('div', {
    role: 'tabpanel', id: `${id}-panel-${at}`, 'aria-labelledby': `${id}-tab-${at}`,
  }, ...content));
  const choose = (chosen) => {
    buttons.forEach((button, at) => {
      button.setAttribute('aria-selected', String(at === chosen));
      button.tabIndex = at === chosen ? 0 : -1;
      panels[at].hidden = at !== chosen;
    });
    onchange(chosen);
  };
  const list = h('div', { role: 'tablist', 'aria-label': label, onkeydown: (event) => {
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const next = (to + buttons.length) % buttons.length;
    buttons[next].focus();
    choose(next);
  } }, ...buttons);
  choose(0);
  return h('div', { class: 'tabs' }, h('div', { class: 'tab-row' }, list, ...beside), ...panels);
}

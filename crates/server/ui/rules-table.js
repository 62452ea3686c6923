// The table of rules: rates, settings, origin, and a small picture each. Shows events; asks nobody.

import { KINDS, SECONDS, bands, kinds } from './stacked-bars.js';
import { h, say } from './dom.js';

/** What decisions without a rule are counted under. */
export const NO_RULE = '(none)';

export class RuleList {
  #rows = new Map();
  #body;

  constructor(body) {
    this.#body = body;
  }

  draw(rules) {
    const seen = new Set(rules.map((rule) => rule.name));
    for (const [name, row] of this.#rows) {
      if (seen.has(name)) continue;
      row.element.remove();
      this.#rows.delete(name);
    }
    rules.forEach((rule, at) => {
      const row = this.#rows.get(rule.name) ?? this.#make(rule.name);
      row.draw(rule);
      if (this.#body.children[at] !== row.element) this.#body.insertBefore(row.element, this.#body.children[at] ?? null);
    });
  }

  #make(name) {
    const cell = (label, kind = '') => h('td', { 'data-label': label, class: kind });
    const picture = bands(SECONDS, 28, `${name}, the last three minutes`);
    const cells = {
      limits: cell('Limits', 'mono'), admitted: cell('Admitted /s', 'num'), refused: cell('Refused /s', 'num'), 'would refuse': cell('Would refuse /s', 'num'),
      delayed: cell('Delayed /s', 'num'), degraded: cell('Degraded /s', 'num'), total: cell('In all', 'num'),
    };
    const [mark, origin] = [h('span', { class: 'mark-word' }), h('span', { class: 'origin' })];
    const title = name === NO_RULE ? h('b', {}, 'asked without a rule') : settings(name);
    const element = h('tr', {}, h('th', { scope: 'row' }, title, mark, origin),
      cells.limits, cells.admitted, cells.refused, cells['would refuse'], cells.delayed, cells.degraded,
      h('td', { 'data-label': 'Last three minutes' }, picture.element), cells.total);
    const past = [];
    const row = {
      element,
      draw(rule) {
        const now = kinds(rule.per_second);
        past.push(now);
        if (past.length > SECONDS) past.shift();
        picture.draw(past);
        for (const [kind] of KINDS) {
          say(cells[kind], rate(now[kind]));
          cells[kind].classList.toggle('zero', now[kind] === 0);
        }
        const limits = rule.limits.join('\n') || '–';
        say(cells.limits, limits);
        const words = [rule.enabled ? '' : 'switched off', rule.shadow ? 'only watches' : '', rule.queue ? `${rule.queue} waiting` : ''];
        say(mark, words.filter(Boolean).join(', '));
        say(origin, name === NO_RULE ? '' : rule.origin ?? '');
        const total = kinds(rule.total);
        say(cells.total, count(KINDS.reduce((sum, [kind]) => sum + total[kind], 0)));
        element.dataset.refused = String(total.refused);
        element.dataset.wouldRefuse = String(total['would refuse']);
      },
    };
    this.#rows.set(name, row);
    return row;
  }
}

/** A rule's name, which opens to its settings as they are in force. */
function settings(name) {
  const list = h('dl');
  return h('details', { ontoggle: async ({ target }) => {
    if (target.open) list.replaceChildren(...await settingsOf(name));
  } }, h('summary', {}, name), list);
}

async function settingsOf(name) {
  const pair = (term, words) => [h('dt', {}, term), h('dd', {}, words)];
  try {
    const response = await fetch('/admin/rules', { signal: AbortSignal.timeout(10000) });
    if (!response.ok) return pair('Settings', response.status === 401 ? 'need the admin token' : `the server answered ${response.status}`);
    const { rules } = await response.json();
    const rule = rules.find((one) => one.name === name);
    if (!rule) return pair('Settings', 'no longer in force');
    const { methods, paths, every_request: all } = rule.match;
    const which = all ? 'every request' : [methods.join(' '), paths.join(' ')].filter(Boolean).join(' ') || 'some requests';
    return [
      ...pair('Applies to', which), ...pair('Counts by', rule.key.map((part) => part.join(' or ')).join(', ')),
      ...pair('Store lost', rule.on_failure), ...pair('No key', rule.on_missing),
      ...pair('Lists', `${rule.allow} allowed, ${rule.deny} denied`), ...pair('Then', rule.stop ? 'no further rule' : 'the next rule too'),
    ];
  } catch {
    return pair('Settings', 'the server does not answer');
  }
}

/** A rate as it is read: no digits that nobody needs. */
export function rate(number) {
  return number >= 100 ? count(Math.round(number)) : String(Math.round(number * 10) / 10);
}

export function count(number) {
  return number.toLocaleString('en');
}

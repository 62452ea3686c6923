// The table of rules: rates, settings, origin, and a small chart each.

import { KINDS, SECONDS, stackedBars, kinds } from './stacked-bars.js';
import { h, setText } from './dom.js';

/** The name for decisions without a rule. */
export const NO_RULE = '(none)';

export class RulesTable {
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
    const chart = stackedBars(SECONDS, 28, `${name}, the last three minutes`);
    const cells = {
      limits: cell('Limits', 'mono'), admitted: cell('Admitted /s', 'num'), refused: cell('Refused /s', 'num'), 'would refuse': cell('Would refuse /s', 'num'),
      delayed: cell('Delayed /s', 'num'), degraded: cell('Degraded /s', 'num'), total: cell('Total', 'num'),
    };
    const [flagsElement, origin] = [h('span', { class: 'rule-flags' }), h('span', { class: 'origin' })];
    const title = name === NO_RULE ? h('b', {}, 'No rule') : settings(name);
    const element = h('tr', {}, h('th', { scope: 'row' }, title, flagsElement, origin),
      cells.limits, cells.admitted, cells.refused, cells['would refuse'], cells.delayed, cells.degraded,
      h('td', { 'data-label': 'Last three minutes' }, chart.element), cells.total);
    const past = [];
    const row = {
      element,
      draw(rule) {
        const now = kinds(rule.per_second);
        past.push(now);
        if (past.length > SECONDS) past.shift();
        chart.draw(past);
        for (const [kind] of KINDS) {
          setText(cells[kind], rate(now[kind]));
          cells[kind].classList.toggle('zero', now[kind] === 0);
        }
        const limits = rule.limits.join('\n') || '–';
        setText(cells.limits, limits);
        const flags = [rule.enabled ? '' : 'disabled', rule.shadow ? 'shadow mode' : '', rule.queue ? `${rule.queue} queued` : ''];
        setText(flagsElement, flags.filter(Boolean).join(', '));
        setText(origin, name === NO_RULE ? '' : rule.origin ?? '');
        const total = kinds(rule.total);
        setText(cells.total, count(KINDS.reduce((sum, [kind]) => sum + total[kind], 0)));
        element.dataset.refused = String(total.refused);
        element.dataset.wouldRefuse = String(total['would refuse']);
      },
    };
    this.#rows.set(name, row);
    return row;
  }
}

/** A rule's name, which expands to its current settings. */
function settings(name) {
  const list = h('dl');
  return h('details', { ontoggle: async ({ target }) => {
    if (target.open) list.replaceChildren(...await settingsOf(name));
  } }, h('summary', {}, name), list);
}

async function settingsOf(name) {
  const pair = (term, text) => [h('dt', {}, term), h('dd', {}, text)];
  try {
    const response = await fetch('/admin/rules', { signal: AbortSignal.timeout(10000) });
    if (!response.ok) return pair('Settings', response.status === 401 ? 'need the admin token' : `the server responded with ${response.status}`);
    const { rules } = await response.json();
    const rule = rules.find((one) => one.name === name);
    if (!rule) return pair('Settings', 'the rule no longer exists');
    const { methods, paths, every_request: all } = rule.match;
    const which = all ? 'every request' : [methods.join(' '), paths.join(' ')].filter(Boolean).join(' ') || 'some requests';
    return [
      ...pair('Applies to', which), ...pair('Key', rule.key.map((part) => part.join(' or ')).join(', ')),
      ...pair('Without store', rule.on_failure), ...pair('Without key', rule.on_missing),
      ...pair('Lists', `${rule.allow} allowed, ${rule.deny} denied`), ...pair('Stop', rule.stop ? 'yes: later rules are skipped' : 'no'),
    ];
  } catch {
    return pair('Settings', 'the server does not respond');
  }
}

/** A rate with at most one decimal. */
export function rate(number) {
  return number >= 100 ? count(Math.round(number)) : String(Math.round(number * 10) / 10);
}

export function count(number) {
  return number.toLocaleString('en');
}

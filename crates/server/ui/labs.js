// The labs: what each asks, what it measured, what to make of it. The server runs them; this shows
// the numbers and adds none of its own.

import { lab } from './api.js';
import { h, plural, say } from './dom.js';

const NAMES = {
  'fixed-window': 'Fixed window', 'sliding-window-log': 'Sliding log', 'sliding-window-counter': 'Sliding counter',
  'token-bucket': 'Token bucket', 'leaky-bucket': 'Leaky, policing', 'leaky-bucket-shaping': 'Leaky, shaping',
  'leaky-bucket-policing': 'Leaky, policing',
};

/** Each has one setting that visitors choose, as `[name, label, least, most, usual]` of the server's bounds. */
const LABS = [
  {
    id: 'boundary',
    field: ['limit', 'Limit', 1, 100, 10],
    setup: (limit) => `Limit ${limit} in 10 s. ${2 * limit} requests around one boundary, the same for all six.`,
    name: 'The boundary burst',
    asks: 'A client sends its whole limit just before a window ends, and again just after. How many get in within one period?',
    show({ behaviours }) {
      const rows = behaviours.map((one) => [NAMES[one.behaviour] ?? one.behaviour, one.admitted_in_period, one.admitted_in_period > one.limit]);
      const [most] = [...behaviours].sort((a, b) => b.admitted_in_period - a.admitted_in_period);
      return [
        bars('admitted within one period', rows, behaviours[0].limit),
        `The limit is ${behaviours[0].limit}. The ${(NAMES[most.behaviour] ?? most.behaviour).toLowerCase()} let ${most.admitted_in_period} in within one period: it forgot the first half at the boundary. Where that must not happen, use a log, or the counter for a fraction of its memory.`,
      ];
    },
  },
  {
    id: 'race',
    field: ['clients', 'Clients', 2, 64, 32],
    setup: (clients) => `${clients} clients, limit 10, all at once; five rounds, the worst counts.`,
    name: 'The race',
    asks: 'Many clients ask at the same instant. One limiter reads the count, checks it and writes it back; the other does all of it in one atomic step.',
    settings: { limit: 10 },
    show({ naive, atomic, limit, clients, store }) {
      const read = naive.over > 0
        ? `Reading first let ${naive.over} too many in, as many clients saw the same count before anybody wrote.`
        : clients <= limit ? 'There were no more clients than the limit lets in, so none could be too many.'
          : 'Reading first let none too many in this time: its clients happened not to meet. That is luck; run it again.';
      return [
        bars(`admitted of ${clients}`, [['Read, check, write', naive.admitted, naive.over > 0], ['One atomic step', atomic.admitted, atomic.over > 0]], limit),
        `${plural(clients, 'client')} at once, in ${store === 'redis' ? 'Redis' : 'memory'}, limit ${limit}. ${read} The atomic step let ${atomic.over || 'none'} too many in. It has to be one step wherever the count is kept.`,
      ];
    },
  },
  {
    id: 'skew',
    field: ['skew_s', 'Skew in s', 0, 3600, 10],
    setup: (apart) => `Limit 10 in 10 s, a log; clocks ${apart} s apart. Ten requests at each server at the same moment.`,
    name: 'The skewed clock',
    asks: 'Two servers share one limit, and their clocks differ. Whose time should decide?',
    settings: { limit: 10, period_s: 10 },
    show({ application_time: own, store_time: store, limit, period_s: period }) {
      const why = own.admitted > limit
        ? 'what one server counted, the other takes for long past'
        : `clocks less than a period of ${period} s apart do no harm to a log`;
      return [
        bars('admitted within one period', [['Each server’s own time', own.admitted, own.admitted > limit], ['The store’s time', store.admitted, store.admitted > limit]], limit),
        `The same traffic, limit ${limit}. By the servers’ own clocks ${own.admitted} got in: ${why}. By the store’s clock ${store.admitted} did. Tallygate asks the store what time it is.`,
      ];
    },
  },
  {
    id: 'outage',
    field: ['replicas', 'Servers', 1, 8, 2],
    setup: (servers) => `Limit 10 a minute, ${plural(servers, 'server')}. Twenty requests before, while it is lost, and after.`,
    name: 'The store goes down',
    asks: 'Redis vanishes for a while. What do clients see under each policy?',
    settings: { limit: 10 },
    show({ policies }) {
      const cells = ({ admitted, refused, unavailable }) => [`${admitted} in`, refused && `${refused} × 429`, unavailable && `${unavailable} × 503`].filter(Boolean).join('\n');
      return [
        table(['Policy', 'Before', 'While lost', 'After'], policies.map((one) => [one.policy, cells(one.before), cells(one.during), cells(one.after)])),
        'Open lets everything in and protects nothing. Closed protects and serves nobody, and says 503, never 429. Local counts in each server for its share of the limit: a little off, and still a limit. Choose by what hurts more.',
      ];
    },
  },
  {
    id: 'greedy',
    field: ['greedy', 'Times', 1, 100, 10],
    setup: (times) => `${10 * times} requests of one tenant and 10 of another within 10 s: one limit for both, one each, and tiers.`,
    name: 'The greedy tenant',
    asks: 'One tenant sends many times as much as another. Who is served?',
    show({ shared, own, tiers }) {
      const of = (list) => list.map((one) => `${one.admitted} of ${one.sent}`);
      const modest = (list) => list.filter((one) => one.tenant !== 'greedy').map((one) => `${one.admitted} of ${one.sent}`).join(', ');
      const starved = shared.some((one) => one.tenant !== 'greedy' && one.admitted < one.sent);
      return [
        table(['Limits', ...shared.map((one) => `${one.tenant}, served`)], [['One for all', ...of(shared)], ['One each', ...of(own)], ['Tiers', ...of(tiers)]]),
        `Under one limit for all, the modest got ${modest(shared)}${starved ? ': the greedy one used it up' : ''}. With a limit each they got ${modest(own)}. Tiers give each kind its own: here ${tiers.map((one) => `${one.tenant} ${one.quota}`).join(', ')}.`,
      ];
    },
  },
  {
    id: 'stampede',
    field: ['requests', 'Requests', 1, 1000, 1000],
    setup: (requests) => `${plural(requests, 'request')} through the real gateway to a server that counts its calls: with and without single flight.`,
    name: 'The stampede',
    asks: 'Many requests want the same thing at once. How many reach the server behind the gateway?',
    show({ without, with: single }) {
      return [
        bars('calls of the server behind', [['Each by itself', without.upstream_calls, false], ['Single flight', single.upstream_calls, false]], null),
        `All were answered either way, ${without.answered} and ${single.answered}. With single flight ${plural(single.upstream_calls, 'call')} went through and everybody shared the answer. A limit alone would have refused most of them.`,
      ];
    },
  },
];

/** Puts the labs on the page. */
export function labs(place, announce) {
  place.append(...LABS.map((one) => {
    const [setting, name, least, most, usual] = one.field;
    const id = `lab-${one.id}-${setting}`;
    const setup = h('p', { class: 'quiet' }, one.setup(usual));
    const input = h('input', {
      id, type: 'number', min: least, max: most, step: 1, value: usual, required: true, inputmode: 'numeric', 'aria-describedby': `${id}-bounds`,
      oninput: () => { if (input.checkValidity()) say(setup, one.setup(input.valueAsNumber)); },
    });
    const result = h('div', { class: 'result', id: `lab-${one.id}-result` });
    // Its name says what it does, and where.
    const label = (text) => {
      run.textContent = text;
      run.setAttribute('aria-label', `${text}: ${one.name}`);
    };
    const run = h('button', { type: 'button', class: 'primary', onclick: async () => {
      if (!input.reportValidity()) return;
      run.disabled = true;
      label('Running');
      try {
        const [picture, conclusion] = one.show(await lab(one.id, { ...one.settings, [setting]: input.valueAsNumber }));
        result.replaceChildren(picture, h('p', { class: 'so' }, conclusion));
        result.dataset.done = String(Number(result.dataset.done ?? 0) + 1);
        announce(`${one.name}: ${conclusion}`);
      } catch (error) {
        result.replaceChildren(h('p', { class: 'error' }, `It could not be run: ${error.message}.`));
      }
      run.disabled = false;
      label('Run again');
    } });
    label('Run');
    const row = h('div', { class: 'try' }, h('label', { for: id }, name), input, h('span', { class: 'quiet', id: `${id}-bounds` }, `${least} to ${most}`), run);
    return h('article', { class: 'lab', id: `lab-${one.id}` }, h('h3', {}, one.name), h('p', {}, one.asks), setup, row, result);
  }));
}

/** Figures as bars, with the limit marked; those above it stand out. */
function bars(caption, rows, limit) {
  const highest = Math.max(limit ?? 0, ...rows.map(([, count]) => count), 1);
  const part = (count) => `${(count / highest) * 100}%`;
  const lines = rows.map(([name, count, over]) => {
    const fill = h('i', { class: over ? 'over' : '' });
    fill.style.width = part(count);
    const mark = limit ? h('u') : null;
    if (mark) mark.style.left = part(limit);
    return h('tr', {}, h('th', { scope: 'row' }, name), h('td', { class: 'figure' }, String(count)), h('td', { 'aria-hidden': 'true' }, h('span', { class: 'track' }, fill, mark)));
  });
  const words = limit ? `${caption}; the mark is the limit, ${limit}` : caption;
  return h('table', { class: 'bars' }, h('caption', {}, words), h('tbody', {}, ...lines));
}

function table(head, rows) {
  return h('table', { class: 'plain-table' },
    h('thead', {}, h('tr', {}, ...head.map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', {}, ...rows.map(([first, ...rest]) => h('tr', {}, h('th', { scope: 'row' }, first), ...rest.map((cell) => h('td', {}, cell))))));
}

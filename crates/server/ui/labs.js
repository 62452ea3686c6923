// The labs: experiments that the server runs, and their results.

import { lab } from './api.js';
import { decimal, h, plural, setText } from './dom.js';

const NAMES = {
  'fixed-window': 'Fixed window', 'sliding-window-log': 'Sliding log', 'sliding-window-counter': 'Sliding counter',
  'token-bucket': 'Token bucket', 'leaky-bucket': 'Leaky, policing', 'leaky-bucket-shaping': 'Leaky, shaping',
  'leaky-bucket-policing': 'Leaky, policing',
};

/** `field` is the setting that visitors can change: `[name, label, min, max, default]`. */
const LABS = [
  {
    id: 'boundary',
    field: ['limit', 'Limit', 1, 100, 10],
    setup: (limit) => `Limit ${limit} per 10 s. ${2 * limit} requests around one window boundary, the same for all six.`,
    name: 'Boundary burst',
    question: 'A client sends its whole limit just before a window ends, and again just after. How many are admitted within one period?',
    show({ behaviours }) {
      const rows = behaviours.map((one) => [NAMES[one.behaviour] ?? one.behaviour, one.admitted_in_period, one.admitted_in_period > one.limit]);
      const [worst] = [...behaviours].sort((a, b) => b.admitted_in_period - a.admitted_in_period);
      return [
        bars('admitted within one period', rows, behaviours[0].limit),
        `The limit is ${behaviours[0].limit}. The ${(NAMES[worst.behaviour] ?? worst.behaviour).toLowerCase()} admitted ${worst.admitted_in_period} within one period: its count was reset at the boundary. If that is not acceptable, use a log, or the counter for a fraction of its memory.`,
      ];
    },
  },
  {
    id: 'race',
    field: ['clients', 'Clients', 2, 64, 32],
    setup: (clients) => `${clients} concurrent clients, limit 10; the worst of five rounds.`,
    name: 'Race condition',
    question: 'Many clients send a request at the same time. One limiter reads the count, checks it and writes it back; the other does all of it in one atomic step.',
    settings: { limit: 10 },
    show({ naive, atomic, limit, clients, store }) {
      const read = naive.over > 0
        ? `Read, check, write admitted ${naive.over} too many: several clients read the same count before one of them wrote.`
        : clients <= limit ? 'There were no more clients than the limit, so none could be too many.'
          : 'Read, check, write admitted none too many this time, by chance. Run it again.';
      return [
        bars(`admitted of ${clients}`, [['Read, check, write', naive.admitted, naive.over > 0], ['One atomic step', atomic.admitted, atomic.over > 0]], limit),
        `${plural(clients, 'concurrent client')}, counters in ${store === 'redis' ? 'Redis' : 'memory'}, limit ${limit}. ${read} The atomic step admitted ${atomic.over || 'none'} too many.`,
      ];
    },
  },
  {
    id: 'skew',
    field: ['skew_s', 'Skew in s', 0, 3600, 10],
    setup: (skew) => `Limit 10 per 10 s, a log; clocks ${skew} s apart. Ten requests to each server at the same time.`,
    name: 'Clock skew',
    question: 'Two servers share one limit, and their clocks differ. Which clock should decide?',
    settings: { limit: 10, period_s: 10 },
    show({ application_time: own, store_time: store, limit, period_s: period }) {
      const why = own.admitted > limit
        ? 'for each server, the requests of the other have already expired'
        : `a skew below the period of ${period} s does not affect a log`;
      return [
        bars('admitted within one period', [['Each server’s own time', own.admitted, own.admitted > limit], ['The store’s time', store.admitted, store.admitted > limit]], limit),
        `The same traffic, limit ${limit}. By the servers’ own clocks, ${own.admitted} were admitted: ${why}. By the store’s clock, ${store.admitted} were. Tallygate uses the store’s clock.`,
      ];
    },
  },
  {
    id: 'outage',
    field: ['replicas', 'Servers', 1, 8, 2],
    setup: (servers) => `Limit 10 per minute, ${plural(servers, 'server')}. Twenty requests before, during and after the outage.`,
    name: 'Store outage',
    question: 'The store is down for a while. What do clients get with each failure policy?',
    settings: { limit: 10 },
    show({ policies }) {
      const cells = ({ admitted, refused, unavailable }) => [`${admitted} × 200`, refused && `${refused} × 429`, unavailable && `${unavailable} × 503`].filter(Boolean).join('\n');
      return [
        table(['Policy', 'Before', 'During', 'After'], policies.map((one) => [one.policy, cells(one.before), cells(one.during), cells(one.after)])),
        'Open admits everything. Closed refuses everything with 503, never 429. Local counts in each server with its share of the limit: approximate, but still a limit.',
      ];
    },
  },
  {
    id: 'greedy',
    field: ['greedy', 'Times', 1, 100, 10],
    setup: (times) => `${10 * times} requests of one tenant and 10 of another within 10 s: a shared limit, one each, and tiers.`,
    name: 'Greedy tenant',
    question: 'One tenant sends many times as much as another. Whose requests are admitted?',
    show({ shared, own, tiers }) {
      const of = (list) => list.map((one) => `${one.admitted} of ${one.sent}`);
      const modest = (list) => list.filter((one) => one.tenant !== 'greedy').map((one) => `${one.admitted} of ${one.sent}`).join(', ');
      const starved = shared.some((one) => one.tenant !== 'greedy' && one.admitted < one.sent);
      return [
        table(['Limits', ...shared.map((one) => `${one.tenant}, admitted`)], [['Shared', ...of(shared)], ['One each', ...of(own)], ['Tiers', ...of(tiers)]]),
        `With a shared limit, the modest tenant got ${modest(shared)}${starved ? ': the greedy one used it up' : ''}. With a limit each, it got ${modest(own)}. With tiers, each has its own quota: ${tiers.map((one) => `${one.tenant} ${one.quota}`).join(', ')}.`,
      ];
    },
  },
  {
    id: 'stampede',
    field: ['requests', 'Requests', 1, 1000, 1000],
    setup: (requests) => `${plural(requests, 'request')} through the real gateway to an upstream that counts its calls: with and without coalescing.`,
    name: 'Cache stampede',
    question: 'Many concurrent requests are for the same resource. How many reach the upstream?',
    show({ without, with: single }) {
      return [
        bars('upstream calls', [['Separate', without.upstream_calls, false], ['Coalesced', single.upstream_calls, false]], null),
        `All requests were answered in both cases, ${without.answered} and ${single.answered}. With coalescing, ${plural(single.upstream_calls, 'call')} reached the upstream and the requests shared its response. A limit alone would have refused most of them.`,
      ];
    },
  },
];

/** Greedy tenants on one bucket, with shares and without. */
export const FAIR_SHARES = {
  id: 'shares',
  field: ['greedy', 'Greedy', 1, 20, 5],
  setup: (greedy) => `${plural(greedy, 'tenant')} at 200/s each and 95 at one in 2 s, for 30 s, on token-bucket 100/s burst 100: as it is, and shared 4.`,
  name: 'Fair shares',
  question: 'Many tenants share one limit, and some ask for far more than it has. Who gets what?',
  show({ light, seconds, without, with: shared }) {
    const [before, after] = [without, shared].map(({ members }) => {
      const [greedy, modest] = [true, false].map((kind) => members.filter((one) => one.greedy === kind));
      const total = (list, of) => list.reduce((sum, one) => sum + one[of], 0);
      const got = (list) => percent(total(list, 'admitted'), total(list, 'sent'));
      return {
        greedy: greedy.map((one) => one.admitted), light: total(modest, 'admitted'),
        each: `${decimal(total(greedy, 'admitted') / greedy.length / seconds)}/s`, all: `${decimal(total(modest, 'admitted') / seconds)}/s`,
        used: percent(total(members, 'admitted'), 100 * seconds + 100),
        got: got(modest), least: Math.min(...modest.map((one) => got([one]))),
        borrow: members.filter((one) => one.borrows).length, borrowGreedy: greedy.filter((one) => one.borrows).length, count: members.length,
      };
    });
    const rest = after.borrow - after.borrowGreedy;
    const who = `${after.borrow} of ${after.count} tenants borrow: ${after.borrowGreedy} greedy, ${rest} light`;
    return [
      h('div', { class: 'shares' },
        stacked('Without shares', before), stacked('With shares', after),
        table(['', 'Without', 'With'], [
          ['Each greedy tenant', before.each, after.each], [`All ${light} light ones`, before.all, after.all],
          ['Light got, of what asked', `${before.got} %`, `${after.got} %`], ['The least of them', `${before.least} %`, `${after.least} %`],
          ['Used of the limit', `${before.used} %`, `${after.used} %`],
        ]),
        h('p', { class: 'muted' }, `In the end, ${who}.`),
        h('div', { class: 'members', role: 'img', 'aria-label': who }, ...shared.members.map((one) => h('i', { class: one.borrows ? 'borrows' : '' })))),
      `On one bucket, the light tenants got ${before.got} % of what they asked${before.got < 90 ? ': who asks most gets most' : ''}. With shares they got ${after.got} %, and the greedy ones borrowed what was left.`,
    ];
  },
};

/** Who got what, as one bar. */
function stacked(name, { greedy, light }) {
  const total = greedy.reduce((sum, one) => sum + one, light) || 1;
  const piece = (count, kind) => {
    const part = h('i', { class: kind });
    part.style.width = `${(count / total) * 100}%`;
    return part;
  };
  return h('div', { class: 'stack', role: 'img', 'aria-label': `${name}: ${total - light} to greedy tenants, ${light} to light ones` },
    h('span', {}, name), h('span', { class: 'pieces' }, ...greedy.map((one) => piece(one, 'over')), piece(light, '')));
}

/** A whole percentage; 100 only if it is all. */
function percent(part, whole) {
  return whole === 0 ? 100 : Math.floor((part / whole) * 100);
}

/** Adds the labs to the page. */
export function labs(parent, announce) {
  parent.append(...LABS.map((one) => labCard(one, announce)));
}

/** A lab as an article. */
export function labCard(one, announce) {
  const [setting, name, min, max, initial] = one.field;
  const id = `lab-${one.id}-${setting}`;
  const setup = h('p', { class: 'muted' }, one.setup(initial));
  const input = h('input', {
    id, type: 'number', min, max, step: 1, value: initial, required: true, inputmode: 'numeric', 'aria-describedby': `${id}-bounds`,
    oninput: () => { if (input.checkValidity()) setText(setup, one.setup(input.valueAsNumber)); },
  });
  const result = h('div', { class: 'result', id: `lab-${one.id}-result` });
  // The accessible name includes the lab's name.
  const label = (text) => {
    run.textContent = text;
    run.setAttribute('aria-label', `${text}: ${one.name}`);
  };
  const run = h('button', { type: 'button', class: 'primary', onclick: async () => {
    if (!input.reportValidity()) return;
    run.disabled = true;
    label('Running');
    try {
      const [content, conclusion] = one.show(await lab(one.id, { ...one.settings, [setting]: input.valueAsNumber }));
      result.replaceChildren(content, h('p', { class: 'conclusion' }, conclusion));
      result.dataset.done = String(Number(result.dataset.done ?? 0) + 1);
      announce(`${one.name}: ${conclusion}`);
    } catch (error) {
      result.replaceChildren(h('p', { class: 'error' }, `The lab failed: ${error.message}.`));
    }
    run.disabled = false;
    label('Run again');
  } });
  label('Run');
  const row = h('div', { class: 'lab-form' }, h('label', { for: id }, name), input, h('span', { class: 'muted', id: `${id}-bounds` }, `${min} to ${max}`), run);
  return h('article', { class: 'lab', id: `lab-${one.id}` }, h('h3', {}, one.name), h('p', {}, one.question), setup, row, result);
}

/** A table with bars and a mark at the limit. */
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
  const text = limit ? `${caption}; the mark is the limit, ${limit}` : caption;
  return h('table', { class: 'bars' }, h('caption', {}, text), h('tbody', {}, ...lines));
}

function table(head, rows) {
  return h('table', { class: 'plain-table' },
    h('thead', {}, h('tr', {}, ...head.map((name) => (name ? h('th', { scope: 'col' }, name) : h('td'))))),
    h('tbody', {}, ...rows.map(([first, ...rest]) => h('tr', {}, h('th', { scope: 'row' }, first), ...rest.map((cell) => h('td', {}, cell))))));
}

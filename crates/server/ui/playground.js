// The playground page.

import { StepQueue, about } from './api.js';
import { StoreStatus } from './store-status.js';
import { ALGORITHMS } from './algorithms.js';
import { beyond } from './beyond.js';
import { Card } from './card.js';
import { Chart } from './chart.js';
import { Clock } from './clock.js';
import { Controls } from './controls.js';
import { setText } from './dom.js';
import { labs } from './labs.js';
import { DEFAULTS, formatHash, parseHash } from './permalink.js';
import { Traffic } from './traffic.js';

const byId = (id) => document.getElementById(id);
/** The first burst waits for the next window if the current one ends sooner. */
const MIN_WINDOW_US = 5e6;
const settings = parseHash(location.hash);
const reducedMotion = matchMedia('(prefers-reduced-motion: reduce)');

const clock = new Clock();
clock.choose(settings.clock, settings.speed);
const queue = new StepQueue(clock);
const status = new StoreStatus(byId('badge'), clock);

/** When the page was last drawn, the time it showed, and whether a response came since. */
let [drawnAt, shownTime, changed] = [0, -1, true];

const app = {
  clock,
  queue,
  announce: (text) => setText(byId('announcer'), text),
  changed: () => history.replaceState(null, '', link()),
  timeChanged() {
    app.resetAll();
    status.show();
    app.changed();
  },
  resetAll() {
    queue.clear();
    clock.restart();
    for (const card of cards) card.reset();
    byId('welcome').hidden = true;
  },
  burstAll(count) {
    for (const card of cards) card.send(count);
  },
  /** Opens or closes the details of a card, of one at a time. */
  opened(card, open) {
    for (const other of cards) other.open(open && other === card);
    if (open) card.details.scrollIntoView({ block: 'nearest', behavior: reducedMotion.matches ? 'auto' : 'smooth' });
  },
};

const cards = ALGORITHMS.map((algorithm) => new Card(algorithm, algorithm.quota, app));
byId('card-list').append(...cards.flatMap((card) => card.elements));
for (const card of cards) {
  if (settings.quotas[card.algorithm.id] !== card.algorithm.quota) card.editor.setQuota(settings.quotas[card.algorithm.id]);
}

const traffic = new Traffic(cards, queue, clock);
Object.assign(traffic, { source: settings.source, options: settings.options });
const controls = new Controls(traffic, clock, app);
const chart = new Chart(cards, byId('plots'));
const drawBeyond = beyond(byId('beyond-list'), app.announce);
labs(byId('lab-list'), app.announce);

showLiveLink();
queue.onresponse = (response) => {
  status.update(response);
  changed = true;
};
queue.onerror = (error) => status.fail(error);
status.onrecovery = () => cards.forEach((card) => card.peek());

byId('span').value = chart.span = settings.span;
const showSpan = () => setText(byId('span-now'), `${chart.span} s`);
showSpan();
byId('span').addEventListener('input', (event) => {
  chart.span = Number(event.target.value);
  showSpan();
  app.changed();
});

byId('share').addEventListener('click', async () => {
  app.changed();
  try {
    await navigator.clipboard.writeText(location.href);
    setText(byId('share'), 'Copied');
  } catch {
    setText(byId('share'), 'See the address bar');
  }
  app.announce('The link contains all settings');
  setTimeout(() => setText(byId('share'), 'Copy link'), 2000);
});

// The hash holds the settings, so links within the page do not change it.
for (const jump of document.querySelectorAll('[data-jump]')) {
  jump.addEventListener('click', (event) => {
    event.preventDefault();
    const to = byId(jump.hash.slice(1));
    to.scrollIntoView({ behavior: reducedMotion.matches ? 'auto' : 'smooth' });
    to.focus({ preventScroll: true });
  });
}
addEventListener('hashchange', () => location.reload());

welcome();
frame();

function link() {
  const quotas = Object.fromEntries(cards.map((card) => [card.algorithm.id, card.editor.text]));
  return location.pathname + formatHash({
    quotas, source: traffic.source, options: traffic.options, clock: clock.mode, speed: clock.speed, span: chart?.span ?? DEFAULTS.span,
  });
}

/** Restores the visitor's counters; for a new visitor, sends a first burst. */
function welcome() {
  if (clock.supplied) {
    app.resetAll();
    return;
  }
  let fresh = true;
  let received = 0;
  const peeks = cards.map((card) => card.step('peek'));
  queue.send(peeks, (answer) => {
    fresh &&= answer.remaining === answer.limit && !answer.degraded;
    received += 1;
  }).then(() => {
    for (const card of cards) card.peek();
    if (fresh && received === cards.length && !settings.custom) firstBurst();
  });
}

/** Twelve requests to each, at a time at which a fixed window does not end right after. */
function firstBurst() {
  const { period } = cards[0].quota;
  const left = period - (clock.now() % period);
  const wait = left < MIN_WINDOW_US ? left + 1e5 : 0;
  const text = byId('welcome');
  text.hidden = false;
  setText(text, 'A new window begins in a moment; then each limiter gets twelve requests at once.');
  setTimeout(() => {
    // Not if the visitor has sent something or started traffic meanwhile.
    if (text.hidden || traffic.running || cards.some((card) => card.history.length > 0)) return;
    app.burstAll(12);
    setText(text, 'Each limiter was just sent twelve requests at once, and not all were admitted. Watch how each one recovers.');
  }, wait / 1000);
}

/** The live view is for browsers on its machine. */
async function showLiveLink() {
  const { live } = await about().catch(() => ({}));
  if (!live || !['localhost', '127.0.0.1', '[::1]'].includes(location.hostname)) return;
  byId('live-link').href = live;
  byId('live-link').hidden = false;
}

function frame() {
  requestAnimationFrame(frame);
  traffic.tick();
  const now = clock.now();
  // About 30 frames per second; 2 with reduced motion, and 4 while time stands still.
  const interval = reducedMotion.matches ? 500 : now === shownTime && !changed ? 250 : 30;
  if (performance.now() - drawnAt < interval) return;
  [drawnAt, shownTime, changed] = [performance.now(), now, false];
  for (const card of cards) card.frame(now);
  chart.frame(now);
  controls.frame(now);
  drawBeyond();
}

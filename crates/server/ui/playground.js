// The playground: puts clock, cards, desk, chart and labs together, and keeps the link in step.

import { Line } from './api.js';
import { Badge } from './store-status.js';
import { BEHAVIOURS } from './algorithms.js';
import { Card } from './card.js';
import { Chart } from './chart.js';
import { Clock } from './clock.js';
import { Desk } from './controls.js';
import { say } from './dom.js';
import { labs } from './labs.js';
import { DEFAULTS, read, write } from './permalink.js';
import { Traffic } from './traffic.js';

const find = (id) => document.getElementById(id);
const setting = read(location.hash);
const still = matchMedia('(prefers-reduced-motion: reduce)');

const clock = new Clock();
clock.choose(setting.clock, setting.speed);
const line = new Line(clock);
const badge = new Badge(find('badge'), clock);

/** When the page was last drawn, at which time, and whether something was heard since. */
let [drawn, shown, news] = [0, -1, true];

const stage = {
  clock,
  line,
  announce: (text) => say(find('spoken'), text),
  changed: () => history.replaceState(null, '', link()),
  timeChanged() {
    stage.resetAll();
    badge.show();
    stage.changed();
  },
  resetAll() {
    line.clear();
    clock.restart();
    for (const card of cards) card.reset();
    find('welcome').hidden = true;
  },
  burstAll(count) {
    for (const card of cards) card.send(count);
  },
};

const cards = BEHAVIOURS.map((behaviour) => new Card(behaviour, behaviour.quota, stage));
find('card-place').append(...cards.map((card) => card.element));
for (const card of cards) {
  if (setting.quotas[card.behaviour.id] !== card.behaviour.quota) card.settings.take(setting.quotas[card.behaviour.id]);
}

const traffic = new Traffic(cards, line, clock);
Object.assign(traffic, { source: setting.source, options: setting.options });
const desk = new Desk(traffic, clock, stage);
const chart = new Chart(cards, find('plots'));
labs(find('lab-place'), stage.announce);

line.onheard = (answer) => {
  badge.heard(answer);
  news = true;
};
line.onlost = (error) => badge.lost(error);
badge.onback = () => cards.forEach((card) => card.peek());

find('span').value = chart.span = setting.span;
const showSpan = () => say(find('span-now'), `${chart.span} s`);
showSpan();
find('span').addEventListener('input', (event) => {
  chart.span = Number(event.target.value);
  showSpan();
  stage.changed();
});

find('share').addEventListener('click', async () => {
  stage.changed();
  try {
    await navigator.clipboard.writeText(location.href);
    say(find('share'), 'Copied');
  } catch {
    say(find('share'), 'It is in the address bar');
  }
  stage.announce('The link holds the whole setting');
  setTimeout(() => say(find('share'), 'Copy link'), 2000);
});

// The hash belongs to the setting, so jumps within the page leave it alone.
for (const jump of document.querySelectorAll('[data-jump]')) {
  jump.addEventListener('click', (event) => {
    event.preventDefault();
    const to = find(jump.hash.slice(1));
    to.scrollIntoView({ behavior: still.matches ? 'auto' : 'smooth' });
    to.focus({ preventScroll: true });
  });
}
addEventListener('hashchange', () => location.reload());

welcome();
frame();

function link() {
  const quotas = Object.fromEntries(cards.map((card) => [card.behaviour.id, card.settings.text]));
  return location.pathname + write({
    quotas, source: traffic.source, options: traffic.options, clock: clock.mode, speed: clock.speed, span: chart?.span ?? DEFAULTS.span,
  });
}

/** Starts from where the visitor was; whoever is new finds a first burst on its way. */
function welcome() {
  if (clock.supplied) {
    stage.resetAll();
    return;
  }
  let fresh = true;
  let heard = 0;
  const peeks = cards.map((card) => card.step('peek'));
  line.send(peeks, (answer) => {
    fresh &&= answer.remaining === answer.limit && !answer.degraded;
    heard += 1;
  }).then(() => {
    for (const card of cards) card.peek();
    if (!fresh || heard < cards.length || setting.any) return;
    stage.burstAll(12);
    say(find('welcome'), 'Twelve requests have just arrived at each, in one instant, and not all got in. Watch how each one finds room again.');
    find('welcome').hidden = false;
  });
}

function frame() {
  requestAnimationFrame(frame);
  traffic.tick();
  const now = clock.now();
  // Thirty pictures a second are smooth enough. Who asked for less motion sees the same figures, twice
  // a second; and where time stands still, a look now and then will do.
  const rest = still.matches ? 500 : now === shown && !news ? 250 : 30;
  if (performance.now() - drawn < rest) return;
  [drawn, shown, news] = [performance.now(), now, false];
  for (const card of cards) card.frame(now);
  chart.frame(now);
  desk.frame(now);
}

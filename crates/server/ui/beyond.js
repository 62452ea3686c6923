// What limits can do beyond a rate: fair shares, requests in flight, costs known only later. On the
// store's clock, whatever time the cards above run on.

import { StepQueue } from './api.js';
import { Clock } from './clock.js';
import { InFlight } from './in-flight.js';
import { FAIR_SHARES, labCard } from './labs.js';
import { Reservations } from './reservations.js';

const RETRY_MS = 2000;

/** Adds the cards to the page, and returns what draws them. */
export function beyond(parent, announce) {
  const clock = new Clock();
  const queue = new StepQueue(clock);
  const cards = [new InFlight(queue, clock, announce), new Reservations(queue, clock, announce)];
  // Without the store or the server, until it answers again.
  queue.onerror = () => cards.forEach((card) => { card.reachable = false; });
  setInterval(() => cards.filter((card) => !card.reachable).forEach((card) => card.peek()), RETRY_MS);
  parent.append(labCard(FAIR_SHARES, announce), ...cards.map((card) => card.element));
  return () => cards.forEach((card) => card.frame(clock.now()));
}

// The words for a state: a table of situations, and what the engine then decides.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { serve } from './harness.mjs';
import { parse } from '../../ui/quota.js';
import { advance } from '../../ui/state.js';
import { words } from '../../ui/words.js';

const server = await serve();
after(() => server.end());

const QUOTAS = ['fixed-window 10/10s', 'sliding-window-log 10/10s', 'sliding-window-counter 10/10s', 'token-bucket 10/10s burst 10', 'leaky-bucket 10/10s burst 10', 'leaky-bucket 10/10s queue 10'];

let cookie = '';
/** Takes steps on supplied time and returns the answers. */
async function play(steps) {
  const response = await fetch(`${server.page}/api/play`, {
    method: 'POST', headers: { 'content-type': 'application/json', cookie }, body: JSON.stringify({ clock: 'supplied', steps }),
  });
  cookie = response.headers.get('set-cookie')?.split(';')[0] ?? cookie;
  assert.equal(response.status, 200);
  return (await response.json()).answers;
}

/** Requests at these times, and the words at others. */
async function situation(quota, requests, times, reachable = true) {
  const card = `card-${Math.random()}`.slice(0, 30);
  const steps = requests.map((t_us) => ({ card, quota, t_us }));
  const answers = steps.length > 0 ? await play(steps) : [];
  const [state, next, at] = [answers.at(-1)?.state ?? null, answers.at(-1)?.next, requests.at(-1) ?? 0];
  const parsed = parse(quota);
  return times.map((now) => words({ view: advance(state, at, now, parsed, next), quota: parsed, last: answers.at(-1) ?? null, reachable }));
}

/** No two of the words may disagree. */
function assertConsistent(said, context) {
  const left = Number.parseInt(said.remaining, 10);
  const expected = {
    admits: said.next === 'now' && left > 0,
    delays: /^delayed \d/.test(said.next) && left > 0,
    refuses: /^in \d/.test(said.next) && said.next !== 'in 0.0 s' && left === 0,
    unknown: said.next === 'unknown' && said.remaining === 'unknown',
  }[said.state];
  assert.ok(expected, `${context}: ${JSON.stringify(said)}`);
  assert.equal(said.badge, said.state === 'unknown' ? 'store down' : said.state, context);
}

const burst = (count, t = 0) => Array(count).fill(t);
const TABLE = [
  // quota, requests, time, state, remaining, next, last
  [0, [], 0, 'admits', '10 of 10', 'now', 'none yet'],
  [0, burst(1), 0, 'admits', '9 of 10', 'now', '200 admitted'],
  [0, burst(10), 0, 'refuses', '0 of 10', 'in 10.0 s', '200 admitted'],
  [0, burst(11), 0, 'refuses', '0 of 10', 'in 10.0 s', '429 refused'],
  [0, burst(11), 9999999, 'refuses', '0 of 10', 'in 0.1 s', '429 refused'],
  [0, burst(11), 1e7, 'admits', '10 of 10', 'now', '429 refused'],
  [0, burst(12, 9e6), 1e7, 'admits', '10 of 10', 'now', '429 refused'],
  [1, burst(10), 5e6, 'refuses', '0 of 10', 'in 5.0 s', '200 admitted'],
  [1, [...burst(5), ...burst(6, 4e6)], 1e7, 'admits', '5 of 10', 'now', '429 refused'],
  [1, burst(11), 1e7, 'admits', '10 of 10', 'now', '429 refused'],
  [2, burst(10), 1e7, 'refuses', '0 of 10', 'in 0.1 s', '200 admitted'],
  [2, burst(11), 1.1e7, 'admits', '1 of 10', 'now', '429 refused'],
  [2, burst(11), 2e7, 'admits', '10 of 10', 'now', '429 refused'],
  [3, burst(10), 0, 'refuses', '0 of 10', 'in 1.0 s', '200 admitted'],
  [3, burst(11), 900000, 'refuses', '0 of 10', 'in 0.1 s', '429 refused'],
  [3, burst(11), 1e6, 'admits', '1 of 10', 'now', '429 refused'],
  [4, burst(11), 1500000, 'admits', '1 of 10', 'now', '429 refused'],
  [4, burst(10), 999999, 'refuses', '0 of 10', 'in 0.1 s', '200 admitted'],
  [5, [], 0, 'admits', '10 of 10', 'now', 'none yet'],
  [5, burst(1), 0, 'delays', '9 of 10', 'delayed 1.0 s', '200 admitted'],
  [5, burst(10), 0, 'refuses', '0 of 10', 'in 1.0 s', '200 after 9.0 s'],
  [5, burst(11), 1e6, 'delays', '1 of 10', 'delayed 9.0 s', '429 refused'],
  [5, burst(11), 1e7, 'admits', '10 of 10', 'now', '429 refused'],
];

test('a table of situations', async () => {
  for (const [quota, requests, now, state, remaining, next, last] of TABLE) {
    const [said] = await situation(QUOTAS[quota], requests, [now]);
    const context = `${QUOTAS[quota]}, ${requests.length} requests, at ${now}`;
    assert.deepEqual([said.state, said.remaining, said.next, said.last], [state, remaining, next, last], context);
    assertConsistent(said, context);
  }
});

test('without the store nothing is claimed, and the last response stays', async () => {
  for (const quota of QUOTAS) {
    const [said] = await situation(quota, burst(11), [1e6], false);
    assertConsistent(said, quota);
    assert.equal(said.last, '429 refused');
  }
});

test('the engine decides as the words say, at any time', async () => {
  const seed = Number(process.env.TALLYGATE_SEED ?? Math.floor(Math.random() * 2 ** 31));
  console.log(`TALLYGATE_SEED=${seed}`);
  let number = seed;
  const random = (below) => {
    number = (Math.imul(number, 1103515245) + 12345) & 0x7fffffff;
    return Math.floor((number >> 8) % below);
  };
  for (let round = 0; round < 60; round += 1) {
    const [limit, period] = [1 + random(300), [1, 3, 10, 60][random(4)]];
    const capacity = 1 + random(300);
    const quota = [`fixed-window ${limit}/${period}s`, `sliding-window-log ${limit}/${period}s`, `sliding-window-counter ${limit}/${period}s`,
      `token-bucket ${limit}/${period}s burst ${capacity}`, `leaky-bucket ${limit}/${period}s burst ${capacity}`, `leaky-bucket ${limit}/${period}s queue ${capacity}`][random(6)];
    const parsed = parse(quota.replace(/\/(\d+)s/, (_, seconds) => `/${seconds === '1' ? '' : seconds}s`));
    const card = `random-${round}`;
    let t_us = random(1e7);
    const steps = Array.from({ length: 1 + random(400) }, () => {
      t_us += random(4) === 0 ? random((period * 1e6) / 3) : 0;
      return { card, quota, t_us };
    });
    const last = (await play(steps)).at(-1);
    // Then, step by step, without another request.
    for (let peek = 0; peek < 8; peek += 1) {
      const now = peek === 0 ? t_us : t_us + random(peek * period * 3e5);
      const view = advance(last.state, t_us, now, parsed, last.next);
      const said = words({ view, quota: parsed, last, reachable: true });
      const context = `seed ${seed}, ${quota}, ${steps.length} requests, ${now - t_us} µs after the last`;
      assertConsistent(said, context);
      const [decision] = await play([{ card, quota, t_us: now, verb: 'peek' }]);
      assert.equal(decision.allowed, said.state !== 'refuses', context);
      assert.equal(view.next_us, decision.retry_after_us ?? 0, context);
      if (decision.allowed) assert.equal(view.delay_us, decision.delay_us, context);
      // A level is known to the thousandth.
      const exact = !/bucket/.test(quota);
      assert.ok(exact ? view.left === decision.remaining : Math.abs(view.left - decision.remaining) <= 1, `${context}: ${view.left} left, not ${decision.remaining}`);
      // A peek on supplied time moves the state on, as a page that draws does not.
      t_us = Math.max(t_us, now);
      [last.state, last.next] = [decision.state, decision.next];
    }
  }
});

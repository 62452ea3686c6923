// The results of each lab, as the page shows them.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { setUp, visit } from './harness.mjs';

const { server, chrome } = await setUp();

/** Runs a lab and returns its table and conclusion. */
async function run(id, setting) {
  const { page, errors, end } = await visit(chrome, `${server.page}/#clock=step`);
  if (setting !== undefined) {
    await page.fill(`#lab-${id} input`, String(setting));
    assert.match(await page.textContent(`#lab-${id} > .muted`), new RegExp(`\\b${setting}\\b`));
  }
  await page.click(`#lab-${id} button`);
  await page.waitForSelector(`#lab-${id}-result[data-done="1"]`);
  const rows = await page.$$eval(`#lab-${id}-result tbody tr`, (all) => all.map((row) => [...row.cells].filter((cell) => !cell.hasAttribute('aria-hidden')).map((cell) => cell.textContent)));
  const conclusion = await page.textContent(`#lab-${id}-result .conclusion`);
  assert.deepEqual(errors, []);
  await end();
  return { rows, conclusion };
}

test('only a fixed window admits twice the limit at a boundary', async () => {
  const { rows, conclusion } = await run('boundary');
  assert.deepEqual(rows, [
    ['Fixed window', '20'], ['Sliding log', '10'], ['Sliding counter', '10'], ['Token bucket', '10'], ['Leaky, policing', '10'], ['Leaky, shaping', '10'],
  ]);
  assert.match(conclusion, /fixed window admitted 20 within/);
});

test('only the atomic step admits no more than the limit', async () => {
  const { rows, conclusion } = await run('race');
  const [[, naive], [, atomic]] = rows;
  assert.ok(Number(naive) > 10, `read, check, write admitted ${naive}`);
  assert.equal(atomic, '10');
  assert.match(conclusion, new RegExp(`admitted ${naive - 10} too many`));
});

test('skewed clocks admit twice the limit, the store’s clock does not', async () => {
  const { rows } = await run('skew');
  assert.deepEqual(rows.map(([, count]) => count), ['20', '10']);
});

test('without the store, each policy decides as documented', async () => {
  const { rows } = await run('outage');
  const usual = '10 × 200\n10 × 429';
  assert.deepEqual(rows, [['open', usual, '20 × 200', usual], ['closed', usual, '0 × 200\n20 × 503', usual], ['local', usual, usual, usual]]);
});

test('a greedy tenant starves the modest one only with a shared limit', async () => {
  const { rows, conclusion } = await run('greedy');
  assert.deepEqual(rows, [['Shared', '19 of 100', '1 of 10'], ['One each', '10 of 100', '10 of 10'], ['Tiers', '5 of 100', '10 of 10']]);
  assert.match(conclusion, /the modest tenant got 1 of 10/);
});

test('a coalesced stampede reaches the upstream once', async () => {
  const { rows } = await run('stampede');
  assert.deepEqual(rows, [['Separate', '1000'], ['Coalesced', '1']]);
});

test('every lab runs with the chosen setting', async () => {
  const boundary = await run('boundary', 3);
  assert.deepEqual(boundary.rows.slice(0, 2), [['Fixed window', '6'], ['Sliding log', '3']]);
  const race = await run('race', 4);
  assert.deepEqual(race.rows.map(([, count]) => count), ['4', '4']);
  assert.match(race.conclusion, /no more clients than the limit,/);
  const skew = await run('skew', 4);
  assert.deepEqual(skew.rows.map(([, count]) => count), ['10', '10']);
  assert.match(skew.conclusion, /does not affect a log/);
  const outage = await run('outage', 1);
  assert.equal(outage.rows[2][2], '10 × 200\n10 × 429');
  const stampede = await run('stampede', 40);
  assert.deepEqual(stampede.rows.map(([, count]) => count), ['40', '1']);
});

test('a setting out of range is not sent', async () => {
  const { page, errors, end } = await visit(chrome, `${server.page}/#clock=step`);
  const before = await page.textContent('#lab-greedy > .muted');
  await page.fill('#lab-greedy input', '101');
  await page.click('#lab-greedy button');
  assert.equal(await page.textContent('#lab-greedy > .muted'), before);
  assert.equal(await page.textContent('#lab-greedy button'), 'Run');
  await page.fill('#lab-greedy input', '5');
  await page.click('#lab-greedy button');
  await page.waitForSelector('#lab-greedy-result[data-done="1"]');
  assert.equal(await page.getAttribute('#lab-greedy button', 'aria-label'), 'Run again: Greedy tenant');
  assert.match(await page.textContent('#lab-greedy-result'), /of 50/);
  assert.deepEqual(errors, []);
  await end();
});

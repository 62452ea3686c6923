// Each lab's numbers, as the page shows them.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { browser, serve, visit } from './harness.mjs';

let server;
let chrome;
before(async () => {
  server = await serve();
  chrome = await browser();
});
after(async () => {
  await chrome?.close();
  await server?.end();
});

/** Runs a lab, with a setting of one's own or as it comes, and answers its table and its conclusion. */
async function run(id, own) {
  const { page, complaints, end } = await visit(chrome, `${server.page}/#clock=step`);
  if (own !== undefined) {
    await page.fill(`#lab-${id} input`, String(own));
    assert.match(await page.textContent(`#lab-${id} > .quiet`), new RegExp(`\\b${own}\\b`));
  }
  await page.click(`#lab-${id} button`);
  await page.waitForSelector(`#lab-${id}-result[data-done="1"]`);
  const rows = await page.$$eval(`#lab-${id}-result tbody tr`, (all) => all.map((row) => [...row.cells].filter((cell) => !cell.hasAttribute('aria-hidden')).map((cell) => cell.textContent)));
  const so = await page.textContent(`#lab-${id}-result .so`);
  assert.deepEqual(complaints, []);
  await end();
  return { rows, so };
}

test('the boundary burst passes twice the limit through a fixed window only', async () => {
  const { rows, so } = await run('boundary');
  assert.deepEqual(rows, [
    ['Fixed window', '20'], ['Sliding log', '10'], ['Sliding counter', '10'], ['Token bucket', '10'], ['Leaky, policing', '10'], ['Leaky, shaping', '10'],
  ]);
  assert.match(so, /fixed window let 20 in/);
});

test('the race lets too many in unless it is one step', async () => {
  const { rows, so } = await run('race');
  const [[, naive], [, atomic]] = rows;
  assert.ok(Number(naive) > 10, `read, check, write admitted ${naive}`);
  assert.equal(atomic, '10');
  assert.match(so, new RegExp(`let ${naive - 10} too many in`));
});

test('skewed clocks let twice the limit in, the store’s clock does not', async () => {
  const { rows } = await run('skew');
  assert.deepEqual(rows.map(([, count]) => count), ['20', '10']);
});

test('without its store a limit is open, closed or local', async () => {
  const { rows } = await run('outage');
  const usual = '10 in\n10 × 429';
  assert.deepEqual(rows, [['open', usual, '20 in', usual], ['closed', usual, '0 in\n20 × 503', usual], ['local', usual, usual, usual]]);
});

test('a greedy tenant starves the modest only where they share', async () => {
  const { rows, so } = await run('greedy');
  assert.deepEqual(rows, [['One for all', '19 of 100', '1 of 10'], ['One each', '10 of 100', '10 of 10'], ['Tiers', '5 of 100', '10 of 10']]);
  assert.match(so, /the modest got 1 of 10/);
});

test('a stampede reaches the server behind once', async () => {
  const { rows } = await run('stampede');
  assert.deepEqual(rows, [['Each by itself', '1000'], ['Single flight', '1']]);
});

test('every lab runs with the setting that a visitor chose', async () => {
  const boundary = await run('boundary', 3);
  assert.deepEqual(boundary.rows.slice(0, 2), [['Fixed window', '6'], ['Sliding log', '3']]);
  const race = await run('race', 4);
  assert.deepEqual(race.rows.map(([, count]) => count), ['4', '4']);
  assert.match(race.so, /no more clients than the limit lets in/);
  const skew = await run('skew', 4);
  assert.deepEqual(skew.rows.map(([, count]) => count), ['10', '10']);
  assert.match(skew.so, /do no harm/);
  const outage = await run('outage', 1);
  assert.equal(outage.rows[2][2], '10 in\n10 × 429');
  const stampede = await run('stampede', 40);
  assert.deepEqual(stampede.rows.map(([, count]) => count), ['40', '1']);
});

test('a setting beyond its bounds is not sent', async () => {
  const { page, complaints, end } = await visit(chrome, `${server.page}/#clock=step`);
  const before = await page.textContent('#lab-greedy > .quiet');
  await page.fill('#lab-greedy input', '101');
  await page.click('#lab-greedy button');
  assert.equal(await page.textContent('#lab-greedy > .quiet'), before);
  assert.equal(await page.textContent('#lab-greedy button'), 'Run');
  await page.fill('#lab-greedy input', '5');
  await page.click('#lab-greedy button');
  await page.waitForSelector('#lab-greedy-result[data-done="1"]');
  assert.equal(await page.getAttribute('#lab-greedy button', 'aria-label'), 'Run again: The greedy tenant');
  assert.match(await page.textContent('#lab-greedy-result'), /of 50/);
  assert.deepEqual(complaints, []);
  await end();
});

// Fair shares, requests in flight, and costs that are settled later: what the cards show, and that the
// server says the same.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { redis, serve, setUp, visit, waitForText } from './harness.mjs';

const { server, chrome } = await setUp();
const STEP = `${server.page}/#clock=step`;

const figure = (card, at) => `#lab-${card} .figures div:nth-child(${at}) dd`;
const press = (page, card, text) => page.click(`#lab-${card} button:text-is("${text}")`);
const held = (page, kind, count) => page.waitForFunction(([of, expected]) => document.querySelectorAll(`.holds .${of}`).length === expected, [kind, count]);

/** What the server says of a card of this visitor. */
function peek(page, card, quota) {
  return page.evaluate(async (step) => {
    const response = await fetch('/api/play', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ clock: 'real', steps: [step] }) });
    return (await response.json()).answers[0];
  }, { card, quota, verb: 'peek', cost: 0 });
}
const inFlight = async (page) => (await peek(page, 'in-flight', 'concurrent 10 for 10s')).state.holds.map((hold) => hold.owner).sort((a, b) => a - b);
const level = async (page) => (await peek(page, 'reserve', 'token-bucket 300/min burst 1000')).state.level_milli / 1000;

test('with shares the light tenants get what they ask, and the greedy ones borrow', async () => {
  const { page, errors, end } = await visit(chrome, STEP);
  for (const [turn, greedy] of [5, 20].entries()) {
    await page.fill('#lab-shares input', String(greedy));
    await page.click('#lab-shares button');
    await page.waitForSelector(`#lab-shares-result[data-done="${turn + 1}"]`);
    const rows = await page.$$eval('#lab-shares-result tbody tr', (all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
    const row = (name) => rows.find(([first]) => first.startsWith(name)).slice(1).map(Number.parseFloat);
    const [[without, got], [, all]] = [row('Light got'), row('All 95')];
    assert.ok(without < 15 && got >= 99, JSON.stringify(rows));
    assert.ok(all > 40 && all < 55, JSON.stringify(rows));
    assert.deepEqual(row('Used of the limit').map((used) => used >= 97), [true, true]);
    // One square for each tenant, in the order of the bars, and as the words say.
    const squares = await page.$$eval('#lab-shares-result .members i', (every) => every.map((one) => one.className));
    const borrow = squares.filter((kind) => kind === 'borrows').length;
    assert.equal(squares.length, 95 + greedy);
    assert.ok(borrow >= 1);
    const label = await page.getAttribute('#lab-shares-result .members', 'aria-label');
    assert.ok(label.startsWith(`${borrow} of ${95 + greedy} tenants borrow`), label);
    assert.ok((await page.textContent('#lab-shares-result')).includes(label));
    assert.equal(await page.locator('#lab-shares-result .stack:nth-child(2) .over').count(), greedy);
    assert.match(await page.textContent('#lab-shares-result .conclusion'), new RegExp(`got ${without} % .* got ${got} %`));
  }
  assert.deepEqual(errors, []);
  await end();
});

test('at most ten requests are in flight, and one that ends makes room', async () => {
  const { page, errors, end } = await visit(chrome, STEP);
  await waitForText(page, figure('in-flight', 1), '0 of 10');
  for (let request = 1; request <= 10; request += 1) await press(page, 'in-flight', 'Start request');
  await held(page, 'held', 10);
  await waitForText(page, figure('in-flight', 1), '10 of 10');
  await waitForText(page, '#lab-in-flight .status-badge', 'refuses');
  await press(page, 'in-flight', 'Start request');
  await waitForText(page, figure('in-flight', 3), '429 refused');
  assert.deepEqual(await inFlight(page), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  await page.click('button[aria-label="End request 4"]');
  await held(page, 'held', 9);
  await waitForText(page, '#lab-in-flight .status-badge', 'admits');
  assert.deepEqual(await inFlight(page), [1, 2, 3, 5, 6, 7, 8, 9, 10]);
  // The focus is not lost with the button.
  assert.match(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), /^End request/);
  await press(page, 'in-flight', 'Start request');
  await waitForText(page, figure('in-flight', 1), '10 of 10');
  await press(page, 'in-flight', 'Reset');
  await held(page, 'free', 10);
  assert.deepEqual(await inFlight(page), []);
  assert.deepEqual(errors, []);
  await end();
});

test('what a crashed client held ends by itself, and what is renewed stays', async () => {
  const { page, errors, end } = await visit(chrome, STEP);
  await press(page, 'in-flight', 'Start request');
  await press(page, 'in-flight', 'Start request');
  await held(page, 'held', 2);
  await press(page, 'in-flight', 'Crash');
  await waitForText(page, figure('in-flight', 2), /^2, \d/);
  await waitForText(page, '#lab-in-flight .conclusion', /^2 holds without a client\. They count until/);
  assert.ok(await page.isDisabled('#lab-in-flight button:text-is("Crash")'));
  await press(page, 'in-flight', 'Start request');
  await held(page, 'held', 1);
  assert.deepEqual(await inFlight(page), [1, 2, 3]);
  // Ten seconds, in which the third is renewed.
  await waitForText(page, figure('in-flight', 2), 'none');
  await waitForText(page, figure('in-flight', 1), '1 of 10');
  assert.deepEqual(await inFlight(page), [3]);
  // A page that is loaded again has crashed too.
  await page.reload();
  await held(page, 'crashed', 1);
  await press(page, 'in-flight', 'Start request');
  await held(page, 'held', 1);
  assert.deepEqual(await inFlight(page), [1, 3]);
  assert.deepEqual(errors, []);
  await end();
});

test('a reservation is settled for less and for more, and what is not settled stays charged', async () => {
  const { page, errors, end } = await visit(chrome, STEP);
  const row = (at) => page.$$eval(`#lab-reserve tbody tr:nth-child(${at})`, ([one]) => [...one.cells].map((cell) => cell.textContent));
  const settled = (name, words) => page.waitForFunction(([first, source]) => [...document.querySelectorAll('#lab-reserve tbody tr')]
    .some((one) => one.cells[0].textContent === first && new RegExp(source).test(one.cells[3].textContent)), [name, words]);
  const reserve = async (open) => {
    await press(page, 'reserve', 'Reserve 200');
    await waitForText(page, figure('reserve', 2), `${open} × 200`);
  };
  await waitForText(page, figure('reserve', 1), '1000 of 1000');
  for (const open of [1, 2, 3]) await reserve(open);
  assert.deepEqual(await row(3), ['r1', '200', '–', 'open']);
  const before = await level(page);
  assert.ok(before >= 400 && before < 600, `${before}`);
  await press(page, 'reserve', '80');
  // What had refilled in the meantime cannot come back.
  await settled('r1', '^120 given back$|^\\d+ given back, \\d+ had refilled$');
  const [, back, , refilled] = /^(\d+) given back(, (\d+))?/.exec((await row(3))[3]);
  assert.equal(Number(back) + Number(refilled ?? 0), 120);
  assert.ok(await level(page) >= before + Number(back) - 1);
  await press(page, 'reserve', '500');
  await settled('r2', '^300 more charged$');
  await press(page, 'reserve', 'never');
  await settled('r3', '^200 stay charged$');
  await waitForText(page, figure('reserve', 2), 'none');
  assert.ok(await page.isDisabled('#lab-reserve button:text-is("80")'));
  // Into debt: the last ones that fit, settled for more.
  let open = 0;
  while (await page.textContent('#lab-reserve .status-badge') === 'admits') await reserve(open += 1);
  assert.match(await page.textContent(figure('reserve', 3)), /^in \d/);
  const name = (await row(open))[0];
  await press(page, 'reserve', '500');
  await settled(name, '^300 more charged$');
  await waitForText(page, figure('reserve', 1), /^\d+ in debt$/);
  await waitForText(page, '#lab-reserve .conclusion', /^More was used than there was/);
  assert.ok(await level(page) < 0);
  await press(page, 'reserve', 'Reserve 200');
  await page.waitForFunction(() => document.querySelector('#announcer').textContent === 'Reserve 200: refused');
  await press(page, 'reserve', 'Reset');
  await waitForText(page, figure('reserve', 1), '1000 of 1000');
  assert.equal(await level(page), 1000);
  // The ids of the first page load do not stand in the way of another's.
  await page.reload();
  await reserve(1);
  await waitForText(page, figure('reserve', 1), /^8\d\d of 1000$/);
  assert.deepEqual(errors, []);
  await end();
});

test('both cards report a store outage and recover', async () => {
  const store = await redis();
  const own = await serve({ store: store.url });
  const { page, end } = await visit(chrome, `${own.page}/#clock=step`);
  await waitForText(page, '#badge', /^counters in/);
  await press(page, 'in-flight', 'Start request');
  await held(page, 'held', 1);
  await press(page, 'reserve', 'Reserve 200');
  await waitForText(page, figure('reserve', 2), '1 × 200');
  await store.kill();
  await press(page, 'in-flight', 'Start request');
  await press(page, 'reserve', 'Reserve 200');
  for (const card of ['in-flight', 'reserve']) {
    await waitForText(page, `#lab-${card} .status-badge`, 'store down');
    await waitForText(page, figure(card, 1), 'unknown');
    await waitForText(page, `#lab-${card} .conclusion`, /^The store does not answer/);
  }
  await waitForText(page, figure('in-flight', 3), '200 without store');
  assert.equal(await page.textContent(figure('reserve', 2)), '1 × 200');
  await store.start();
  await waitForText(page, '#badge', /^counters in/);
  // It restarted empty.
  for (const card of ['in-flight', 'reserve']) await waitForText(page, `#lab-${card} .status-badge`, 'admits');
  await waitForText(page, figure('reserve', 1), '1000 of 1000');
  await end();
  await own.end();
  await store.end();
});

test('the cards fit on every screen, and their words are not cut', async () => {
  for (const viewport of [{ width: 1440, height: 900 }, { width: 1024, height: 768 }, { width: 1920, height: 1080 }, { width: 390, height: 844 }]) {
    const { page, end } = await visit(chrome, STEP, { viewport });
    await page.click('#lab-shares button');
    await page.waitForSelector('#lab-shares-result[data-done]');
    for (let request = 0; request < 10; request += 1) await press(page, 'in-flight', 'Start request');
    await held(page, 'held', 10);
    await press(page, 'in-flight', 'Crash');
    await press(page, 'in-flight', 'Start request');
    for (const open of [1, 2, 3, 4]) {
      await press(page, 'reserve', 'Reserve 200');
      await waitForText(page, figure('reserve', 2), `${open} × 200`);
    }
    await press(page, 'reserve', '80');
    await press(page, 'reserve', '500');
    await waitForText(page, figure('reserve', 2), '2 × 200');
    const cut = await page.$$eval('#beyond-list :is(h3, button, dd, dt, .status-badge, .holds li > *, th, td, .stack span)', (all) => all
      .filter((one) => one.offsetParent && (one.scrollWidth > one.clientWidth + 1 || one.getBoundingClientRect().right > innerWidth))
      .map((one) => `${one.textContent}: ${one.scrollWidth} > ${one.clientWidth}`));
    assert.deepEqual(cut, [], JSON.stringify(viewport));
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await end();
  }
});

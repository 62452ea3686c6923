// The playground, and its agreement with `tallygate replay`.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { replay, setUp, visit, waitForText } from './harness.mjs';

const { server, chrome } = await setUp();

const STEP = '#clock=step';
const QUOTAS = {
  fixed: 'fixed-window 7/3s',
  log: 'sliding-window-log 7/3s',
  counter: 'sliding-window-counter 7/3s',
  token: 'token-bucket 7/3s burst 9',
  leaky: 'leaky-bucket 7/3s burst 4',
  shaping: 'leaky-bucket 7/3s queue 12',
};
const CARDS = Object.keys(QUOTAS);

/** A link with quotas. */
function link(quotas, more = {}) {
  return `${server.page}/#${new URLSearchParams({ ...quotas, ...more })}`;
}

/** Waits until every card has the quota of the link. */
async function quotasApplied(page) {
  for (const card of CARDS) await page.waitForFunction((id) => document.getElementById(id).value === '7', `quota-${card}-limit`);
}

/** The response log of a card, oldest first. */
async function log(page, card, rows) {
  await page.locator(`#card-${card} button:text-is("Details")`).click();
  await page.waitForFunction(([table, length]) => document.querySelectorAll(`${table} tr[data-t-us]`).length === length, [`#details-${card} tbody`, rows]);
  const found = await page.$$eval(`#details-${card} tbody tr`, (all) => all.map((row) => ({ ...row.dataset })));
  return found.reverse();
}

function assertSame(card, shown, replayed) {
  shown.forEach((row, at) => {
    const decision = replayed[at];
    const expected = {
      tUs: String(decision.t_us), allowed: String(decision.allowed), remaining: String(decision.remaining),
      retryAfterUs: String(decision.retry_after_us), delayUs: String(decision.delay_us),
    };
    assert.deepEqual({ ...row }, expected, `${card}, request ${at + 1}`);
  });
}

test('every card decides as replay does', async () => {
  const { page, errors, end } = await visit(chrome, link(QUOTAS, { clock: 'step' }));
  await quotasApplied(page);
  const times = [];
  let now = 0;
  const press = (selector) => page.locator(selector).evaluate((button) => button.click());
  const move = async (button, us) => {
    await press(`#time-options button:text-is("${button}")`);
    now += us;
  };
  // Bursts and single requests around window boundaries and after a pause.
  const script = [['burst'], ['+ 1 s', 1e6], ['send'], ['+ 0.1 s', 1e5], ['burst'], ['+ 1 s', 1e6], ['+ 0.1 s', 1e5], ['send'], ['+ 1 s', 1e6],
    ['burst'], ['send'], ['+ 10 s', 1e7], ['burst'], ['send'], ['+ 1 s', 1e6], ['burst']];
  for (const [what, us] of script) {
    if (us) {
      await move(what, us);
    } else {
      const count = what === 'burst' ? 10 : 1;
      for (const card of CARDS) await press(`#card-${card} button:text-is("${what === 'burst' ? 'Burst 10' : 'Send'}")`);
      times.push(...Array(count).fill(now));
    }
  }
  for (const card of CARDS) assertSame(card, await log(page, card, times.length), replay(QUOTAS[card], times));
  assert.deepEqual(errors, []);
  await end();
});

test('all cards receive the same traffic on time', async () => {
  const { page, errors, end } = await visit(chrome, link(QUOTAS, { clock: 'step', traffic: 'steady', rate: '4' }));
  await quotasApplied(page);
  await page.click('#run');
  for (let step = 0; step < 10; step += 1) await page.click('#time-options button:text-is("+ 1 s")');
  const times = Array.from({ length: 41 }, (_, at) => at * 250000);
  for (const card of CARDS) assertSame(card, await log(page, card, times.length), replay(QUOTAS[card], times));
  assert.deepEqual(errors, []);
  await end();
});

test('a retry loop that respects Retry-After sends less and gets as much', async () => {
  const sums = {};
  for (const obey of ['yes', 'no']) {
    const { page, end } = await visit(chrome, `${server.page}/#clock=step&traffic=retry&obey=${obey}&jobs=3`);
    await page.click('#run');
    for (let step = 0; step < 20; step += 1) await page.click('#time-options button:text-is("+ 1 s")');
    // Ten at first and one more each second.
    await page.waitForFunction(() => Number.parseInt(document.querySelector('#details-token .counts-line').textContent, 10) >= 29);
    const [, admitted, refused] = /^(\d+) admitted, (\d+) refused$/.exec(await page.textContent('#details-token .counts-line'));
    assert.ok(admitted <= 30, `${admitted} admitted in 20 s`);
    sums[obey] = Number(refused);
    await end();
  }
  assert.ok(sums.yes < sums.no, `${sums.yes} refusals when obeying, ${sums.no} when not`);
});

test('diagrams show the state and follow the clock', async () => {
  const { page, end } = await visit(chrome, `${server.page}/${STEP}`);
  const waitForDiagram = (card, label) => page.waitForFunction(([selector, text]) => document.querySelector(selector).getAttribute('aria-label') === text, [`#card-${card} .diagram`, label]);
  await page.click('#burst-all');
  await waitForDiagram('fixed', '10 of 10 used in this window of 10 s');
  await waitForDiagram('log', '10 requests stored from the last 10 s');
  await waitForDiagram('counter', '0 in the previous window, weighted 100 %, and 10 in the current one: 10 of 10');
  await waitForDiagram('token', '0 of 10 tokens, one more every 1 s');
  await waitForDiagram('leaky', '10 of 10 in the bucket, one drains every 1 s');
  await waitForDiagram('shaping', '10 of 10 queued, one leaves every 1 s');
  await page.click('#time-options button:text-is("+ 10 s")');
  await page.click('#time-options button:text-is("+ 1 s")');
  await waitForDiagram('fixed', '0 of 10 used in this window of 10 s');
  await waitForDiagram('log', '0 requests stored from the last 10 s');
  await waitForDiagram('counter', '10 in the previous window, weighted 90 %, and 0 in the current one: 9 of 10');
  await waitForDiagram('token', '10 of 10 tokens, one more every 1 s');
  await waitForDiagram('leaky', '0 of 10 in the bucket, one drains every 1 s');
  await waitForDiagram('shaping', '0 of 10 queued, one leaves every 1 s');
  await end();
});

test('the words and the headers follow the state and the last response', async () => {
  const { page, errors, end } = await visit(chrome, `${server.page}/${STEP}`);
  const figures = (card, ...expected) => page.waitForFunction(([id, words]) => {
    const shown = [document.querySelector(`#card-${id} .status-badge`), ...document.querySelectorAll(`#card-${id} .figures dd`)];
    return shown.map((one) => one.textContent).join('|') === words.join('|');
  }, [card, expected]);
  await figures('log', 'admits', '10 of 10', 'now', 'none yet');
  await page.click('#card-log button:text-is("Burst 10")');
  await figures('log', 'refuses', '0 of 10', 'in 10.0 s', '200 admitted');
  await page.click('#card-log button:text-is("Send")');
  await figures('log', 'refuses', '0 of 10', 'in 10.0 s', '429 refused');
  await page.click('#card-log button:text-is("Details")');
  await page.click('#log-tab-1');
  await waitForText(page, '#details-log .headers', /HTTP\/1\.1 429 Too Many Requests[^]*Retry-After: 10/);
  await waitForText(page, '#details-log .headers', /RateLimit-Policy: "sliding-window-log\/10s";q=10;w=10/);
  await page.click('#time-options button:text-is("+ 1 s")');
  await figures('log', 'refuses', '0 of 10', 'in 9.0 s', '429 refused');
  await page.click('#time-options button:text-is("+ 10 s")');
  await figures('log', 'admits', '10 of 10', 'now', '429 refused');
  await page.click('#card-shaping button:text-is("Burst 10")');
  await figures('shaping', 'refuses', '0 of 10', 'in 1.0 s', '200 after 9.0 s');
  await page.click('#time-options button:text-is("+ 1 s")');
  await figures('shaping', 'delays', '1 of 10', 'delayed 9.0 s', '200 after 9.0 s');
  await page.click('#card-log button:text-is("Reset")');
  await figures('log', 'admits', '10 of 10', 'now', 'none yet');
  await waitForText(page, '#details-log .headers', 'Send a request to see its response headers.');
  assert.deepEqual(errors, []);
  await end();
});

test('one card at a time shows details, below its row', async () => {
  const { page, errors, end } = await visit(chrome, `${server.page}/${STEP}`, { viewport: { width: 1440, height: 900 } });
  const open = () => page.$$eval('.details:not([hidden])', (all) => all.map((one) => one.id));
  const top = (selector) => page.$eval(selector, (one) => one.getBoundingClientRect().top + scrollY);
  assert.deepEqual(await open(), []);
  await page.click('#card-log button:text-is("Details")');
  assert.deepEqual(await open(), ['details-log']);
  assert.equal(await page.getAttribute('#card-log .disclosure', 'aria-expanded'), 'true');
  // The cards of the row keep their places.
  assert.equal(await top('#card-counter'), await top('#card-fixed'));
  assert.ok(await top('#details-log') > await top('#card-counter'));
  assert.ok(await top('#card-token') > await top('#details-log'));
  await page.click('#card-token .use');
  assert.deepEqual(await open(), ['details-token']);
  await page.click('#details-token button:text-is("Close")');
  assert.deepEqual(await open(), []);
  assert.deepEqual(errors, []);
  await end();
});

/** Asserts that this field is marked as wrong, and no other. */
async function marksOnly(page, expected) {
  const marked = await page.$$eval('[aria-invalid]', (all) => all.map((one) => one.id));
  assert.deepEqual(marked, expected ? [expected] : []);
}

test('form and text stay in sync, and only the wrong field is marked', async () => {
  const { page, errors, end } = await visit(chrome, `${server.page}/${STEP}`);
  await page.click('#card-token button:text-is("Details")');
  await page.fill('#quota-token', 'token-bucket 3/min burst 5');
  await page.waitForFunction(() => document.querySelector('#quota-token-capacity').value === '5');
  assert.equal(await page.inputValue('#quota-token-limit'), '3');
  assert.equal(await page.inputValue('#quota-token-count'), '1');
  assert.equal(await page.inputValue('#quota-token-unit'), 'min');
  await page.fill('#quota-token-capacity', '2');
  await page.waitForFunction(() => document.querySelector('#quota-token').value === 'token-bucket 3/min burst 2');
  await page.waitForFunction(() => location.hash.includes('burst+2'));
  await page.click('#card-token button:text-is("Burst 10")');
  await waitForText(page, '#details-token .counts-line', '2 admitted, 8 refused');
  await page.fill('#quota-token-capacity', '4');
  await waitForText(page, '#details-token .counts-line', '0 admitted, 0 refused');
  await waitForText(page, '#plots figure:nth-child(4) .muted', /^0 sent, 0 admitted/);
  await page.waitForFunction(() => location.hash.includes('burst+4'));
  assert.deepEqual(errors, []);
  await marksOnly(page, null);
  await page.fill('#quota-token-limit', '0');
  await waitForText(page, '#quota-token-form-error', 'The limit is a whole number from 1 to 1,000.');
  await marksOnly(page, 'quota-token-limit');
  await page.fill('#quota-token-limit', '3');
  await waitForText(page, '#quota-token-form-error', '');
  await marksOnly(page, null);
  await page.selectOption('#quota-token-unit', 'h');
  await page.fill('#quota-token-count', '7');
  await waitForText(page, '#quota-token-form-error', /in seconds of 25200 is above 3600; such as token-bucket/);
  await marksOnly(page, 'quota-token-count');
  await page.fill('#quota-token', 'fixed-window 3/min');
  await waitForText(page, '#quota-token-error', 'this card is the token bucket, such as token-bucket 10/10s burst 10');
  await marksOnly(page, 'quota-token');
  await page.fill('#quota-token', 'token-bucket 10/10s burst 0');
  await waitForText(page, '#quota-token-error', /burst 0 is below 1; such as token-bucket 10\/10s burst 10$/);
  await marksOnly(page, 'quota-token');
  await page.fill('#quota-token', 'tokenbucket 7/s');
  await waitForText(page, '#quota-token-error', /did you mean token-bucket 7\/s\?$/);
  await page.fill('#quota-token', 'gcra 4/s burst 6');
  await waitForText(page, '#quota-token-error', '');
  await marksOnly(page, null);
  await page.waitForFunction(() => document.querySelector('#quota-token-capacity').value === '6');
  assert.deepEqual(errors, []);
  await end();
});

test('a link contains all settings, and a reload keeps them', async () => {
  const { page, errors, end } = await visit(chrome, server.page);
  await page.check('input[value="draw"]');
  await page.locator('.pattern-editor [role=slider]').first().focus();
  for (const key of ['ArrowUp', 'ArrowUp', 'ArrowRight', 'ArrowRight', 'ArrowLeft', 'Tab', 'End']) await page.keyboard.press(key);
  await page.check('input[value="slow"]');
  await page.selectOption('#speed', '0.1');
  await page.fill('#quota-log', 'sliding-window-log 4/5s');
  await page.waitForFunction(() => location.hash.includes('log='));
  await page.locator('#span').fill('17');
  const address = page.url();
  for (const reload of [() => page.reload(), () => page.goto('about:blank').then(() => page.goto(address))]) {
    await reload();
    await page.waitForFunction(() => document.querySelector('#quota-log')?.value === 'sliding-window-log 4/5s');
    assert.ok(await page.isChecked('input[value="draw"]'));
    assert.ok(await page.isChecked('input[value="slow"]'));
    assert.equal(await page.inputValue('#speed'), '0.1');
    assert.equal(await page.textContent('#span-now'), '17 s');
    const bars = await page.$$eval('.pattern-editor [role=slider]', (all) => all.slice(0, 3).map((bar) => bar.getAttribute('aria-valuenow')));
    assert.deepEqual(bars, ['3', '20', '1']);
    assert.equal(page.url(), address);
  }
  assert.deepEqual(errors.filter((one) => !one.includes('about:blank')), []);
  await end();
});

test('invalid values in a link are ignored', async () => {
  const { page, errors, end } = await visit(chrome, `${server.page}/#clock=never&traffic=%00&speed=x&rate=-1&bars=1.2&span=1e9&fixed=${'9'.repeat(300)}`);
  await waitForText(page, '#quota-fixed-error', /./);
  await page.click('#card-fixed button:text-is("Send")');
  await waitForText(page, '#card-fixed .figures div:nth-child(3) dd', '200 admitted');
  assert.deepEqual(errors, []);
  await end();
});

test('visitors are independent', async () => {
  const quota = { log: 'sliding-window-log 10/h' };
  const ann = await visit(chrome, link(quota));
  const bob = await visit(chrome, link(quota));
  for (const { page } of [ann, bob]) await page.waitForFunction(() => document.querySelector('#quota-log').value === 'sliding-window-log 10/h');
  await ann.page.click('#card-log button:text-is("Burst 10")');
  await waitForText(ann.page, '#card-log dl div:nth-child(1) dd', '0 of 10');
  await bob.page.click('#card-log button:text-is("Send")');
  await waitForText(bob.page, '#card-log dl div:nth-child(1) dd', '9 of 10');
  // A returning visitor finds the same counters.
  await ann.page.reload();
  await waitForText(ann.page, '#card-log dl div:nth-child(1) dd', '0 of 10');
  assert.deepEqual([...ann.errors, ...bob.errors], []);
  await ann.end();
  await bob.end();
});

test('on supplied time, every page load has its own counters', async () => {
  const { page, context, errors, end } = await visit(chrome, `${server.page}/${STEP}`);
  const waitForRemaining = (tab, expected) => waitForText(tab, '#card-log dl div:nth-child(1) dd', `${expected} of 10`);
  await page.click('#time-options button:text-is("+ 10 s")');
  await page.click('#card-log button:text-is("Burst 10")');
  await waitForRemaining(page, '0');
  const second = await context.newPage();
  await second.goto(`${server.page}/${STEP}`);
  await second.click('#card-log button:text-is("Send")');
  await waitForRemaining(second, '9');
  await page.click('#card-log button:text-is("Send")');
  await waitForText(page, '#details-log .counts-line', '10 admitted, 1 refused');
  await page.reload();
  await page.click('#card-log button:text-is("Send")');
  await waitForText(page, '#details-log .counts-line', '1 admitted, 0 refused');
  await waitForRemaining(page, '9');
  assert.deepEqual(errors, []);
  await end();
});

test('on the real clock, every response has the time of its decision', async () => {
  const { page, errors, end } = await visit(chrome, link({ log: 'sliding-window-log 25/min' }));
  await page.waitForFunction(() => document.querySelector('#quota-log').value === 'sliding-window-log 25/min');
  await page.waitForFunction(() => document.querySelector('#badge').textContent === 'counters in memory');
  const times = [];
  page.on('response', (response) => {
    if (new URL(response.url()).pathname !== '/api/play' || response.request().method() !== 'POST') return;
    const { steps } = response.request().postDataJSON();
    times.push(response.json().then(({ answers }) => answers.filter((_, at) => steps[at].card === 'log' && steps[at].verb === 'check').map((one) => String(one.now_us))));
  });
  for (let press = 0; press < 3; press += 1) await page.click('#card-log button:text-is("Burst 10")');
  const rows = await log(page, 'log', 30);
  const expected = (await Promise.all(times)).flat();
  assert.deepEqual(rows.map((row) => row.tUs), expected);
  assert.ok(new Set(expected).size > 3, `${new Set(expected).size} times for 30 decisions`);
  assert.deepEqual(errors, []);
  await end();
});

test('a button held by pointer or key sends until it is released', async () => {
  const { page, end } = await visit(chrome, `${server.page}/${STEP}`);
  const hold = page.locator('#card-fixed .hold');
  const rows = () => page.$$eval('#details-fixed tbody tr[data-t-us]', (all) => all.length);
  await page.click('#card-fixed button:text-is("Details")');
  await hold.hover();
  await page.mouse.down();
  await page.waitForFunction(() => document.querySelectorAll('#details-fixed tbody tr[data-t-us]').length >= 3);
  await page.mouse.up();
  await hold.focus();
  const before = await rows();
  await page.keyboard.down('Space');
  await page.waitForFunction((least) => document.querySelectorAll('#details-fixed tbody tr[data-t-us]').length >= least, before + 3);
  await page.keyboard.up('Space');
  assert.equal(await hold.getAttribute('aria-pressed'), 'false');
  // Activated otherwise, it sends one request.
  await page.click('#card-fixed button:text-is("Reset")');
  await waitForText(page, '#details-fixed .counts-line', '0 admitted, 0 refused');
  await hold.evaluate((button) => button.click());
  await waitForText(page, '#details-fixed .counts-line', '1 admitted, 0 refused');
  await end();
});

test('the first burst waits for a window that stays', async () => {
  const { page, errors, end } = await visit(chrome, server.page);
  await page.waitForFunction(() => [...document.querySelectorAll('.details .counts-line')].every((one) => /^1[0-2] admitted, [0-2] refused$/.test(one.textContent)));
  const left = await page.$eval('#card-fixed .diagram', (one) => Number.parseFloat(/resets in ([\d.]+) s/.exec(one.textContent)[1]));
  assert.ok(left > 2, `${left} s are left of the window`);
  assert.deepEqual(errors, []);
  await end();
});

test('a new visitor sees a first burst', async () => {
  const { page, errors, end } = await visit(chrome, server.page);
  await page.waitForSelector('#welcome:not([hidden])');
  await waitForText(page, '#badge', 'counters in memory');
  await page.waitForFunction(() => [...document.querySelectorAll('.details .counts-line')].every((one) => /^1[0-2] admitted, [0-2] refused$/.test(one.textContent)));
  await page.click('#reset-all');
  await page.waitForSelector('#welcome', { state: 'hidden' });
  assert.deepEqual(errors, []);
  await end();
});

test('the chart shows twice the limit for a fixed window and the limit for a log', async () => {
  const { page, end } = await visit(chrome, `${server.page}/#clock=step&traffic=boundary`);
  await page.click('#run');
  for (let step = 0; step < 11; step += 1) await page.click('#time-options button:text-is("+ 1 s")');
  const worst = (at, words) => waitForText(page, `#plots figure:nth-child(${at}) .worst`, words);
  await worst(1, '20 in any 10 s');
  await worst(2, '10 in any 10 s');
  await worst(4, '10 in any 10 s');
  await page.locator('#span').fill('1');
  await worst(1, '20 in any 1 s');
  await worst(6, '1 in any 1 s');
  // One scale: the same marks at the same height in all six.
  const axes = await page.$$eval('#plots svg', (all) => all.map((svg) => [...svg.querySelectorAll('text')].map((one) => [one.textContent, one.getAttribute('y')]).filter(([text]) => /^\d+$/.test(text)).join(' ')));
  assert.equal(new Set(axes).size, 1, axes.join(' | '));
  assert.ok(axes[0].startsWith('0,') && axes[0].includes('20,'), axes[0]);
  await end();
});

test('a manual step over several boundaries includes every attack', async () => {
  const { page, errors, end } = await visit(chrome, link({ fixed: 'fixed-window 5/s' }, { clock: 'step', traffic: 'boundary' }));
  await page.waitForFunction(() => location.hash.includes('fixed='));
  await page.click('#run');
  await page.click('#time-options button:text-is("+ 10 s")');
  // Around seconds 1, 3, 5, 7 and 9.
  await waitForText(page, '#details-fixed .counts-line', '50 admitted, 0 refused');
  assert.deepEqual(errors, []);
  await end();
});

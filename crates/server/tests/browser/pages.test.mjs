// All pages: accessibility, size, width, and no requests to other hosts.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { axeSource, setUp, visit } from './harness.mjs';

const MAX_BYTES = 150 * 1024;

const { server, chrome } = await setUp();

const WIDTHS = { 1440: 900, 1024: 768, 1920: 1080, 390: 844 };
const PAGES = { page: server.page, live: server.live, docs: `${server.page}/ui/docs.html#rules.md` };
const READY = {
  page: (page) => page.waitForFunction(() => document.querySelectorAll('.card').length === 6 && document.querySelector('#badge').textContent.startsWith('counters in')),
  live: (page) => page.waitForSelector('#rule-rows tr'),
  docs: (page) => page.waitForSelector('#document table td'),
};
/** Opens everything that is closed, so that it is checked too. */
const PREPARE = {
  async page(page) {
    await page.click('#burst-all');
    await page.waitForFunction(() => [...document.querySelectorAll('.figures dd:last-child')].every((last) => last.textContent));
    await page.click('#lab-boundary button');
    await page.waitForSelector('#lab-boundary-result[data-done]');
    await page.click('#lab-shares button');
    await page.waitForSelector('#lab-shares-result[data-done]');
    for (const [held, then] of [[1, 'Crash'], [2, 'Start request']]) {
      await page.click('#lab-in-flight button:text-is("Start request")');
      await page.waitForFunction((count) => document.querySelectorAll('.holds li:not(.free)').length >= count, held);
      await page.click(`#lab-in-flight button:text-is("${then}")`);
    }
    await page.click('#lab-reserve button:text-is("Reserve 200")');
    await page.waitForSelector('#lab-reserve tbody tr');
    await page.click('#card-leaky button:text-is("Details")');
    await page.click('#leaky-tab-1');
    await page.fill('#quota-leaky', 'leaky-bucket 10/10s burst 10x');
    await page.waitForFunction(() => document.querySelector('#quota-leaky-error').textContent);
    if (await page.isVisible('#more')) await page.click('#more');
  },
  async live(page) {
    for (let time = 0; time < 8; time += 1) {
      const body = JSON.stringify({ rule: 'login', attributes: { ip: '192.0.2.1', method: 'POST', path: '/login' } });
      await fetch(`${server.page}/v1/check?status=200`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    }
    await page.waitForSelector('#top-refused button');
    await page.click('#rule-rows .disclosure');
    await page.waitForSelector('.rule-details dd');
    await page.fill('#key', '192.0.2.1');
    await page.click('#search button');
    await page.waitForSelector('#found td.mono');
    await page.click('#terms summary');
  },
  async docs() {},
};

for (const [name, url] of Object.entries(PAGES)) {
  for (const colorScheme of ['light', 'dark']) {
    for (const [width, height] of Object.entries(WIDTHS).map(([width, height]) => [Number(width), height])) {
      test(`${name}, ${colorScheme}, ${width} px: labels, contrast, no scrolling sideways`, async () => {
        const { page, errors, end } = await visit(chrome, url, { colorScheme, viewport: { width, height } });
        await READY[name](page);
        await PREPARE[name](page);
        await page.evaluate(axeSource);
        const found = await page.evaluate(async () => {
          const { violations } = await window.axe.run(document, { resultTypes: ['violations'] });
          return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 120)} ${node.failureSummary}`));
        });
        assert.deepEqual(found, []);
        const [contentWidth, windowWidth] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
        assert.ok(contentWidth <= windowWidth, `${contentWidth} px wide`);
        assert.deepEqual(errors, []);
        await end();
      });
    }
  }

  test(`${name} is smaller than 150 KB`, async () => {
    const context = await chrome.newContext();
    const page = await context.newPage();
    const files = [];
    page.on('response', (response) => {
      if (!/^\/(api\/|live\/events|admin\/)/.test(new URL(response.url()).pathname)) files.push(response);
    });
    await page.goto(url);
    await READY[name](page);
    // Read before the page is closed.
    const bodies = await Promise.all(files.map((response) => response.body()));
    const bytes = bodies.reduce((sum, body) => sum + body.length, 0);
    assert.ok(files.length > 5 && bytes > 10000, `${files.length} files, ${bytes} bytes`);
    assert.ok(bytes < MAX_BYTES, `${bytes} bytes`);
    await context.close();
  });
}

test('every control can be reached by keyboard and shows its focus', async () => {
  const { page, end } = await visit(chrome, `${server.page}/#clock=step`);
  await READY.page(page);
  const reached = new Set();
  for (let press = 0; press < 200; press += 1) {
    await page.keyboard.press('Tab');
    const [label, outlined] = await page.evaluate(() => {
      const { activeElement: at } = document;
      if (at === document.body) return ['', true];
      const ring = (element) => getComputedStyle(element).outlineStyle !== 'none';
      return [at.getAttribute('aria-label') ?? (at.id || at.value || at.textContent.trim().slice(0, 60) || at.tagName), ring(at) || (at.nextElementSibling && ring(at.nextElementSibling))];
    });
    if (!label) break;
    assert.ok(outlined, `no ring around ${label}`);
    reached.add(label);
  }
  for (const label of ['run', 'share', 'Switch to dark colours', 'Send: Fixed window', 'Hold to stream: Leaky bucket, shaping', 'quota-counter', 'Use this: Token bucket', 'Details: Sliding log', 'Run: Boundary burst', 'Run: Fair shares', 'Start request', 'Reserve 200', 'span']) {
    assert.ok(reached.has(label), `${label} is not reached: ${[...reached].join(' | ')}`);
  }
  await page.locator('#card-token button:text-is("Send")').focus();
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /Token bucket: 1 admitted, 0 refused, 9 left/.test(document.querySelector('#announcer').textContent));
  await end();
});

test('the theme can be switched and is remembered', async () => {
  const { page, end } = await visit(chrome, server.page, { colorScheme: 'light' });
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  assert.equal(await theme(), 'light');
  await page.click('#theme');
  assert.equal(await theme(), 'dark');
  await page.reload();
  assert.equal(await theme(), 'dark');
  await end();
});

test('reduced motion shows the same values', async () => {
  const { page, end } = await visit(chrome, `${server.page}/#clock=step`, { reducedMotion: 'reduce' });
  await page.click('#burst-all');
  await page.waitForFunction(() => document.querySelector('#card-fixed .diagram').getAttribute('aria-label').startsWith('10 of 10'));
  await end();
});

// What is visible on four screens, without scrolling and after it.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { setUp, visit } from './harness.mjs';

const { server, chrome } = await setUp();

const SCREENS = { desktop: [1440, 900], small: [1024, 768], large: [1920, 1080], phone: [390, 844] };
const size = ([width, height]) => ({ viewport: { width, height } });

/** Of these elements, those that are not wholly within the window, or behind something else. */
const hidden = (page, selector) => page.$$eval(selector, (all) => all.filter((one) => {
  const box = one.getBoundingClientRect();
  if (box.width === 0 || box.left < 0 || box.top < 0 || box.right > innerWidth || box.bottom > innerHeight) return true;
  const at = (x, y) => document.elementFromPoint(x, y);
  const points = [[box.left + box.width / 2, box.top + 2], [box.left + box.width / 2, box.bottom - 2], [box.left + box.width / 2, box.top + box.height / 2]];
  return points.some(([x, y]) => { const top = at(x, y); return !top || !(one.contains(top) || top.contains(one)); });
}).map((one) => one.id || one.textContent.trim().slice(0, 30) || one.className));

for (const [name, screen] of Object.entries(SCREENS).filter(([name]) => name !== 'phone')) {
  test(`${name}, ${screen.join(' x ')}: all six pictures, their words and buttons without scrolling`, async () => {
    const { page, errors, end } = await visit(chrome, `${server.page}/#clock=step`, size(screen));
    await page.click('#burst-all');
    await page.waitForFunction(() => document.querySelectorAll('[data-state="refuses"]').length === 6);
    assert.equal(await page.evaluate(() => scrollY), 0);
    for (const part of ['.card .diagram', '.card .figures dd', '.card .status-badge', '.card .actions button', '.card .quota input', '.card .use', '#run', '#burst-all', '#reset-all', '#what', '.top nav a:not([hidden])']) {
      assert.deepEqual(await hidden(page, part), [], part);
    }
    assert.equal((await page.$$('.card .diagram')).length, 6);
    const [bar, content] = await page.evaluate(() => [document.querySelector('#bar').offsetHeight, document.documentElement.scrollWidth]);
    assert.ok(bar <= (screen[0] < 1200 ? 100 : 60), `the bar is ${bar} px high`);
    assert.ok(content <= screen[0], `${content} px wide`);
    assert.deepEqual(errors, []);
    await end();
  });
}

test('texts are not cut, whatever the state', async () => {
  for (const screen of Object.values(SCREENS)) {
    const { page, end } = await visit(chrome, `${server.page}/#clock=step`, size(screen));
    await page.click('#burst-all');
    await page.click('#burst-all');
    await page.waitForFunction(() => document.querySelector('#card-shaping .figures').textContent.includes('429'));
    const cut = await page.$$eval('.card .figures dd, .card .figures dt, .card h3, .card .status-badge, .card button, .bar button, .segments span', (all) => all
      .filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1).map((one) => `${one.textContent}: ${one.scrollWidth} > ${one.clientWidth}`));
    assert.deepEqual(cut, [], screen.join(' x '));
    // Quotas as they are at first fit into their fields.
    const clipped = await page.$$eval('.quota input', (all) => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.value));
    assert.deepEqual(clipped, [], screen.join(' x '));
    await end();
  }
});

test('the bar stays in reach and covers nothing that is scrolled to', async () => {
  for (const screen of Object.values(SCREENS)) {
    const { page, end } = await visit(chrome, `${server.page}/#clock=step`, { ...size(screen), reducedMotion: 'reduce' });
    await page.waitForFunction(() => document.querySelectorAll('.card').length === 6);
    for (const target of ['#throughput', '#labs', '#card-shaping .diagram', '#card-fixed .diagram', '#lab-stampede', '#beyond', '#lab-in-flight', '#cards']) {
      await page.evaluate((selector) => document.querySelector(selector).scrollIntoView(), target);
      const [bar, box, height] = await page.evaluate((selector) => [document.querySelector('#bar'), document.querySelector(selector)]
        .map((one) => { const { top, bottom } = one.getBoundingClientRect(); return { top, bottom }; }).concat(innerHeight), target);
      assert.ok(bar.top >= 0 && bar.bottom <= height, `${screen}: the bar is at ${bar.top} to ${bar.bottom}`);
      const start = Math.min(box.bottom, box.top + 100);
      assert.ok(start <= bar.top + 1 || box.top >= bar.bottom - 1, `${screen}, ${target}: ${JSON.stringify([bar, box])}`);
      assert.deepEqual(await hidden(page, '#run'), []);
    }
    await end();
  }
});

test('on a phone, traffic is started and stopped from anywhere, and its settings are a tap away', async () => {
  const { page, errors, end } = await visit(chrome, `${server.page}/#clock=slow`, { ...size(SCREENS.phone), hasTouch: true, isMobile: true });
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  assert.deepEqual(await hidden(page, '#run, #burst-all, #reset-all, #more'), []);
  const small = await page.$$eval('#bar button', (all) => all.filter((one) => one.offsetParent && one.offsetHeight < 40).map((one) => one.id));
  assert.deepEqual(small, []);
  await page.tap('#run');
  assert.equal(await page.textContent('#run'), 'Stop');
  await page.tap('#run');
  assert.equal(await page.textContent('#run'), 'Start');
  assert.ok(await page.isHidden('#desk'));
  await page.tap('#more');
  assert.deepEqual(await hidden(page, '#sources label, #modes label, #options input'), []);
  await page.tap('#sources label:has-text("Boundary")');
  assert.equal(await page.textContent('#more'), 'Boundary');
  await page.tap('#more');
  assert.ok(await page.isHidden('#desk'));
  // The end of the page is above the bar.
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  assert.deepEqual(await hidden(page, 'footer nav a'), []);
  assert.deepEqual(errors, []);
  await end();
});

test('without JavaScript a note says what to do, and nothing broken is shown', async () => {
  for (const [url, command] of [[server.page, 'tallygate demo'], [server.live, 'tallygate top']]) {
    const { page, end } = await visit(chrome, url, { ...size(SCREENS.desktop), javaScriptEnabled: false });
    const text = await page.innerText('body');
    assert.match(text, /This page needs JavaScript/);
    assert.ok(text.includes(command), text);
    assert.ok(!/Start|connecting/.test(text), text);
    const note = await page.locator('.note > :first-child').boundingBox();
    assert.ok(note.y < 300 && note.x > 10, JSON.stringify(note));
    await end();
  }
});

test('the pages lead to each other and to the documents', async () => {
  const { page, errors, end } = await visit(chrome, server.page, size(SCREENS.desktop));
  await page.waitForSelector('#live-link:not([hidden])');
  assert.equal(await page.getAttribute('#live-link', 'href'), server.live);
  await page.click('.top nav a:text-is("Docs")');
  await page.waitForSelector('#document h1');
  for (const link of await page.$$eval('#contents a', (all) => all.map((one) => one.getAttribute('href')))) {
    await page.click(`#contents a[href="${link}"]`);
    await page.waitForSelector(`#contents a[href="${link}"][aria-current]`);
    assert.ok((await page.innerText('#document')).length > 1000, link);
  }
  // No markup is left, and links within the documents lead to their headings.
  await page.goto(`${server.page}/ui/docs.html#rules.md`);
  await page.waitForSelector('#document table td');
  const left = await page.evaluate(() => [...document.querySelectorAll('#document p, #document li, #document td')].map((one) => {
    const copy = one.cloneNode(true);
    copy.querySelectorAll('code, pre').forEach((code) => code.remove());
    return copy.textContent;
  }).filter((text) => /\]\(|\*\*|`|^#/.test(text)));
  assert.deepEqual(left, []);
  const missing = await page.$$eval('#document a[href^="#rules.md/"]', (all) => all.map((one) => one.hash.split('/')[1]).filter((id) => !document.getElementById(`h-${id}`)));
  assert.deepEqual(missing, []);
  await page.click('#back');
  await page.waitForSelector('.card');
  assert.deepEqual(errors, []);
  await end();
});

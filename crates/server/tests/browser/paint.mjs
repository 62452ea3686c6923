// Time to first paint and size of the pages: the median of ten visits, each with a new profile.

import { browser, serve } from './harness.mjs';

const VISITS = 10;
const server = await serve();
const chrome = await browser();
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

console.log('| page | first paint ms | all drawn ms | KB | files |');
console.log('|---|---:|---:|---:|---:|');
for (const [name, path, drawn] of [['playground', server.page, '.card:nth-child(6)'], ['live view', server.live, '#rule-rows tr']]) {
  const [paints, ready, weights] = [[], [], []];
  let files = 0;
  for (let visit = 0; visit < VISITS; visit += 1) {
    const context = await chrome.newContext({ viewport: { width: 1280, height: 800 } });
    const page = await context.newPage();
    const responses = [];
    page.on('response', (response) => {
      if (!/^\/(api\/|live\/events|admin\/)/.test(new URL(response.url()).pathname)) responses.push(response);
    });
    await page.goto(path);
    await page.waitForSelector(drawn);
    ready.push(await page.evaluate(() => performance.now()));
    await page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint').length > 0);
    paints.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
    const bodies = await Promise.all(responses.map((response) => response.body()));
    const sizes = bodies.map((body) => body.length);
    weights.push(sizes.reduce((sum, size) => sum + size, 0));
    files = sizes.length;
    await context.close();
  }
  console.log(`| ${name} | ${Math.round(median(paints))} | ${Math.round(median(ready))} | ${Math.round(median(weights) / 1024)} | ${files} |`);
}
await chrome.close();
await server.end();

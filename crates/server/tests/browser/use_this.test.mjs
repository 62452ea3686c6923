// "Use this": the quota of a card as YAML, Rust and curl, each used as it is copied.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { setUp, visit } from './harness.mjs';

const { server, chrome } = await setUp();
const folder = mkdtempSync(path.join(tmpdir(), 'tallygate-use-'));
after(() => rmSync(folder, { recursive: true, force: true }));

const QUOTAS = {
  fixed: 'fixed-window 7/2s', log: 'sliding-window-log 3/h', counter: '5/min',
  token: 'gcra 4/s burst 6', leaky: 'leaky-bucket 7/1min30s burst 4', shaping: 'leaky-bucket 10/s queue 20',
};
const CANONICAL = { ...QUOTAS, counter: 'sliding-window-counter 5/min', token: 'token-bucket 4/s burst 6' };

/** The texts of every card, by language. */
async function texts() {
  const { page, errors, end } = await visit(chrome, `${server.page}/#${new URLSearchParams({ ...QUOTAS, clock: 'step' })}`, { viewport: { width: 1440, height: 900 } });
  const found = {};
  for (const card of Object.keys(QUOTAS)) {
    await page.click(`#card-${card} .use`);
    await page.waitForFunction(([id, quota]) => document.querySelector(`#details-${id} .snippet`).textContent.includes(quota), [card, CANONICAL[card]]);
    const focused = await page.evaluate(() => document.activeElement.textContent);
    assert.equal(focused, 'YAML');
    found[card] = {};
    for (const [at, language] of ['YAML', 'Rust', 'curl'].entries()) {
      await page.click(`#use-${card}-tab-${at}`);
      found[card][language] = await page.textContent(`#use-${card}-panel-${at} pre`);
      assert.ok(await page.isVisible(`#use-${card}-panel-${at} pre`));
    }
  }
  assert.deepEqual(errors, []);
  await end();
  return found;
}

const all = await texts();
const write = (name, text) => {
  const file = path.join(folder, name);
  writeFileSync(file, text);
  return file;
};

test('the YAML is a rules file without a warning', () => {
  for (const [card, { YAML }] of Object.entries(all)) {
    const file = write(`${card}.yaml`, YAML);
    execFileSync(process.env.TALLYGATE_BIN, ['config', 'check', '--strict', file], { stdio: 'pipe' });
    const explained = execFileSync(process.env.TALLYGATE_BIN, ['config', 'explain', file, '--request', 'GET /', '--json'], { encoding: 'utf8' });
    assert.ok(explained.includes(CANONICAL[card]), explained);
  }
});

test('curl gets a decision under the quota', () => {
  for (const [card, { curl }] of Object.entries(all)) {
    const answer = execFileSync('sh', ['-c', curl.trim().replace('curl -i', 'curl -sS -i')], { encoding: 'utf8' });
    assert.match(answer, /^HTTP\/1\.1 200 OK/, `${card}: ${answer}`);
    assert.match(answer, /"allowed":true/);
    const limit = /(\d+)\//.exec(CANONICAL[card])[1];
    const capacity = /(?:burst|queue) (\d+)/.exec(CANONICAL[card])?.[1] ?? limit;
    assert.match(answer, new RegExp(`"limit":${capacity}\\b`));
  }
});

test('the Rust compiles', () => {
  const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../../..');
  const build = execFileSync('cargo', ['build', '--workspace', '--all-features', '--locked', '--bin', 'tallygate', '--message-format', 'json'], { cwd: root, encoding: 'utf8', maxBuffer: 1 << 26, stdio: ['ignore', 'pipe', 'ignore'] });
  const artifacts = build.trim().split('\n').map((line) => JSON.parse(line));
  const library = artifacts.find((one) => one.reason === 'compiler-artifact' && one.target.name === 'tallygate' && one.target.kind.includes('lib'));
  const rlib = library.filenames.find((file) => file.endsWith('.rlib'));
  for (const [card, { Rust }] of Object.entries(all)) {
    const file = write(`${card}.rs`, Rust);
    execFileSync('rustc', ['--edition', '2024', '--deny', 'warnings', '--emit', 'metadata', '--out-dir', folder, '--extern', `tallygate=${rlib}`, '-L', `dependency=${path.dirname(rlib)}`, file], { stdio: 'pipe' });
  }
});

test('a copy is what is shown', async () => {
  const { page, context, errors, end } = await visit(chrome, `${server.page}/#clock=step`, { viewport: { width: 1440, height: 900 } });
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.click('#card-log .use');
  await page.click('#use-log-tab-2');
  await page.click('#details-log button:text-is("Copy")');
  await page.waitForSelector('#details-log button:text-is("Copied")');
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await page.textContent('#use-log-panel-2 pre'));
  assert.deepEqual(errors, []);
  await end();
});

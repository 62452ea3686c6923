// What the browser's tests stand on: the real binary, a real Redis, a real Chromium. Each test has
// ports and a profile of its own. Nothing here waits for luck: it waits for conditions.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';

const modules = createRequire(path.join(process.env.TALLYGATE_BROWSER_MODULES, 'package.json'));
const { chromium } = modules('playwright-core');
export const axeSource = modules('axe-core').source;

const BIN = process.env.TALLYGATE_BIN;
const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];
/** How long a condition may take on a busy machine. */
export const PATIENCE = 60000;

/** Starts the server and answers where it listens. */
export async function serve({ store = 'memory', admin: asked = '127.0.0.1:0' } = {}) {
  const child = spawn(BIN, ['serve', '--listen', '127.0.0.1:0', '--admin', asked, '--store', store], { stdio: ['ignore', 'pipe', 'ignore'] });
  const line = await first(child);
  const { api, admin } = JSON.parse(line);
  return { child, page: `http://${api}`, live: `http://${admin}/live`, admin, end: () => ended(child, 'SIGTERM') };
}

function first(child) {
  return new Promise((resolve, reject) => {
    const lines = createInterface({ input: child.stdout });
    lines.once('line', (line) => {
      // Whatever else it says must not fill the pipe.
      child.stdout.resume();
      resolve(line);
    });
    child.once('exit', (code) => reject(new Error(`the server ended with ${code}`)));
  });
}

/** Ends a child and waits until it is gone. */
export function ended(child, signal) {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve();
    child.once('exit', resolve);
    child.kill(signal);
  });
}

/** A Redis of its own, which can be killed and started again in the same place. */
export async function redis() {
  const folder = mkdtempSync(path.join(tmpdir(), 'tallygate-browser-'));
  const port = await freePort();
  let child;
  const server = {
    url: `redis://127.0.0.1:${port}`,
    async start() {
      child = spawn(process.env.TALLYGATE_REDIS_SERVER ?? 'redis-server',
        ['--port', port, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder], { stdio: 'ignore' });
      while (!(await answers(port))) {
        assert.equal(child.exitCode, null, 'redis-server ended');
        await new Promise((resolve) => { setTimeout(resolve, 20); });
      }
    },
    kill: () => ended(child, 'SIGKILL'),
    async end() {
      await server.kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  await server.start();
  return server;
}

function answers(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1', () => socket.write('PING\r\n'));
    socket.once('data', (data) => { resolve(String(data).startsWith('+PONG')); socket.destroy(); });
    socket.once('error', () => resolve(false));
  });
}

export function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Where a program is. */
function found(program) {
  return execFileSync('sh', ['-c', 'command -v "$0"', program], { encoding: 'utf8' }).trim();
}

export const browser = () => chromium.launch({ executablePath: found(process.env.TALLYGATE_CHROMIUM ?? 'chromium'), args: FLAGS });

/** Opens a page as a visitor of their own; `complaints` collects what no page may do. */
export async function visit(open, url, options = {}) {
  const context = await open.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const complaints = [];
  const { host } = new URL(url);
  page.on('pageerror', (error) => complaints.push(`thrown: ${error.message}`));
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(`console: ${message.text()}`);
  });
  page.on('request', (request) => {
    if (new URL(request.url()).host !== host) complaints.push(`asked elsewhere: ${request.url()}`);
  });
  await page.goto(url);
  return { page, context, complaints, end: () => context.close() };
}

/** Waits until what an element says passes a test. */
export async function says(page, selector, wanted) {
  const pattern = wanted instanceof RegExp ? { source: wanted.source } : { text: wanted };
  await page.waitForFunction(([place, { source, text }]) => {
    const said = document.querySelector(place)?.textContent;
    if (said === undefined) return false;
    return source === undefined ? said === text : new RegExp(source).test(said);
  }, [selector, pattern]);
}

/** What `tallygate replay` answers to a quota and requests at these times. */
export function replay(quota, times) {
  const input = times.map((t_us) => JSON.stringify({ t_us, key: 'a' })).join('\n');
  const output = execFileSync(BIN, ['replay', '--quota', quota], { input, encoding: 'utf8' });
  return output.trim().split('\n').map((line) => JSON.parse(line));
}

/* What the README shows, runs. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import * as fs from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { startDaemon, type Daemon } from '../support/daemon.js';

const sdk = resolve(dirname(fileURLToPath(import.meta.url)), '../../../..');
const blocks = [...fs.readFileSync(join(sdk, 'README.md'), 'utf8').matchAll(/^## (.*)\n|^```js\n([\s\S]*?)^```/gm)];

let daemon: Daemon;
before(async () => {
  daemon = await startDaemon();
});
after(() => daemon?.stop());

let title = '';
let n = 0;
for (const [, heading, code] of blocks) {
  if (heading) title = heading;
  if (!code) continue;
  // Within the package, so that it finds itself by its name.
  const file = join(sdk, 'dist/test', `readme-${n++}.mjs`);
  test(`"${title}" runs`, async () => {
    fs.writeFileSync(file, code);
    const child = spawn(process.execPath, [file], {
      env: { ...process.env, CLOCHE_URL: daemon.url, CLOCHE_TOKEN: daemon.token },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let out = '';
    child.stdout.on('data', (d: Buffer) => (out += d.toString()));
    child.stderr.on('data', (d: Buffer) => (out += d.toString()));
    const timer = setTimeout(() => child.kill(), 60_000);
    const status = await new Promise((done) => child.once('close', done));
    clearTimeout(timer);
    assert.equal(status, 0, out);
    let left = 0;
    for await (const s of daemon.client().sandboxes.list()) left += s.id ? 1 : 0;
    assert.equal(left, 0, 'it leaves nothing behind');
  });
}
assert.ok(n >= 5);

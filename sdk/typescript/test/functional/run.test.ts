/* Code that is run once, in a sandbox of its own. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { InvalidError, NotFoundError, type Cloche } from '@cloche/sdk';
import { startDaemon, type Daemon } from '../support/daemon.js';

let daemon: Daemon;
let client: Cloche;
before(async () => {
  daemon = await startDaemon();
  client = daemon.client();
});
after(() => daemon?.stop());

test('code is run and gives its results and files', async () => {
  const code = 'print(open("IN.bin", "rb").read())\nopen("out.txt", "w").write("made")\n6 * 7';
  const x = await client.run(code, { files: { 'IN.bin': new Uint8Array([255]) }, artifacts: true, env: { myVar: 'x' } });
  assert.deepEqual([x.ok, x.text, x.stdout], [true, '42', "b'\\xff'\n"]);
  assert.deepEqual(x.artifacts, [{ path: 'out.txt', size: 4, mime: 'text/plain', content: Buffer.from('made').toString('base64') }]);
  assert.equal(x.artifactsDropped, 0);
  const failed = await client.run('echo $myVar; false', { language: 'bash', limits: { memory: '128M' }, env: { myVar: 'y' } });
  assert.deepEqual([failed.error?.name, failed.stdout, failed.artifacts], ['ExitStatus', 'y\n', []]);
  await assert.rejects(client.run(5 as never), InvalidError);
  await assert.rejects(client.run('1', { image: 'none-such' }), NotFoundError);
});

test('its output comes while it runs', async () => {
  const seen: unknown[] = [];
  const x = await client.run('print("a")\n[1]', { onStdout: (text) => seen.push(text), onResult: (r) => seen.push(r.json) });
  assert.deepEqual(seen, ['a\n', [1]]);
  assert.equal(x.text, '[1]');
});

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

test('a secret is set, rotated, listed and deleted, and never read', async () => {
  const s = await client.secrets.set('KEY', 'not-to-be-seen', { description: 'a key' });
  assert.deepEqual([s.name, s.version, s.size, s.description], ['KEY', 1, 14, 'a key']);
  assert.equal((await client.secrets.set('KEY', new Uint8Array([0, 1, 2, 3, 255]))).version, 2);
  assert.deepEqual((await client.secrets.list()).map((x) => [x.name, x.size]), [['KEY', 5]]);
  assert.equal((await client.secrets.get('KEY')).description, 'a key');
  await client.secrets.delete('KEY');
  await assert.rejects(client.secrets.get('KEY'), NotFoundError);
  await assert.rejects(client.secrets.set('KEY', 'abc'), InvalidError);
});

test('a sandbox gets them, and its output does not tell', async () => {
  await client.secrets.set('KEY', 'not-to-be-seen');
  const s = await client.sandboxes.create({
    secrets: [
      { name: 'KEY', as: 'env', env: 'MY_KEY' },
      { name: 'KEY', as: 'file' },
    ],
  });
  assert.deepEqual(s.secrets, [
    { name: 'KEY', as: 'env', env: 'MY_KEY' },
    { name: 'KEY', as: 'file' },
  ]);
  assert.equal((await s.exec('echo $MY_KEY; cat /run/secrets/KEY; echo ${#MY_KEY}')).stdout, '***\n***14\n');
  const [fork] = await s.fork(1, { memory: false, secrets: 'drop' });
  assert.deepEqual(fork!.secrets, [{ name: 'KEY', as: 'mask' }]);
  assert.equal((await fork!.exec('echo "<$MY_KEY>"')).stdout, '<>\n');
  await client.secrets.delete('KEY');
  await assert.rejects(client.sandboxes.create({ secrets: [{ name: 'KEY', as: 'file' }] }), NotFoundError);
  await Promise.all([s.delete(), fork!.delete()]);
});

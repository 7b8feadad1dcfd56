import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { readFile } from 'node:fs/promises';
import { InvalidError, NotFoundError, type BuildEvent, type Cloche } from '@cloche/sdk';
import { startDaemon, type Daemon } from '../support/daemon.js';

let daemon: Daemon;
let client: Cloche;

before(async () => {
  daemon = await startDaemon();
  client = daemon.client();
});
after(() => daemon?.stop());

function entry(name: string, type: 'dir' | 'file', size: number): Buffer {
  const b = Buffer.alloc(512);
  b.write(name, 0);
  b.write('0000755\0' + '0000000\0' + '0000000\0' + size.toString(8).padStart(11, '0') + '\0' + '00000000000\0', 100, 'latin1');
  b.fill(' ', 148, 156);
  b.write(type === 'dir' ? '5' : '0', 156);
  b.write('ustar\x0000', 257, 'latin1');
  b.write(b.reduce((a, x) => a + x, 0).toString(8).padStart(6, '0') + '\0 ', 148, 'latin1');
  return b;
}

/* A root filesystem of one program. */
async function rootfs(): Promise<Buffer> {
  const program = await readFile('/bin/busybox');
  const pad = Buffer.alloc((512 - (program.length % 512)) % 512);
  return Buffer.concat([
    entry('bin', 'dir', 0),
    entry('bin/busybox', 'file', program.length),
    program,
    pad,
    Buffer.alloc(1024),
  ]);
}

test('an image is imported, built upon, used and removed', async () => {
  const base = await client.images.import(await rootfs(), { name: 'sdk/base:1', config: { Env: ['WORD=there', 'PATH=/bin'] } });
  assert.deepEqual([base.name, base.layers.length, base.config.env.includes('WORD=there')], ['sdk/base:1', 1, true]);
  const events: BuildEvent[] = [];
  const built = await client.images.build('FROM sdk/base:1\nRUN ["/bin/busybox", "touch", "/made"]\nENV A_B=c\n', {
    tags: ['sdk/app:1'],
    onEvent: (e) => events.push(e),
  });
  assert.equal(built.name, 'sdk/app:1');
  assert.ok(events.some((e) => e.type === 'step' && e.state === 'done'), JSON.stringify(events));
  const s = await client.sandboxes.create({ image: 'sdk/app:1' });
  const r = await s.exec(['/bin/busybox', 'sh', '-c', 'busybox ls /made; echo $WORD $A_B']);
  assert.equal(r.stdout, '/made\nthere c\n');
  await s.exec(['/bin/busybox', 'touch', '/more']);
  const committed = await client.images.commit({ sandbox: s.id }, 'sdk/more:1', { comment: 'one file more' });
  assert.equal(committed.history.at(-1)!.comment, 'one file more');
  const checkpoint = await s.checkpoint();
  await client.images.commit({ checkpoint: checkpoint.id }, 'sdk/more:2');
  await client.checkpoints.delete(checkpoint.id);
  await s.delete();
  const exported: Buffer[] = [];
  for await (const piece of await client.images.export('sdk/more:1')) exported.push(piece as Buffer);
  await client.images.delete('sdk/more:1');
  const again = await client.images.import(Buffer.concat(exported), { name: 'sdk/more:1' });
  assert.equal(again.layers.length, committed.layers.length);
  for (const name of ['sdk/more:1', 'sdk/more:2']) {
    const t = await client.sandboxes.create({ image: name });
    assert.equal((await t.exec(['/bin/busybox', 'ls', '/more'])).stdout, '/more\n');
    await t.delete();
    await client.images.delete(name);
  }
  await client.images.tag('sdk/app:1', 'sdk/app:2');
  assert.equal((await client.images.setPublic('sdk/app:2', true)).public, true);
  assert.deepEqual((await client.images.list()).map((i) => i.name).sort(), ['sdk/app:1', 'sdk/app:2', 'sdk/base:1']);
  for (const i of await client.images.list()) await client.images.delete(i.name);
  await assert.rejects(client.images.get('sdk/app:1'), NotFoundError);
  assert.ok((await client.images.forgetBuilds()).steps! > 0);
  assert.ok((await client.images.prune()).bytes! >= 0);
  assert.equal((await client.images.usage()).tenants[0]!.images, 0);
});

test('what fails is a typed error', async () => {
  await assert.rejects(client.images.build('FROM scratch\nRUN\n'), InvalidError);
  await assert.rejects(client.images.import('no archive', { name: 'x' }));
  await assert.rejects(client.images.pull('127.0.0.1:1/none:1'));
  await assert.rejects(client.images.pull('Not A Name'), InvalidError);
  await assert.rejects(client.images.outdated('none'), NotFoundError);
  await assert.rejects(client.images.outdated('none', { username: 'anna', password: 'x' }), NotFoundError);
  const stop = new AbortController();
  const pulling = client.images.pull('127.0.0.1:1/none:2', { signal: stop.signal });
  stop.abort();
  await assert.rejects(pulling);
});

/* Golden snapshot: install once, keep the state by name, start every task from it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NoidAPIError } from '@cloche/sdk/noid';
import { vmName, withNoid, world } from './samples.js';

withNoid();

test('what was installed once is there in every task, and tasks do not see each other', async () => {
  const { noid } = world;
  const base = vmName('golden');
  await noid.createVM({ name: base, memory: 512 });
  await noid.exec(base, 'mkdir -p /opt/tools && echo "answer = 42" > /opt/tools/lib.py');
  const kept = await noid.createCheckpoint(base, 'golden', { label: 'tools installed' });
  assert.equal(kept.label, 'tools installed');

  const run = async (task: string): Promise<string> => {
    const name = vmName(task);
    await noid.restore(base, 'golden', { as: name });
    try {
      await noid.exec(name, `echo ${task} >> /opt/tools/seen`);
      const r = await noid.exec(name, 'cd /opt/tools && python3 -c "import lib; print(lib.answer)" && cat seen');
      return r.stdout;
    } finally {
      await noid.destroyVM(name);
    }
  };
  assert.equal(await run('one'), '42\none\n');
  assert.equal(await run('two'), '42\ntwo\n');
  await noid.destroyVM(base);
});

test('destroying the base does not break what was restored from it', async () => {
  const { noid } = world;
  const base = vmName('base');
  const copy = vmName('copy');
  await noid.createVM({ name: base, memory: 512 });
  await noid.exec(base, 'echo data > /root/file');
  await noid.createCheckpoint(base, 'golden');
  await noid.restore(base, 'golden', { as: copy });
  await noid.destroyVM(base);
  assert.equal((await noid.exec(copy, 'cat /root/file')).stdout, 'data\n');
  // Nor what can still be made of it, by the name it had.
  assert.deepEqual((await noid.listCheckpoints(base)).map((c) => c.name), ['golden']);
  const late = vmName('late');
  await noid.restore(base, 'golden', { as: late });
  const again = await noid.restore(base, 'golden');
  assert.equal(again.name, base);
  for (const name of [late, base]) assert.equal((await noid.exec(name, 'cat /root/file')).stdout, 'data\n');
  await assert.rejects(noid.restore(vmName('never'), 'golden'), (e) => e instanceof NoidAPIError && e.isNotFound());
  await Promise.all([copy, late, base].map((n) => noid.destroyVM(n)));
});

/* A team of agents: each its own VM, all at the same time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { vmName, withNoid, world } from './samples.js';

withNoid();

const team = ['researcher', 'coder', 'reviewer', 'tester'];

test('agents work in parallel, each in its own VM', async () => {
  const { noid } = world;
  const results = await Promise.all(
    team.map(async (role) => {
      const name = vmName(role);
      await noid.createVM({ name, memory: 256 });
      try {
        await noid.exec(name, `echo ${role} > /root/role`);
        const r = await noid.exec(name, 'sleep 0.2; cat /root/role; ls /root | wc -l', { timeout: 20_000 });
        return r.stdout.split('\n');
      } finally {
        await noid.destroyVM(name);
      }
    }),
  );
  assert.deepEqual(results.map((r) => r[0]), team);
  assert.ok(results.every((r) => r[1]?.trim() === results[0]![1]?.trim()));
});

test('one checkpoint becomes a whole team at once', async () => {
  const { noid } = world;
  const base = vmName('team');
  await noid.createVM({ name: base, memory: 256 });
  await noid.exec(base, 'echo shared > /root/context');
  await noid.createCheckpoint(base, 'ready', { label: 'the team starts here' });
  const names = team.map((role) => vmName(role));
  const vms = await Promise.all(names.map((as) => noid.restore(base, 'ready', { as })));
  assert.deepEqual(vms.map((v) => v.name), names);
  const out = await Promise.all(names.map((n) => noid.exec(n, `echo ${n} > /root/me; cat /root/context /root/me`)));
  assert.deepEqual(out.map((r) => r.stdout), names.map((n) => `shared\n${n}\n`));
  await Promise.all([base, ...names].map((n) => noid.destroyVM(n)));
});

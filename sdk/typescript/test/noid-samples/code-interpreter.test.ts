/* Code interpreter: a VM per piece of code, run with a time limit, gone whatever happens. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NoidAPIError } from '@cloche/sdk/noid';
import { vmName, withNoid, world } from './samples.js';

withNoid();

async function runPython(code: string, timeout = 30_000) {
  const { noid } = world;
  const name = vmName('interpreter');
  try {
    await noid.createVM({ name, vcpus: 1, memory: 512 });
    const quoted = `'${code.replace(/'/g, `'\\''`)}'`;
    const result = await noid.exec(name, `python3 -c ${quoted}`, { timeout });
    return { name, success: result.exitCode === 0, output: result.stdout, error: result.stderr, result };
  } finally {
    await noid.destroyVM(name);
  }
}

test('code runs, as root, and its output comes back', async () => {
  const r = await runPython('import os\nprint("it\'s", 6 * 7)\nprint("uid", os.getuid())');
  assert.equal(r.error, '');
  assert.equal(r.output, "it's 42\nuid 0\n");
  assert.equal(r.success, true);
});

test('an exception is on stderr, apart from stdout', async () => {
  const r = await runPython('print("before")\nraise ValueError("broken")');
  assert.equal(r.success, false);
  assert.equal(r.result.exitCode, 1);
  assert.equal(r.output, 'before\n');
  assert.match(r.error, /ValueError: broken/);
});

test('an endless loop ends with the timeout, and what it printed is there', async () => {
  const t0 = Date.now();
  const r = await runPython('print("working", flush=True)\nwhile True: pass', 1000);
  assert.ok(Date.now() - t0 < 15_000);
  assert.equal(r.result.exitCode, 124);
  assert.equal(r.result.timedOut, true);
  assert.equal(r.output, 'working\n');
});

test('the VM is gone afterwards, and destroying it twice is fine', async () => {
  const { noid } = world;
  const r = await runPython('pass');
  await assert.rejects(noid.getVM(r.name), (e) => e instanceof NoidAPIError && e.isNotFound());
  await noid.destroyVM(r.name);
  assert.deepEqual((await noid.listVMs()).map((v) => v.name), []);
});

test('a timeout leaves no process behind', async () => {
  const { noid } = world;
  const name = vmName('interpreter');
  await noid.createVM({ name, memory: 256 });
  try {
    await noid.exec(name, '(sleep 77 & sleep 77) & sleep 77', { timeout: 500 });
    const count = await noid.exec(name, 'n=0; for p in /proc/[0-9]*; do case "$(tr "\\0" " " < $p/cmdline)" in "sleep 77 ") n=$((n+1));; esac; done; echo $n');
    assert.equal(count.stdout, '0\n');
  } finally {
    await noid.destroyVM(name);
  }
});

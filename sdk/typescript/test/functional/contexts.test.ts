/* Code in contexts: its results and output, streams, callbacks, interrupts, what editors ask. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { InvalidError, NotFoundError, type Cloche, type CodeEvent, type Sandbox } from '@cloche/sdk';
import { startDaemon, type Daemon } from '../support/daemon.js';

let daemon: Daemon;
let client: Cloche;
let sandbox: Sandbox;
before(async () => {
  daemon = await startDaemon();
  client = daemon.client();
  sandbox = await client.sandboxes.create({ memory: '512M' });
});
after(() => daemon?.stop());

test('code keeps its variables and gives its results', async () => {
  const x = await sandbox.runCode('n = 40\nprint("out")\n{"my_key": [1, n]}');
  assert.deepEqual([x.ok, x.stdout, x.error, x.executionCount, x.context], [true, 'out\n', null, 1, 'python']);
  assert.deepEqual(x.results[0]!.json, { my_key: [1, 40] });
  assert.equal(x.text, "{'my_key': [1, 40]}");
  const failed = await sandbox.runCode('1 / 0', { env: { A: null } });
  assert.deepEqual([failed.ok, failed.error?.name, failed.verdict.cause, failed.text], [false, 'ZeroDivisionError', 'error', undefined]);
  const wrong = await sandbox.runCode('n = = 1');
  assert.deepEqual([wrong.error?.name, wrong.error?.line, wrong.error?.column], ['SyntaxError', 1, 5]);
  assert.equal((await sandbox.runCode('const a: number = await Promise.resolve(3); a + 1', { language: 'js' })).error === null, false);
  assert.equal((await sandbox.runCode('const b = await Promise.resolve(3); b + 1', { language: 'js' })).text, '4');
  assert.deepEqual((await sandbox.contexts.list()).map((c) => c.id), ['python', 'javascript']);
  await assert.rejects(sandbox.runCode('1', { language: 'cobol' }), NotFoundError);
  await assert.rejects(sandbox.runCode(5 as never), InvalidError);
});

test('events and callbacks come while it runs', async () => {
  const c = await sandbox.contexts.create({ cwd: '/tmp', env: { A: '1' } });
  const seen: CodeEvent[] = [];
  for await (const e of c.stream('import os\nprint(os.environ["A"])\ndisplay(1)\nos.getcwd()')) seen.push(e);
  assert.deepEqual(seen.map((e) => e.type), ['stdout', 'result', 'result', 'end']);
  const last = seen[3]!;
  assert.ok(last.type === 'end' && last.execution.text === "'/tmp'" && last.execution.stdout === '1\n');
  const said: string[] = [];
  const x = await c.execute('print("o"); display(2)\n1/0', {
    onStdout: (s) => said.push(s),
    onResult: (r) => said.push(r.text!),
    onError: (e) => said.push(e.name),
  });
  assert.deepEqual([said, x.error?.name], [['o\n', '2', 'ZeroDivisionError'], 'ZeroDivisionError']);
  const png = await c.execute('class P:\n def _repr_png_(self): return b"\\x89PNG\\r\\n\\x1a\\n"\nP()');
  assert.equal(png.results[0]!.png!.toString('latin1'), '\x89PNG\r\n\x1a\n');
  // One that is left, or aborted, is interrupted, and leaves the context as it was.
  for await (const e of c.stream('kept = 7\nprint("begun")\nimport time; time.sleep(300)')) if (e.type === 'stdout') break;
  assert.equal((await c.execute('kept')).text, '7');
  const stop = new AbortController();
  const aborted = c.execute('print("begun")\ntime.sleep(300)', { signal: stop.signal, onStdout: () => stop.abort() });
  await assert.rejects(aborted, { name: 'AbortError' });
  assert.equal((await c.execute('kept')).text, '7');
  await c.delete();
  await assert.rejects(c.execute('kept'), NotFoundError);
});

test('time, interrupts, restarts, and questions', async () => {
  const c = await sandbox.contexts.create();
  const late = await c.execute('import time\nname_of_mine = 1\ntime.sleep(60)', { timeout: 0.5 });
  assert.deepEqual([late.verdict.cause, late.verdict.state, late.error?.name], ['timeout', 'kept', 'KeyboardInterrupt']);
  assert.equal(await c.interrupt(), false);
  assert.deepEqual(await c.complete('name_of'), { matches: ['name_of_mine'], start: 0, end: 7 });
  assert.equal((await c.isComplete('for x in y:')).status, 'incomplete');
  assert.equal((await c.inspect('len')).found, true);
  assert.equal((await c.history({ last: 1 }))[0]!.executionCount, 1);
  await c.restart();
  assert.equal((await c.execute('name_of_mine')).error?.name, 'NameError');
  assert.equal((await c.refresh()).state, 'idle');
  const limited = await sandbox.contexts.create({ restrict: { imports: ['subprocess'] }, outputLimit: '1K' });
  assert.equal((await limited.execute('import subprocess')).error?.name, 'ImportError');
  const much = await limited.execute('print("x" * 100000)');
  assert.ok(much.stdout.length === 1024 && much.truncated.outputDropped > 90000);
});

test('a large result comes as one event', async () => {
  for await (const e of (await sandbox.contexts.create()).stream("display({'text/html': 'x' * 9_000_000}, raw=True)"))
    if (e.type === 'result') assert.equal(e.result.html!.length, 9_000_000);
});

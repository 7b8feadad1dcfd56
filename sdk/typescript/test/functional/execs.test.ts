import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ClocheError, NotFoundError, RefusedError, type Exec, type OutputChunk, type Sandbox } from '@cloche/sdk';
import { startDaemon, type Daemon } from '../support/daemon.js';

let daemon: Daemon;
let s: Sandbox;

before(async () => {
  daemon = await startDaemon();
  s = await daemon.client().sandboxes.create({ memory: '256M' });
});
after(() => daemon?.stop());

async function text(exec: AsyncIterable<OutputChunk>): Promise<{ stdout: string; stderr: string; tty: string }> {
  const out = { stdout: '', stderr: '', tty: '' };
  for await (const c of exec) out[c.stream] += c.text;
  return out;
}

test('a result has code, both streams, verdict and usage', async () => {
  const r = await s.exec('echo out; echo err >&2; exit 3');
  assert.equal(r.exitCode, 3);
  assert.equal(r.stdout, 'out\n');
  assert.equal(r.stderr, 'err\n');
  assert.equal(r.verdict.cause, 'exited');
  assert.equal(r.ok, false);
  assert.equal(typeof r.usage.wallMs, 'number');
  assert.equal(typeof r.usage.cpuMs, 'number');
  assert.equal(r.truncated.stdout, false);
});

test('arguments are not seen by a shell; env, cwd, stdin and user are heeded', async () => {
  assert.equal((await s.exec(['printf', '%s|', '$HOME', 'a b'])).stdout, '$HOME|a b|');
  const r = await s.exec('pwd; echo $X; cat; id -u', { cwd: '/tmp', env: { X: 'y' }, stdin: 'in\n', user: 'root' });
  assert.equal(r.stdout, '/tmp\ny\nin\n0\n');
});

test('bytes stay bytes', async () => {
  const r = await s.exec(['printf', '\\377\\000a'], { binary: true });
  assert.deepEqual(r.stdoutBytes, Buffer.from([255, 0, 97]));
});

test('a timeout kills and keeps the output', async () => {
  const r = await s.exec('echo before; sleep 60', { timeout: 0.5 });
  assert.equal(r.exitCode, 124);
  assert.equal(r.verdict.cause, 'timeout');
  assert.equal(r.stdout, 'before\n');
});

test('a program that is not there is refused, not run', async () => {
  await assert.rejects(s.exec(['/no/such/program']), RefusedError);
  const merged = await s.exec('echo a; echo b >&2; echo c', { output: 'merged' });
  assert.deepEqual([merged.stdout, merged.stderr], ['a\nb\nc\n', '']);
  assert.equal((await s.exec(['wc', '-c'], { stdin: Buffer.alloc(6 << 20, 10) })).stdout, `${6 << 20}\n`);
  // A stream may have begun before that is known; then it ends with it.
  for (const transport of ['websocket', 'sse'] as const) {
    await assert.rejects(async () => text(await s.start(['/no/such/program'], { transport })), RefusedError);
    await assert.rejects(async () => (await s.start(['/no/such/program'], { transport })).wait(), RefusedError);
  }
});

for (const transport of ['websocket', 'sse'] as const) {
  test(`output streams as it comes (${transport})`, async () => {
    const wait = 'until rm /tmp/go 2>/dev/null; do sleep 0.05; done';
    const exec = await s.start(`echo one; echo two >&2; ${wait}; printf "gr\\303\\274n"; exit 5`, { transport });
    let first = true;
    const out = { stdout: '', stderr: '' };
    for await (const c of exec) {
      if (first) await s.exec(['touch', '/tmp/go']);
      first = false;
      out[c.stream as 'stdout' | 'stderr'] += c.text;
    }
    assert.deepEqual(out, { stdout: 'one\ngrün', stderr: 'two\n' });
    const r = await exec.wait();
    assert.equal(r.exitCode, 5);
    assert.equal(exec.result, r);
  });

  test(`stdin is written and closed (${transport})`, async () => {
    const exec = await s.start(['sort'], { stdin: true, transport });
    exec.stdin.write('b\n');
    exec.stdin.end('a\n');
    assert.equal((await text(exec)).stdout, 'a\nb\n');
    assert.equal((await exec.wait()).exitCode, 0);
  });

  test(`bytes of a stream are exact (${transport})`, async () => {
    const exec = await s.start('head -c 3000000 /dev/urandom | tee f | cat', { transport });
    const parts: Buffer[] = [];
    for await (const c of exec) parts.push(c.data);
    const all = Buffer.concat(parts);
    assert.equal(all.length, 3_000_000);
    assert.ok(all.equals(await s.files.read('f')));
  });
}

test('much stdin goes through, with backpressure', async () => {
  const exec = await s.start(['wc', '-c'], { stdin: true });
  const piece = Buffer.alloc(1 << 20, 'x');
  for (let i = 0; i < 16; i++)
    if (!exec.stdin.write(piece)) await new Promise((resolve) => exec.stdin.once('drain', resolve));
  exec.stdin.end();
  assert.equal((await text(exec)).stdout.trim(), String(16 << 20));
});

test('whoever does not read gets the output with the result', async () => {
  for (const transport of ['websocket', 'sse'] as const) {
    const exec = await s.start('echo soon; sleep 0.1; echo later; echo bad >&2; exit 2', { transport });
    await new Promise((resolve) => setTimeout(resolve, 30));
    const r = await exec.wait();
    assert.deepEqual([r.stdout, r.stderr, r.exitCode], ['soon\nlater\n', 'bad\n', 2]);
    assert.equal(await exec.wait(), r);
    const cat = await s.start(['cat'], { stdin: true, transport });
    cat.stdin.end('through');
    assert.equal((await cat.wait()).stdout, 'through');
    const much = await s.start('seq 1 100000', { outputLimit: 4096, transport });
    const m = await much.wait();
    assert.equal(m.truncated.stdoutDropped, 588895 - 4096);
    assert.match(m.stdout, /^1\n2\n[^]*\n100000\n$/);
  }
});

test('writing to a stdin that was not asked for is an error', async () => {
  const exec = await s.start(['sleep', '5']);
  await assert.rejects(new Promise((_, no) => exec.stdin.write('x', (e) => e && no(e))), /stdin: true/);
  await exec.kill();
});

test('a slow reader slows the command, not the memory', async () => {
  const exec = await s.start('head -c 268435456 /dev/zero', { timeout: 120 });
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const rss = process.memoryUsage().rss;
  let n = 0;
  let highest = 0;
  for await (const c of exec) {
    n += c.data.length;
    if (n % (1 << 24) < c.data.length) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      highest = Math.max(highest, process.memoryUsage().rss);
    }
  }
  assert.equal(n, 268435456);
  assert.ok(highest - rss < 128 * 1024 * 1024, `${(highest - rss) >> 20} MiB more`);
});

test('kill, signal, and a loop that is left', async () => {
  const a = await s.start('echo up; sleep 60');
  for await (const c of a) {
    assert.equal(c.text, 'up\n');
    break;
  }
  const r = await a.kill();
  assert.equal(r.exitCode, 137);
  const b = await s.start('trap "echo got it; exit 9" TERM; echo ready; while :; do sleep 0.05; done');
  let out = '';
  for await (const c of b) {
    out += c.text;
    if (out === 'ready\n') await b.signal('SIGTERM', { scope: 'process' });
  }
  assert.equal(out, 'ready\ngot it\n');
  assert.equal((await b.wait()).exitCode, 9);
});

test('an abort ends the command as well as the wait', async () => {
  const aborted = async (run: (signal: AbortSignal) => Promise<unknown>): Promise<void> => {
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error('enough')), 300);
    await assert.rejects(run(stop.signal), /enough/);
  };
  await aborted((signal) => s.exec('sleep 71', { signal }));
  await aborted(async (signal) => {
    for await (const c of await s.start('echo up; sleep 71', { signal })) void c;
  });
  for (let i = 0; i < 50; i++) {
    const left = (await s.execs()).filter((x) => x.state === 'running');
    if (left.length === 0) break;
    assert.ok(i < 49, `still running: ${JSON.stringify(left)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.equal((await s.exec('echo fine', { signal: new AbortController().signal })).stdout, 'fine\n');
});

test('background: started, listed, attached, waited for, output by offset', async () => {
  const exec = await s.background('for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done; echo bad >&2; exit 4');
  assert.ok((await s.execs()).some((x) => x.id === exec.id && x.background));
  const again = await s.attach(exec.id);
  const out = await text(again);
  assert.equal(out.stdout, 'line 1\nline 2\nline 3\nline 4\nline 5\n');
  const r = await exec.wait();
  assert.equal(r.exitCode, 4);
  assert.equal(r.stderr, 'bad\n');
  assert.equal((await exec.output({ offset: 7 })).toString(), 'line 2\nline 3\nline 4\nline 5\n');
  assert.equal((await exec.output({ stream: 'stderr' })).toString(), 'bad\n');
  await assert.rejects(s.attach('nosuchexec'), NotFoundError);
});

test('attach goes on from an offset after a break', async () => {
  const exec = await s.start('for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done');
  let seen = '';
  for await (const c of exec) {
    seen += c.text;
    if (seen.includes('2\n')) break;
  }
  const rest = await s.attach(exec.id, { offset: exec.offset });
  seen += (await text(rest)).stdout;
  assert.equal(seen, '1\n2\n3\n4\n5\n6\n');
});

async function readUntil(it: AsyncIterator<OutputChunk>, want: RegExp): Promise<string> {
  let all = '';
  while (!want.test(all)) {
    const r = await it.next();
    assert.ok(!r.done, `ended after ${JSON.stringify(all)}`);
    all += r.value.text;
  }
  return all;
}

test('a terminal: size, resize, keyboard, reattach', async () => {
  const pty: Exec = await s.pty({ cmd: ['/bin/sh', '-i'], rows: 30, cols: 100, env: { PS1: '$ ' } });
  assert.equal(pty.tty, true);
  const it = pty[Symbol.asyncIterator]();
  pty.stdin.write('stty size; echo d""one\n');
  assert.match(await readUntil(it, /\bdone/), /30 100/);
  await pty.resize(40, 120);
  pty.stdin.write('stty size; echo a""gain\n');
  assert.match(await readUntil(it, /\bagain/), /40 120/);
  pty.detach();
  const back = await s.attach(pty.id, { offset: pty.offset });
  assert.equal(back.tty, true);
  const it2 = back[Symbol.asyncIterator]();
  back.stdin.write('echo st""ill here\n');
  await readUntil(it2, /still here/);
  back.stdin.write('exit 6\n');
  while (!(await it2.next()).done);
  assert.equal((await back.wait()).exitCode, 6);
});

test('output past the limit keeps head and tail, and is whole in the spool', async () => {
  const r = await s.exec('seq 1 100000', { outputLimit: 4096 });
  assert.equal(r.truncated.stdout, true);
  assert.ok(r.truncated.stdoutDropped > 500_000);
  assert.match(r.stdout, /^1\n2\n/);
  assert.match(r.stdout, /100000\n$/);
  const exec = await s.attach(r.id);
  const whole = await exec.output();
  assert.equal(whole.length, 588895);
  exec.detach();
});

test('output that was not kept is a gap, and offsets stay true', async () => {
  const d = await startDaemon('spool_max = 1M\n');
  try {
    const box = await d.client().sandboxes.create();
    const half = 512 * 1024;
    const exec = await box.background('seq 1 400000');
    await exec.wait();
    const total = 2688895;
    const gap = { offset: total - half, lost: total - 2 * half };
    const whole = await exec.output();
    assert.equal(whole.length, 2 * half);
    assert.deepEqual(whole.gaps, [gap]);
    assert.deepEqual((await exec.output({ offset: total - 7 })).gaps, []);
    const again = await box.attach(exec.id);
    const gaps = [];
    for await (const c of again) if (c.gap) gaps.push(c.gap);
    assert.deepEqual(gaps, [gap]);
    assert.equal(again.offset, total);
  } finally {
    await d.stop();
  }
});

test('many at once', async () => {
  const all = await Promise.all(Array.from({ length: 20 }, (_, i) => s.exec(['echo', String(i)])));
  assert.deepEqual(all.map((r) => r.stdout), Array.from({ length: 20 }, (_, i) => `${i}\n`));
});

test("with somebody else's fetch output comes as events", async () => {
  const client = daemon.client({ fetch });
  const same = await client.sandboxes.get(s.id);
  const exec = await same.start(['cat'], { stdin: true });
  exec.stdin.end('by fetch');
  assert.equal((await text(exec)).stdout, 'by fetch');
});

test('reading twice is an error', async () => {
  const exec = await s.start('true');
  await text(exec);
  await assert.rejects(text(exec), ClocheError);
});

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { ClocheError, NotFoundError, type Sandbox } from '@cloche/sdk';
import { startDaemon, type Daemon } from '../support/daemon.js';

let daemon: Daemon;
let s: Sandbox;

before(async () => {
  daemon = await startDaemon();
  s = await daemon.client().sandboxes.create({ memory: '512M' });
});
after(() => daemon?.stop());

test('written, read, described, listed, moved, removed', async () => {
  const st = await s.files.write('a/b/hello.txt', 'grüß dich\n', { mode: 0o640 });
  assert.equal(st.size, 12);
  assert.equal(st.mode, '0640');
  assert.equal(await s.files.readText('a/b/hello.txt'), 'grüß dich\n');
  assert.equal((await s.exec('cat a/b/hello.txt')).stdout, 'grüß dich\n');
  await s.files.write('a/b/hello.txt', 'more', { append: true });
  assert.equal(await s.files.readText('a/b/hello.txt', { offset: 12 }), 'more');
  assert.equal(await s.files.readText('a/b/hello.txt', { offset: 7, length: 4 }), 'dich');
  await s.files.mkdir('a/c/d');
  assert.equal((await s.files.stat('a/c/d')).type, 'dir');
  const names = (await s.files.list('a', { depth: 2 })).map((e) => e.path.split('/').at(-1)).sort();
  assert.deepEqual(names, ['b', 'c', 'd', 'hello.txt']);
  await s.files.move('a/b/hello.txt', 'a/moved');
  assert.equal(await s.files.exists('a/b/hello.txt'), false);
  assert.equal(await s.files.exists('a/moved'), true);
  await s.files.remove('a/moved');
  await assert.rejects(s.files.remove('a'), ClocheError);
  await s.files.remove('a', { recursive: true });
  await assert.rejects(s.files.read('a/moved'), NotFoundError);
});

test('names with anything in them', async () => {
  for (const name of ['a b+c&d=e?f#g%20', 'ü😀', "quote'\"\\"]) {
    await s.files.write(`odd/${name}`, name);
    assert.equal(await s.files.readText(`odd/${name}`), name);
  }
  assert.equal((await s.files.list('odd')).length, 3);
});

test('large files stream both ways', async () => {
  const piece = randomBytes(1 << 20);
  const sum = createHash('sha256');
  async function* source() {
    for (let i = 0; i < 64; i++) {
      sum.update(piece);
      yield piece;
    }
  }
  const st = await s.files.write('large', source());
  assert.equal(st.size, 64 << 20);
  const back = createHash('sha256');
  for await (const b of await s.files.readStream('large')) back.update(b as Buffer);
  assert.equal(back.digest('hex'), sum.digest('hex'));
  await s.files.remove('large');
});

test('folders go up and come down', async (t) => {
  const dir = fs.mkdtempSync('/var/tmp/cls-');
  t.after(() => fs.rmSync(dir, { recursive: true }));
  const up = join(dir, 'up');
  fs.mkdirSync(join(up, 'src/deep'), { recursive: true });
  fs.writeFileSync(join(up, 'src/main.py'), 'print("hi")\n');
  fs.writeFileSync(join(up, 'src/deep/data'), randomBytes(300_000));
  fs.writeFileSync(join(up, 'run.sh'), '#!/bin/sh\necho ran\n', { mode: 0o755 });
  fs.writeFileSync(join(up, 'secret.env'), 'x');
  fs.symlinkSync('src/main.py', join(up, 'link'));
  const r = await s.files.upload(up, 'project', { filter: (n) => !n.endsWith('.env') });
  assert.deepEqual(r.skipped, []);
  assert.equal((await s.exec('./project/run.sh; cat project/link; ls project')).stdout, 'ran\nprint("hi")\nlink\nrun.sh\nsrc\n');
  const down = join(dir, 'down');
  const d = await s.files.download('project', down);
  assert.deepEqual(d.skipped, []);
  // Whether the archive has the folder's own name in it is the server's choice.
  const base = fs.existsSync(join(down, 'project')) ? join(down, 'project') : down;
  assert.equal(fs.readFileSync(join(base, 'run.sh'), 'utf8'), '#!/bin/sh\necho ran\n');
  assert.equal(fs.statSync(join(base, 'run.sh')).mode & 0o777, 0o755);
  assert.ok(fs.readFileSync(join(base, 'src/deep/data')).equals(fs.readFileSync(join(up, 'src/deep/data'))));
  assert.equal(fs.readlinkSync(join(base, 'link')), 'src/main.py');
  await s.files.upload(join(up, 'run.sh'), 'single.sh');
  assert.equal((await s.exec('./single.sh')).stdout, 'ran\n');
});

test('what a sandbox plants in a download stays in the folder', async (t) => {
  const dir = fs.mkdtempSync('/var/tmp/cls-');
  t.after(() => fs.rmSync(dir, { recursive: true }));
  await s.exec('mkdir -p trap && cd trap && ln -s /etc/passwd abs && ln -s ../../.. up && echo ok > file && mkfifo pipe');
  const r = await s.files.download('trap', join(dir, 'out'));
  assert.ok(r.skipped.length >= 2, JSON.stringify(r));
  const all = fs.readdirSync(join(dir, 'out'), { recursive: true } as never) as unknown as string[];
  for (const n of all) assert.ok(!fs.lstatSync(join(dir, 'out', n)).isSymbolicLink(), n);
  assert.ok(all.some((n) => n.endsWith('file')));
});

test('changes are seen as they happen', async () => {
  await s.files.mkdir('watched');
  const events = await s.files.watch('watched');
  await s.exec('echo 1 > watched/new; mv watched/new watched/old; rm watched/old');
  const seen: string[] = [];
  for await (const e of events) {
    seen.push(e.type);
    if (e.type === 'removed') break;
  }
  assert.ok(seen.includes('created') && seen.includes('removed'), seen.join());
});

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { packFolder, readTar, tarHeader, unpackTar, type TarEntry } from '../../src/tar.js';

function folder(t: TestContext): string {
  const dir = fs.mkdtempSync('/var/tmp/cls-');
  t.after(() => fs.rmSync(dir, { recursive: true, force: true }));
  return dir;
}

async function bytes(it: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const out = [];
  for await (const b of it) out.push(b);
  return Buffer.concat(out);
}

/* One piece per so many bytes. */
async function* cut(b: Buffer, step: number) {
  for (let i = 0; i < b.length; i += step) yield b.subarray(i, i + step);
}

function sample(dir: string): void {
  fs.mkdirSync(join(dir, 'a/empty'), { recursive: true });
  fs.writeFileSync(join(dir, 'a/text'), 'hello\n', { mode: 0o640 });
  fs.writeFileSync(join(dir, 'run'), '#!/bin/sh\n');
  fs.chmodSync(join(dir, 'run'), 0o755);
  fs.writeFileSync(join(dir, 'big'), Buffer.alloc(600_001, 'xyz'));
  fs.writeFileSync(join(dir, 'Grüße 😀'), 'ü');
  const long = 'n'.repeat(90);
  fs.mkdirSync(join(dir, long, long), { recursive: true });
  fs.writeFileSync(join(dir, long, long, 'deep'), 'deep');
  fs.symlinkSync('a/text', join(dir, 'link'));
  fs.writeFileSync(join(dir, 'none'), '');
}

const listing = (dir: string): string =>
  execFileSync('sh', ['-c', 'find . -printf "%y %m %s %l %p\\n" | grep -v "^d" | sort; find . -type f -exec sha256sum {} + | sort'], { cwd: dir, encoding: 'utf8' });

test('a folder packed here is read by tar, and by ourselves', async (t) => {
  const dir = folder(t);
  fs.mkdirSync(join(dir, 'in'));
  sample(join(dir, 'in'));
  const tar = await bytes(packFolder(join(dir, 'in')));
  fs.mkdirSync(join(dir, 'theirs'));
  execFileSync('tar', ['-xp', '-C', join(dir, 'theirs')], { input: tar });
  assert.equal(listing(join(dir, 'theirs')), listing(join(dir, 'in')));
  for (const step of [100, 512, 70_000, tar.length]) {
    const out = join(dir, `ours${step}`);
    const r = await unpackTar(cut(tar, step), out);
    assert.equal(listing(out), listing(join(dir, 'in')));
    assert.deepEqual([r.files, r.skipped], [7, []]);
  }
});

test('what tar packs is read here, in each of its formats', async (t) => {
  const dir = folder(t);
  fs.mkdirSync(join(dir, 'in'));
  sample(join(dir, 'in'));
  fs.linkSync(join(dir, 'in/a/text'), join(dir, 'in/hard'));
  for (const format of ['gnu', 'pax']) {
    const tar = execFileSync('tar', ['-c', `--format=${format}`, '-C', join(dir, 'in'), '.'], { maxBuffer: 1 << 26 });
    const out = join(dir, format);
    await unpackTar(cut(tar, 10_000), out);
    assert.equal(listing(out), listing(join(dir, 'in')));
    assert.equal(fs.statSync(join(out, 'hard')).ino, fs.statSync(join(out, 'a/text')).ino);
  }
});

function entry(e: Partial<TarEntry> & { name: string }, data = ''): Buffer {
  const full: TarEntry = { type: 'file', mode: 0o644, size: data.length, mtime: 1, target: '', ...e };
  const pad = Buffer.alloc((512 - (data.length % 512)) % 512);
  return Buffer.concat([tarHeader(full), Buffer.from(data), pad]);
}

const end = Buffer.alloc(1024);

test('nothing lands outside, whatever the names and links say', async (t) => {
  const dir = folder(t);
  const out = join(dir, 'out');
  fs.mkdirSync(out);
  fs.mkdirSync(join(dir, 'victim'));
  fs.symlinkSync('../victim', join(out, 'there-before'));
  const tar = Buffer.concat([
    entry({ name: '../escaped' }, 'x'),
    entry({ name: '/etc/escaped-by-test' }, 'x'),
    entry({ name: 'a/../../escaped' }, 'x'),
    entry({ name: 'up', type: 'link', target: '..' }),
    entry({ name: 'abs', type: 'link', target: '/etc' }),
    entry({ name: 'sub/up', type: 'link', target: '../../victim' }),
    entry({ name: 'self', type: 'link', target: 'sub' }),
    entry({ name: 'self', type: 'file' }, 'file over link'),
    entry({ name: 'hard', type: 'hardlink', target: '../victim' }),
    entry({ name: 'hard2', type: 'hardlink', target: '/etc/passwd' }),
    entry({ name: 'fine', mode: 0o4755 }, 'ok'),
    end,
  ]);
  const r = await unpackTar(cut(tar, 999), out);
  assert.deepEqual(fs.readdirSync(dir).sort(), ['out', 'victim']);
  assert.deepEqual(fs.readdirSync(join(dir, 'victim')), []);
  assert.deepEqual(fs.readdirSync(out).sort(), ['fine', 'self', 'sub', 'there-before']);
  assert.equal(fs.statSync(join(out, 'fine')).mode & 0o7777, 0o755);
  assert.equal(r.skipped.length, 8);
  // A link that stood there before is not followed either.
  await assert.rejects(unpackTar(cut(Buffer.concat([entry({ name: 'there-before/x' }, 'x'), end]), 512), out), /no folder/);
  assert.deepEqual(fs.readdirSync(join(dir, 'victim')), []);
});

test('a link made by the archive is not written through', async (t) => {
  const dir = folder(t);
  const tar = Buffer.concat([
    entry({ name: 'real', type: 'dir' }),
    entry({ name: 'd', type: 'link', target: 'real' }),
    entry({ name: 'd/file' }, 'x'),
    end,
  ]);
  // "d" is a folder by the time the link is made, so the link cannot replace it.
  await assert.rejects(unpackTar(cut(tar, 512), join(dir, 'out')));
  assert.deepEqual(fs.readdirSync(join(dir, 'out/real')), []);
});

test('damage and greed are errors', async (t) => {
  const dir = folder(t);
  const good = Buffer.concat([entry({ name: 'a' }, 'hello'), end]);
  const bad = Buffer.from(good);
  bad[3] = 65;
  const drain = async (b: Buffer): Promise<void> => {
    for await (const { body } of readTar(cut(b, 512))) await bytes(body);
  };
  await drain(good);
  await assert.rejects(drain(bad), /sum/);
  await assert.rejects(drain(good.subarray(0, 700)), /ends in the middle/);
  await assert.rejects(unpackTar(cut(good, 512), join(dir, 'o'), { maxBytes: 4 }), /more than 4 bytes/);
  await assert.rejects(unpackTar(cut(good, 512), join(dir, 'o'), { maxEntries: 0 }), /entries/);
});

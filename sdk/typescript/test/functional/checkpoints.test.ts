import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ConflictError, NotFoundError, RefusedError, type Cloche } from '@cloche/sdk';
import { startDaemon, type Daemon } from '../support/daemon.js';

let daemon: Daemon;
let client: Cloche;

before(async () => {
  daemon = await startDaemon();
  client = daemon.client();
});
after(() => daemon?.stop());

test('back in place, as often as one likes', async () => {
  const s = await client.sandboxes.create({ env: { COLOUR: 'red' } });
  await s.exec('echo one > data');
  const c = await s.checkpoint('clean', { label: 'one file', metadata: { user_id: '7' } });
  assert.deepEqual([c.name, c.label, c.sandbox, c.memory, c.state], ['clean', 'one file', s.id, false, 'made']);
  assert.deepEqual(c.metadata, { user_id: '7' });
  const { id } = s;
  for (let i = 0; i < 3; i++) {
    await s.exec('rm data; touch dirt');
    assert.equal(await s.restore('clean'), s);
    assert.equal((await s.exec('cat data; ls; echo $COLOUR')).stdout, 'one\ndata\nred\n');
  }
  assert.equal(s.id, id);
  assert.equal(s.restored?.checkpoint, c.id);
  await assert.rejects(s.checkpoint('clean'), ConflictError);
  await assert.rejects(s.restore('never'), NotFoundError);
  await s.delete();
});

test('new ones, with what should differ', async () => {
  const s = await client.sandboxes.create({ memory: '128M', metadata: { by: 'base' } });
  await s.exec('echo one > data');
  const c = await s.checkpoint();
  const copy = await s.restore(c.id, { as: 'copy' });
  assert.deepEqual([copy.name, copy.memory, copy.id === s.id], ['copy', 128 << 20, false]);
  const other = await client.checkpoints.restore({ sandbox: s.id, name: c.name! }, { as: 'other', cpus: 0.5, env: { A: 'b' } });
  assert.deepEqual([other.cpus, (await other.exec('cat data; echo $A')).stdout], [0.5, 'one\nb\n']);
  const many = await client.checkpoints.restoreMany(c, { count: 5, timeout: 600 });
  assert.equal(new Set(many.map((m) => m.id)).size, 5);
  const named = await client.checkpoints.restoreMany(c, { names: ['n1', 'n2'] });
  assert.deepEqual(named.map((n) => n.name), ['n1', 'n2']);
  const made = await client.sandboxes.create({ checkpoint: c.id, name: 'made', memory: '64M' });
  assert.deepEqual([made.memory, (await made.exec('cat data')).stdout], [64 << 20, 'one\n']);
  await s.delete();
  await client.checkpoints.delete(c);
  const out = await Promise.all(many.map((m, i) => m.exec(`echo ${i} >> data; cat data`)));
  assert.deepEqual(out.map((r) => r.stdout), many.map((_, i) => `one\n${i}\n`));
  await Promise.all([copy, other, made, ...many, ...named].map((m) => m.delete()));
});

test('found, changed and deleted', async () => {
  const s = await client.sandboxes.create({ name: 'listed' });
  const made = [];
  for (const i of [1, 2, 3]) made.push(await s.checkpoint(`c${i}`, { metadata: { odd: `${i % 2}` } }));
  const ids = async (options: object): Promise<string[]> => {
    const out: string[] = [];
    for await (const c of client.checkpoints.list(options)) out.push(c.id);
    return out;
  };
  const [a, b, c] = made.map((m) => m.id);
  assert.deepEqual(await ids({ sandbox: 'listed', pageSize: 2 }), [c, b, a]);
  assert.deepEqual(await ids({ metadata: { odd: '1' } }), [c, a]);
  assert.deepEqual((await s.checkpoints()).map((x) => x.id), [c, b, a]);
  const changed = await client.checkpoints.update(a!, { name: 'first', label: 'the first' });
  assert.deepEqual([changed.name, changed.label], ['first', 'the first']);
  assert.equal((await client.checkpoints.get({ sandbox: 'listed', name: 'first' })).id, a);
  await client.checkpoints.delete(b!);
  await assert.rejects(client.checkpoints.get(b!), NotFoundError);
  await s.delete();
  assert.deepEqual(await ids({ sandbox: s.id }), [c, a]);
  await Promise.all([a, c].map((x) => client.checkpoints.delete(x!)));
});

test('forks go their own way', async () => {
  const s = await client.sandboxes.create();
  await s.exec('echo one > data');
  const forks = await s.fork(2);
  const [named] = await s.fork(undefined, { names: ['fork'], memory: false });
  assert.equal(named!.name, 'fork');
  await Promise.all(forks.map((f, i) => f.exec(`echo ${i} > data`)));
  const all = [s, ...forks, named!];
  const out = await Promise.all(all.map((f) => f.exec('cat data')));
  assert.deepEqual(out.map((r) => r.stdout), ['one\n', '0\n', '1\n', 'one\n']);
  await Promise.all(all.map((f) => f.delete()));
});

test('what was changed, as a list and as text', async () => {
  const s = await client.sandboxes.create();
  await s.exec('echo one > data; echo kept > kept');
  const c = await s.checkpoint();
  await s.exec('echo two > data; rm kept; mkdir new');
  const d = await s.diff({ from: { checkpoint: c.id }, text: true });
  assert.deepEqual([d.added, d.changed, d.removed, d.truncated], [1, 1, 1, false]);
  const home = (await s.exec('pwd')).stdout.trim();
  assert.deepEqual(
    d.entries.map((e) => [e.path, e.change, e.type]),
    [
      [`${home}/data`, 'changed', 'file'],
      [`${home}/kept`, 'removed', 'file'],
      [`${home}/new`, 'added', 'dir'],
    ],
  );
  assert.deepEqual([d.entries[0]!.size, d.entries[0]!.oldSize], [4, 4]);
  assert.match(d.entries[0]!.text!, /^-one\n\+two$/m);
  const own = await client.checkpoints.diff(c);
  assert.ok(own.entries.some((e) => e.path === `${home}/kept` && e.change === 'added'));
  assert.equal((await client.checkpoints.diff(c, { from: { sandbox: s.id } })).removed, 1);
  await s.delete();
  await client.checkpoints.delete(c);
});

test('carried as one file, by streams', async () => {
  const s = await client.sandboxes.create({ env: { COLOUR: 'red' } });
  await s.exec('head -c 300000 /dev/urandom > data; sha256sum data > sum');
  const c = await s.checkpoint('golden', { label: 'to go' });
  const piped = await client.checkpoints.import(await client.checkpoints.export(c), { name: 'piped' });
  assert.deepEqual([piped.name, piped.label, piped.id === c.id], ['piped', 'to go', false]);
  const parts: Buffer[] = [];
  for await (const p of await client.checkpoints.export(c)) parts.push(p as Buffer);
  const file = Buffer.concat(parts);
  const whole = await client.checkpoints.import(file, { name: 'whole', label: 'here' });
  assert.equal(whole.label, 'here');
  await s.delete();
  await client.checkpoints.delete(c);
  const copy = await client.checkpoints.restore(whole);
  assert.equal((await copy.exec('sha256sum --status -c sum && echo $COLOUR')).stdout, 'red\n');
  await copy.delete();
  const count = (await all()).length;
  await assert.rejects(client.checkpoints.import(file.subarray(0, file.length / 2)), RefusedError);
  const altered = Buffer.from(file);
  altered[altered.length >> 1]! ^= 1;
  await assert.rejects(client.checkpoints.import(altered), RefusedError);
  assert.equal((await all()).length, count);
  await Promise.all([piped, whole].map((x) => client.checkpoints.delete(x)));
});

async function all(): Promise<string[]> {
  const out: string[] = [];
  for await (const c of client.checkpoints.list()) out.push(c.id);
  return out;
}

test('a fork brings back what it has done', async () => {
  const s = await client.sandboxes.create();
  await s.exec('echo one > data; echo old > gone');
  const [fork] = await s.fork();
  await fork!.exec('echo two > data; rm gone; echo new > more');
  const done = await s.promote(fork!);
  assert.deepEqual([done.added, done.changed, done.removed, done.conflicts], [1, 1, 1, []]);
  assert.equal((await s.exec('cat data more; ls')).stdout, 'two\nnew\ndata\nmore\n');
  const [other] = await s.fork();
  await other!.exec('echo theirs > data');
  await s.exec('echo mine > data');
  const path = (await s.exec('realpath data')).stdout.trim();
  await assert.rejects(s.promote(other!), (e) => e instanceof ConflictError && (e.details.conflicts as string[])[0] === path);
  assert.equal((await s.promote(other!.id, { force: true })).changed, 1);
  assert.equal((await s.exec('cat data')).stdout, 'theirs\n');
  await Promise.all([s, fork!, other!].map((x) => x.delete()));
});

test('what runs goes on in every copy', async () => {
  const s = await client.sandboxes.create();
  const code = 'import time\nn = 0\nwhile True:\n  n += 1\n  print(n)\n  if n == 5: open("begun", "w")\n  time.sleep(0.02)';
  const counter = await s.background(['python3', '-uc', code]);
  await s.exec('until [ -e begun ]; do sleep 0.02; done');
  const c = await s.checkpoint('running', { memory: true });
  assert.deepEqual([c.memory, c.memoryRefused], [true, null]);
  const copies = await client.checkpoints.restoreMany(c, { count: 2 });
  for (const copy of copies) {
    assert.ok(copy.restored?.memory);
    assert.equal(copy.restored?.execs.length, 1);
    const goesOn = await copy.attach(counter.id); // found by the id it had
    let out = '';
    for await (const { text } of goesOn) {
      out += text;
      if (out.split('\n').length > 5) break;
    }
    const [first, second] = out.split('\n').map(Number);
    assert.ok(first! >= 5 && second === first! + 1, out);
  }
  await Promise.all([s, ...copies].map((x) => x.delete()));
  await client.checkpoints.delete(c);
});

test('asleep until the next call', async () => {
  const s = await client.sandboxes.create({ idle: { pause: 3600, hibernate: 7200, delete: 86_400 } });
  await s.exec('echo kept > data');
  await s.background('sleep 1000');
  await s.hibernate();
  assert.equal(s.state, 'hibernated');
  assert.equal((await s.exec('cat data; pgrep -c sleep')).stdout, 'kept\n1\n');
  assert.equal((await s.refresh()).state, 'running');
  await s.hibernate();
  assert.equal((await s.wake()).state, 'running');
  await s.delete();
});

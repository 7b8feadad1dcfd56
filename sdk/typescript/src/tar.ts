/*
 * Folders as tar streams, both ways. Written: ustar, with pax headers where ustar has no room. Read: ustar, pax and GNU's long
 * names. What is read comes out of a sandbox, so it is hostile: nothing is written outside of the target folder, through a
 * link, or with a set-id bit; devices are skipped.
 */
import type { Stats } from 'node:fs';
import { constants } from 'node:fs';
import { chmod, link, lstat, mkdir, open, readdir, readlink, rm, symlink, utimes } from 'node:fs/promises';
import { dirname, join, normalize, posix, sep } from 'node:path';
import { ProtocolError } from './errors.js';

const BLOCK = 512;
const MAX_META = 1024 * 1024;

export interface TarEntry {
  name: string;
  type: 'file' | 'dir' | 'link' | 'hardlink' | 'other';
  mode: number;
  size: number;
  /** Seconds. */
  mtime: number;
  target: string;
}

const bad = (why: string): ProtocolError => new ProtocolError(`tar: ${why}`, { code: 'protocol' });

function octal(out: Buffer, at: number, width: number, value: number): void {
  out.write(value.toString(8).padStart(width - 1, '0').slice(-(width - 1)) + '\0', at, width, 'latin1');
}

function ustar(name: Buffer, kind: string, e: TarEntry, size: number): Buffer {
  const b = Buffer.alloc(BLOCK);
  name.copy(b, 0, 0, 100);
  octal(b, 100, 8, e.mode & 0o7777);
  octal(b, 108, 8, 0);
  octal(b, 116, 8, 0);
  octal(b, 124, 12, size > 0o77777777777 ? 0 : size);
  octal(b, 136, 12, Math.max(0, Math.floor(e.mtime)));
  b.fill(' ', 148, 156);
  b.write(kind, 156, 'latin1');
  Buffer.from(e.target).copy(b, 157, 0, 100);
  b.write('ustar\x0000', 257, 'latin1');
  let sum = 0;
  for (const x of b) sum += x;
  b.write(sum.toString(8).padStart(6, '0') + '\0 ', 148, 'latin1');
  return b;
}

/* "LEN key=value\n", where LEN counts itself. */
function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const n = Buffer.byteLength(rest);
  let len = n + String(n).length;
  if (String(len).length > String(n).length) len = n + String(len).length;
  return len + rest;
}

const padding = (n: number): Buffer => Buffer.alloc((BLOCK - (n % BLOCK)) % BLOCK);
const KIND: Record<TarEntry['type'], string> = { file: '0', hardlink: '1', link: '2', dir: '5', other: '' };

/** The head of an entry, with a pax header before it when something does not fit. */
export function tarHeader(e: TarEntry): Buffer {
  const name = Buffer.from(e.name);
  let pax = '';
  if (name.length > 100 || /[^\x20-\x7e]/.test(e.name)) pax += paxRecord('path', e.name);
  if (Buffer.byteLength(e.target) > 100 || /[^\x20-\x7e]/.test(e.target)) pax += paxRecord('linkpath', e.target);
  if (e.size > 0o77777777777) pax += paxRecord('size', String(e.size));
  const head = ustar(name, KIND[e.type], e, e.size);
  if (pax === '') return head;
  const body = Buffer.from(pax);
  const none: TarEntry = { ...e, mode: 0o644, target: '' };
  return Buffer.concat([ustar(Buffer.from('pax'), 'x', none, body.length), body, padding(body.length), head]);
}

function entryOf(name: string, s: Stats): TarEntry {
  const type = s.isFile() ? 'file' : s.isDirectory() ? 'dir' : s.isSymbolicLink() ? 'link' : 'other';
  return {
    name: type === 'dir' ? `${name}/` : name,
    type,
    mode: s.mode & 0o777,
    size: type === 'file' ? s.size : 0,
    mtime: s.mtimeMs / 1000,
    target: '',
  };
}

async function* fileBytes(path: string, size: number): AsyncGenerator<Buffer> {
  const f = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    let left = size;
    while (left > 0) {
      const buf = Buffer.allocUnsafe(Math.min(left, 256 * 1024));
      const { bytesRead } = await f.read(buf, 0, buf.length, null);
      if (bytesRead === 0) break;
      left -= bytesRead;
      yield buf.subarray(0, bytesRead);
    }
    // The head has promised a size; a file that shrank meanwhile is filled up.
    for (; left > 0; left -= 65536) yield Buffer.alloc(Math.min(left, 65536));
  } finally {
    await f.close();
  }
  yield padding(size);
}

async function* walk(
  root: string,
  name: string,
  filter: (name: string) => boolean,
): AsyncGenerator<Buffer> {
  const path = join(root, name);
  const e = entryOf(name.split(sep).join('/'), await lstat(path));
  if (name !== '') {
    if (!filter(e.name.replace(/\/$/, '')) || e.type === 'other') return;
    if (e.type === 'link') e.target = await readlink(path);
    yield tarHeader(e);
    if (e.type === 'file') yield* fileBytes(path, e.size);
  }
  if (e.type !== 'dir') return;
  for (const child of (await readdir(path)).sort()) yield* walk(root, join(name, child), filter);
}

/** What lies below a local folder, as a tar stream. Sockets, devices and FIFOs are left out. */
export async function* packFolder(
  folder: string,
  filter: (name: string) => boolean = () => true,
): AsyncGenerator<Buffer> {
  yield* walk(folder, '', filter);
  yield Buffer.alloc(2 * BLOCK);
}

/* Exactly so many bytes at a time out of a stream of pieces of any size. */
class Reader {
  #it: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#it = source[Symbol.asyncIterator]();
  }

  /* Up to n bytes, as they come; an empty buffer at the end. */
  async some(n: number): Promise<Buffer> {
    while (this.#rest.length === 0) {
      const r = await this.#it.next();
      if (r.done) return Buffer.alloc(0);
      this.#rest = Buffer.from(r.value.buffer, r.value.byteOffset, r.value.byteLength);
    }
    const out = this.#rest.subarray(0, n);
    this.#rest = this.#rest.subarray(out.length);
    return out;
  }

  async exactly(n: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let left = n; left > 0; ) {
      const b = await this.some(left);
      if (b.length === 0) throw bad('the stream ends in the middle');
      parts.push(b);
      left -= b.length;
    }
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  async *body(n: number): AsyncGenerator<Buffer> {
    for (let left = n; left > 0; ) {
      const b = await this.some(left);
      if (b.length === 0) throw bad('the stream ends in the middle of a file');
      left -= b.length;
      yield b;
    }
    await this.exactly((BLOCK - (n % BLOCK)) % BLOCK);
  }

  async drain(): Promise<void> {
    this.#rest = Buffer.alloc(0);
    while (!(await this.#it.next()).done);
  }

  async stop(): Promise<void> {
    await this.#it.return?.();
  }
}

function text(b: Buffer, at: number, n: number): string {
  const end = b.indexOf(0, at);
  return b.toString('utf8', at, end < 0 || end > at + n ? at + n : end);
}

function number(b: Buffer, at: number, n: number): number {
  if ((b[at]! & 0x80) !== 0) {
    let v = BigInt(b[at]! & 0x7f);
    for (let i = 1; i < n; i++) v = (v << 8n) | BigInt(b[at + i]!);
    if (v > BigInt(Number.MAX_SAFE_INTEGER)) throw bad('a number too large');
    return Number(v);
  }
  const s = text(b, at, n).trim();
  if (!/^[0-7]*$/.test(s)) throw bad('a number that is none');
  return s === '' ? 0 : parseInt(s, 8);
}

function pax(body: Buffer): Record<string, string> {
  const out: Record<string, string> = Object.create(null) as Record<string, string>;
  for (let at = 0; at < body.length; ) {
    const blank = body.indexOf(0x20, at);
    const len = blank < 0 ? NaN : Number(body.toString('latin1', at, blank));
    if (!Number.isInteger(len) || len < 5 || at + len > body.length) throw bad('a wrong pax record');
    const [key, ...value] = body.toString('utf8', blank + 1, at + len - 1).split('=');
    out[key!] = value.join('=');
    at += len;
  }
  return out;
}

const TYPE: Record<string, TarEntry['type']> = { '0': 'file', '\0': 'file', '7': 'file', '1': 'hardlink', '2': 'link', '5': 'dir' };

/** The entries of a tar stream. The body of a file must be read (or is skipped) before the next entry is asked for. */
export async function* readTar(
  source: AsyncIterable<Uint8Array>,
): AsyncGenerator<{ entry: TarEntry; body: AsyncIterable<Buffer> }> {
  const r = new Reader(source);
  let more: Record<string, string> = {};
  try {
    for (;;) {
      const b = await r.exactly(BLOCK);
      if (b.every((x) => x === 0)) {
        await r.drain();
        return;
      }
      let sum = 8 * 32;
      for (let i = 0; i < BLOCK; i++) if (i < 148 || i >= 156) sum += b[i]!;
      if (sum !== number(b, 148, 8)) throw bad('a head whose sum is wrong');
      const kind = String.fromCharCode(b[156]!);
      const size = number(b, 124, 12);
      if ('xgLK'.includes(kind)) {
        if (size > MAX_META) throw bad('a head too large');
        const body = Buffer.concat(await all(r.body(size)));
        if (kind === 'x') more = { ...more, ...pax(body) };
        else if (kind === 'L') more.path = text(body, 0, body.length);
        else if (kind === 'K') more.linkpath = text(body, 0, body.length);
        continue;
      }
      const prefix = text(b, 257, 5) === 'ustar' && b[262] === 0 ? text(b, 345, 155) : '';
      const real = more.size === undefined ? size : Number(more.size);
      if (!Number.isSafeInteger(real) || real < 0) throw bad('a size that is none');
      const mtime = more.mtime === undefined ? number(b, 136, 12) : Number(more.mtime);
      const entry: TarEntry = {
        name: more.path ?? (prefix === '' ? '' : `${prefix}/`) + text(b, 0, 100),
        type: TYPE[kind] ?? 'other',
        mode: number(b, 100, 8) & 0o777,
        size: kind === '0' || kind === '\0' || kind === '7' || !(kind in TYPE) ? real : 0,
        mtime: Number.isFinite(mtime) ? mtime : 0,
        target: more.linkpath ?? text(b, 157, 100),
      };
      more = {};
      const body = r.body(entry.size);
      yield { entry, body };
      for await (const piece of body) void piece;
    }
  } finally {
    await r.stop();
  }
}

async function all<T>(it: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const x of it) out.push(x);
  return out;
}

export interface UnpackOptions {
  /** Bytes of all files together; more is an error. Default 16 GiB. */
  maxBytes?: number;
  /** Entries; more is an error. Default 1,000,000. */
  maxEntries?: number;
}

export interface UnpackResult {
  files: number;
  bytes: number;
  /** What was not unpacked, and why. */
  skipped: { name: string; why: string }[];
}

/* The name as a relative path without `.` and `..`; undefined when it leads elsewhere. */
function safeName(name: string): string | undefined {
  if (name.includes('\0') || name.startsWith('/')) return undefined;
  const parts = name.split('/').filter((p) => p !== '' && p !== '.');
  if (parts.includes('..') || (sep !== '/' && parts.some((p) => p.includes(sep) || p.includes(':')))) return undefined;
  return parts.join(sep);
}

/* Makes the folders above, none of which may be a link. `known` spares the second look. */
async function makeParents(root: string, name: string, known: Set<string>): Promise<void> {
  if (name === '' || name === '.' || known.has(name)) return;
  await makeParents(root, dirname(name), known);
  const path = join(root, name);
  try {
    await mkdir(path);
  } catch (e) {
    if ((e as NodeJS.ErrnoException).code !== 'EEXIST') throw e;
    if (!(await lstat(path)).isDirectory()) throw bad(`"${name}" is no folder`);
  }
  known.add(name);
}

async function writeFile(path: string, e: TarEntry, body: AsyncIterable<Buffer>): Promise<void> {
  await rm(path, { force: true });
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  const f = await open(path, flags, 0o600);
  try {
    for await (const piece of body) await f.writeFile(piece);
    await f.chmod(e.mode);
    await f.utimes(e.mtime, e.mtime);
  } finally {
    await f.close();
  }
}

/** Unpacks a hostile tar stream below a local folder (made when missing). */
export async function unpackTar(
  source: AsyncIterable<Uint8Array>,
  folder: string,
  options: UnpackOptions = {},
): Promise<UnpackResult> {
  const maxBytes = options.maxBytes ?? 16 * 1024 ** 3;
  const maxEntries = options.maxEntries ?? 1_000_000;
  const result: UnpackResult = { files: 0, bytes: 0, skipped: [] };
  const known = new Set<string>();
  const links: { path: string; target: string }[] = [];
  const folders: { path: string; e: TarEntry }[] = [];
  const files = new Set<string>();
  let entries = 0;
  const skip = (name: string, why: string): void => {
    if (result.skipped.length < 1000) result.skipped.push({ name, why });
  };

  await mkdir(folder, { recursive: true });
  for await (const { entry: e, body } of readTar(source)) {
    if (++entries > maxEntries) throw bad(`more than ${maxEntries} entries`);
    const name = safeName(e.name);
    if (name === undefined) {
      skip(e.name, 'its name leads elsewhere');
      continue;
    }
    if (name === '') continue;
    if (e.type === 'other') {
      skip(e.name, 'neither file, folder nor link');
      continue;
    }
    await makeParents(folder, dirname(name), known);
    const path = join(folder, name);
    if (e.type === 'dir') {
      await makeParents(folder, name, known);
      folders.push({ path, e });
    } else if (e.type === 'link') {
      const to = posix.normalize(posix.join(posix.dirname(name.split(sep).join('/')), e.target));
      if (e.target.startsWith('/') || to === '..' || to.startsWith('../')) skip(e.name, 'a link that leads elsewhere');
      else links.push({ path, target: e.target });
    } else if (e.type === 'hardlink') {
      const to = safeName(e.target);
      if (to === undefined || !files.has(normalize(to))) {
        skip(e.name, 'a hard link to nothing that was unpacked');
        continue;
      }
      await rm(path, { force: true });
      await link(join(folder, to), path);
      files.add(normalize(name));
      result.files++;
    } else {
      result.bytes += e.size;
      if (result.bytes > maxBytes) throw bad(`more than ${maxBytes} bytes`);
      await writeFile(path, e, body);
      files.add(normalize(name));
      result.files++;
    }
  }
  // Links last: while anything is written there is none of theirs to be led by. Folders' modes after that.
  for (const l of links) {
    await rm(l.path, { force: true });
    await symlink(l.target, l.path);
    result.files++;
  }
  for (const { path, e } of folders.reverse()) {
    if (!(await lstat(path)).isDirectory()) continue;
    await chmod(path, e.mode | 0o700);
    await utimes(path, e.mtime, e.mtime);
  }
  return result;
}

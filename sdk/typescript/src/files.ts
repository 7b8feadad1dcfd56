import { createReadStream } from 'node:fs';
import { lstat } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { ClocheError, NotFoundError } from './errors.js';
import { collect, type BodySource, type Transport } from './http.js';
import { readEvents } from './sse.js';
import { packFolder, unpackTar, type UnpackOptions, type UnpackResult } from './tar.js';
import type {
  ExtractResult,
  FileEvent,
  FileOptions,
  FileStat,
  ReadOptions,
  WriteOptions,
} from './types.js';
import { fromWire, type QueryValue } from './wire.js';

const MAX_READ = 512 * 1024 * 1024;

/** The files of one sandbox. Relative paths start at its work folder. */
export class Files {
  readonly #path: string;

  constructor(
    private readonly transport: Transport,
    sandboxPath: string,
  ) {
    this.#path = `${sandboxPath}/files`;
  }

  #call(method: string, path: string, query: Record<string, QueryValue>, o: FileOptions) {
    return {
      method,
      path: this.#path,
      query: { path, user: o.user, ...query },
      signal: o.signal,
      timeout: o.requestTimeout,
    };
  }

  /** A file's bytes as a stream: nothing is kept in memory. */
  async readStream(path: string, options: ReadOptions = {}): Promise<Readable> {
    const headers: Record<string, string> = { accept: 'application/octet-stream' };
    const { offset = 0, length } = options;
    if (offset > 0 || length !== undefined)
      headers.range = `bytes=${offset}-${length === undefined ? '' : offset + length - 1}`;
    const answer = await this.transport.stream({ ...this.#call('GET', path, {}, options), headers });
    return answer.body;
  }

  /** A file's bytes, up to 512 MiB; `readStream` has no such limit. */
  async read(path: string, options: ReadOptions = {}): Promise<Buffer> {
    if (options.length === 0) return Buffer.alloc(0);
    return collect(await this.readStream(path, options), MAX_READ);
  }

  /** A file as UTF-8 text. */
  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    return (await this.read(path, options)).toString('utf8');
  }

  /** Writes a whole file at once: readers see the old or the new one, unless `append`. Streams are sent as they come. */
  async write(path: string, data: BodySource, options: WriteOptions = {}): Promise<FileStat> {
    const mode = typeof options.mode === 'number' ? options.mode.toString(8).padStart(4, '0') : options.mode;
    const streamed = typeof data !== 'string' && !(data instanceof Uint8Array);
    return fromWire(
      await this.transport.json({
        ...this.#call('PUT', path, { mode, mkdirs: options.mkdirs ?? true, append: options.append || undefined }, options),
        body: data,
        // Appending twice is not appending once; and how long a stream takes is its own affair.
        repeatable: !options.append,
        timeout: options.requestTimeout ?? (streamed ? 0 : undefined),
      }),
    );
  }

  /** About the thing itself: a link is not followed. */
  async stat(path: string, options: FileOptions = {}): Promise<FileStat> {
    return fromWire(await this.transport.json(this.#call('GET', path, { op: 'stat' }, options)));
  }

  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (e) {
      if (e instanceof NotFoundError && e.code === 'not_found') return false;
      throw e;
    }
  }

  /** What lies in a folder, at most 10,000 entries; `truncated` on the array says when there are more. */
  async list(
    path: string,
    options: FileOptions & { depth?: number } = {},
  ): Promise<FileStat[] & { truncated: boolean }> {
    const answer = await this.transport.json<{ entries: unknown[]; truncated?: boolean }>(
      this.#call('GET', path, { op: 'list', depth: options.depth }, options),
    );
    return Object.assign(fromWire<FileStat[]>(answer.entries), { truncated: answer.truncated === true });
  }

  /** With parents; a folder that is there already is fine. */
  async mkdir(path: string, options: FileOptions & { mode?: string } = {}): Promise<FileStat> {
    return fromWire(await this.transport.json(this.#call('POST', path, { op: 'mkdir', mode: options.mode }, options)));
  }

  async move(from: string, to: string, options: FileOptions = {}): Promise<FileStat> {
    return fromWire(
      await this.transport.json({ ...this.#call('POST', from, { op: 'move' }, options), json: { to } }),
    );
  }

  async remove(path: string, options: FileOptions & { recursive?: boolean } = {}): Promise<void> {
    await this.transport.json({
      ...this.#call('DELETE', path, { recursive: options.recursive || undefined }, options),
      goneIsDone: true,
    });
  }

  /** Changes below a path, as they happen. The watch stands when this resolves; leaving the loop ends it. */
  async watch(
    path: string,
    options: FileOptions & { recursive?: boolean } = {},
  ): Promise<AsyncGenerator<FileEvent, void, void>> {
    const answer = await this.transport.stream({
      ...this.#call('GET', path, { op: 'watch', recursive: options.recursive || undefined }, options),
      headers: { accept: 'text/event-stream' },
    });
    return watchEvents(answer.body);
  }

  /** A tar stream (tar or tar.zst) unpacked below `path`. */
  async extract(path: string, archive: BodySource, options: FileOptions = {}): Promise<ExtractResult> {
    return fromWire(
      await this.transport.json({
        ...this.#call('POST', path, { op: 'extract' }, options),
        headers: { 'content-type': 'application/x-tar' },
        body: archive,
        timeout: options.requestTimeout ?? 0,
      }),
    );
  }

  /** A folder (or file) as a tar stream. */
  async archive(path: string, options: FileOptions & { format?: 'tar' | 'tar.zst' } = {}): Promise<Readable> {
    const answer = await this.transport.stream({
      ...this.#call('GET', path, { op: 'archive', format: options.format }, options),
      headers: { accept: 'application/x-tar, application/zstd, */*' },
    });
    return answer.body;
  }

  /** Puts what lies below a local folder below `path`, or a local file at `path`. `filter` sees names like `a/b.txt`. */
  async upload(
    local: string,
    path: string,
    options: FileOptions & { filter?: (name: string) => boolean } = {},
  ): Promise<ExtractResult> {
    const s = await lstat(local);
    if (s.isDirectory()) return this.extract(path, packFolder(local, options.filter), options);
    if (!s.isFile()) throw new ClocheError(`${local} is neither file nor folder`, { code: 'invalid' });
    await this.write(path, createReadStream(local), { ...options, mode: s.mode & 0o777 });
    return { files: 1, bytes: s.size, skipped: [] };
  }

  /** Brings a folder's content (or a file) below a local folder. The sandbox is not trusted: see `skipped`. */
  async download(path: string, localFolder: string, options: FileOptions & UnpackOptions = {}): Promise<UnpackResult> {
    return unpackTar(await this.archive(path, options), localFolder, options);
  }
}

async function* watchEvents(body: Readable): AsyncGenerator<FileEvent, void, void> {
  try {
    for await (const e of readEvents(body as AsyncIterable<Uint8Array>)) {
      if (e.event !== 'created' && e.event !== 'modified' && e.event !== 'removed' && e.event !== 'moved') continue;
      const d = JSON.parse(e.data) as { path: string; type?: string };
      yield { type: e.event, path: d.path, kind: d.type };
    }
  } finally {
    body.destroy();
  }
}

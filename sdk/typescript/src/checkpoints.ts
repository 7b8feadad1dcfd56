import type { Readable } from 'node:stream';
import { diffSource } from './diff.js';
import { get, once, type BodySource, type Call, type Transport } from './http.js';
import { Sandbox } from './sandbox.js';
import type {
  CallOptions,
  Checkpoint,
  Diff,
  DiffOptions,
  ListCheckpointsOptions,
  RestoreManyOptions,
  RestoreOptions,
} from './types.js';
import { type QueryValue, fromWire, listOf, toWire } from './wire.js';

/** An id, a checkpoint, or the name of one of a sandbox's. */
export type CheckpointRef = string | { id: string } | { sandbox: string; name: string };

export class Checkpoints {
  constructor(private readonly transport: Transport) {}

  #call(method: string, c: CheckpointRef, sub: string, o: CallOptions, query?: Record<string, QueryValue>): Call {
    const named = typeof c === 'object' && !('id' in c);
    const id = typeof c === 'string' ? c : named ? c.name : c.id;
    const path = `/v1/checkpoints/${encodeURIComponent(id)}${sub}`;
    return { ...get(path, o, named ? { ...query, sandbox: c.sandbox } : query), method };
  }

  async get(checkpoint: CheckpointRef, options: CallOptions = {}): Promise<Checkpoint> {
    return fromWire(await this.transport.json(this.#call('GET', checkpoint, '', options)));
  }

  /** Newest first, page by page as the loop goes on. */
  async *list(options: ListCheckpointsOptions = {}): AsyncGenerator<Checkpoint, void, void> {
    const { sandbox, name, label, pageSize } = options;
    const query: Record<string, QueryValue> = { sandbox, name, label, limit: pageSize };
    for (const [k, v] of Object.entries(options.metadata ?? {})) query[`metadata.${k}`] = v;
    do {
      const page = await this.transport.json<{ checkpoints: unknown[]; next: string | null }>(
        get('/v1/checkpoints', options, query),
      );
      for (const wire of listOf(page.checkpoints, 'checkpoints')) yield fromWire<Checkpoint>(wire);
      query.cursor = page.next ?? undefined;
    } while (query.cursor !== undefined);
  }

  async update(
    checkpoint: CheckpointRef,
    change: { name?: string; label?: string; metadata?: Record<string, string> },
    options: CallOptions = {},
  ): Promise<Checkpoint> {
    const call = this.#call('PATCH', checkpoint, '', options);
    return fromWire(await this.transport.json({ ...call, json: toWire(change), repeatable: true }));
  }

  /** What was made of it stays as it is. */
  async delete(checkpoint: CheckpointRef, options: CallOptions = {}): Promise<void> {
    await this.transport.json({ ...this.#call('DELETE', checkpoint, '', options), goneIsDone: true });
  }

  /** A new sandbox of it; `sandbox.restore` is the one that goes back in place. */
  async restore(checkpoint: CheckpointRef, options: RestoreOptions = {}): Promise<Sandbox> {
    const { signal: _s, requestTimeout: _t, ...body } = options;
    return (await this.#restore(checkpoint, body, options))[0]!;
  }

  /** Many new sandboxes of it, all or none. */
  async restoreMany(checkpoint: CheckpointRef, options: RestoreManyOptions): Promise<Sandbox[]> {
    const { signal: _s, requestTimeout: _t, count = options.names?.length ?? 1, ...body } = options;
    return this.#restore(checkpoint, { count, ...body }, options);
  }

  async #restore(checkpoint: CheckpointRef, body: unknown, options: CallOptions): Promise<Sandbox[]> {
    const call = once(this.#call('POST', checkpoint, '/restore', options));
    const wire = await this.transport.json<{ sandboxes: unknown[] }>({ ...call, json: toWire(body) });
    return wire.sandboxes.map((s) => new Sandbox(this.transport, s));
  }

  /** Which files it has changed. */
  async diff(checkpoint: CheckpointRef, options: DiffOptions = {}): Promise<Diff> {
    const query = { from: diffSource(options.from), text: options.text || undefined };
    return fromWire(await this.transport.json(this.#call('GET', checkpoint, '/diff', options, query)));
  }

  /** The checkpoint as one file (tar.zst), to be carried to another machine. */
  async export(checkpoint: CheckpointRef, options: CallOptions = {}): Promise<Readable> {
    const call = this.#call('GET', checkpoint, '/export', options);
    return (await this.transport.stream({ ...call, headers: { accept: 'application/zstd, */*' } })).body;
  }

  /** What `export` gave. A file that is cut, altered or for another image is refused, and nothing of it is kept. */
  async import(
    file: BodySource,
    options: CallOptions & {
      name?: string;
      label?: string;
      isolation?: 'container' | 'vm';
      /** `keep`: the network policy that the file has; else none. */
      network?: 'none' | 'keep';
      /** `keep`: the host's folders that the file has mounted; else none. */
      mounts?: 'none' | 'keep';
      /** Refuse it unless it is signed by this daemon, or by a key that it trusts. */
      verify?: boolean;
    } = {},
  ): Promise<Checkpoint> {
    const { name, label, isolation, network, mounts, verify } = options;
    return fromWire(
      await this.transport.json({
        ...get('/v1/checkpoints/import', options, { name, label, isolation, network, mounts, verify }),
        method: 'POST',
        headers: { 'content-type': 'application/zstd' },
        body: file,
        timeout: options.requestTimeout ?? 0,
      }),
    );
  }
}

import type { Readable } from 'node:stream';
import { errorFromWire } from './errors.js';
import { get, type BodySource, type Transport } from './http.js';
import { readEvents } from './sse.js';
import { packFolder } from './tar.js';
import type {
  BuildEvent,
  BuildOptions,
  Image,
  ImageCommitOptions,
  ImageImportOptions,
  ImageLogin,
  ImageOutdated,
  ImagesUsage,
  ImagePullOptions,
} from './image_types.js';
import type { CallOptions } from './types.js';
import { fromWire, toWire } from './wire.js';

/** In paths `/` of a name is written as `+`, which no name has. */
const pathOf = (name: string, more = ''): string => `/v1/images/${encodeURIComponent(name.replaceAll('/', '+'))}${more}`;

/** What sandboxes are made of: root filesystems with a name. */
export class Images {
  constructor(private readonly transport: Transport) {}

  async list(options: CallOptions = {}): Promise<Image[]> {
    const wire = await this.transport.json<{ images: unknown[] }>(get('/v1/images', options));
    return fromWire(wire.images);
  }

  /** By its name, or the first 12 or more digits of its digest. */
  async get(name: string, options: CallOptions = {}): Promise<Image> {
    return fromWire(await this.transport.json(get(pathOf(name), options)));
  }

  /** Fetches one from its registry; resolves when it can be used. Aborting the signal cancels the pull. */
  async pull(name: string, options: ImagePullOptions = {}): Promise<Image> {
    const { signal, requestTimeout, onProgress, username, password } = options;
    const operation = await this.transport.json<{ id: string }>({
      method: 'POST',
      path: '/v1/images/pull',
      json: { name, username, password, background: true },
      timeout: requestTimeout,
    });
    const path = `/v1/operations/${operation.id}`;
    try {
      const result = await this.#follow(`${path}/events`, signal, onProgress);
      return await this.get(result.image, { requestTimeout });
    } catch (e) {
      if (signal?.aborted)
        await this.transport.json({ method: 'DELETE', path }).catch(() => undefined);
      throw e;
    }
  }

  async #follow(
    path: string,
    signal: AbortSignal | undefined,
    onProgress: ImagePullOptions['onProgress'],
  ): Promise<{ image: string }> {
    const answer = await this.transport.stream({ method: 'GET', path, headers: { accept: 'text/event-stream' }, signal });
    try {
      for await (const e of readEvents(answer.body as AsyncIterable<Uint8Array>)) {
        const data = JSON.parse(e.data) as { state?: string; error?: unknown; result?: { image: string } };
        if (e.event === 'progress') onProgress?.(fromWire(data));
        if (e.event !== 'end') continue;
        if (data.result) return data.result;
        throw errorFromWire(data.error ?? { code: 'conflict', message: 'the pull was cancelled' }, 0, {});
      }
    } finally {
      answer.body.destroy();
    }
    throw errorFromWire({ code: 'lost', message: 'the server stopped saying how far the pull is' }, 0, {});
  }

  /** An archive of `docker save`, an OCI layout as a tar, or the tar of a root filesystem. */
  async import(archive: BodySource, options: ImageImportOptions = {}): Promise<Image> {
    const { signal, requestTimeout, config, ...query } = options;
    return fromWire(
      await this.transport.json({
        method: 'POST',
        path: '/v1/images/import',
        query: { ...query, config: config && JSON.stringify(config) },
        body: archive,
        signal,
        timeout: requestTimeout ?? 0,
      }),
    );
  }

  /** Builds one from a Dockerfile, with a folder of this machine (or a tar) as its context. */
  async build(dockerfile: string, options: BuildOptions = {}): Promise<Image> {
    const { signal, requestTimeout, context, onEvent, secrets, args, labels, ...rest } = options;
    const coded = secrets && Object.fromEntries(Object.entries(secrets).map(([k, v]) => [k, Buffer.from(v).toString('base64')]));
    const head = { ...(toWire(rest) as object), dockerfile, args, labels, secrets: coded, context: context !== undefined };
    const answer = await this.transport.stream({
      method: 'POST',
      path: '/v1/images/build',
      body: body(JSON.stringify(head), context),
      signal,
      timeout: requestTimeout ?? 0,
    });
    try {
      for await (const line of lines(answer.body as AsyncIterable<Uint8Array>)) {
        const event = JSON.parse(line) as { type: string; image?: unknown; error?: unknown };
        if (event.type === 'done') return fromWire(event.image);
        if (event.type === 'error') throw errorFromWire(event.error, 0, {});
        onEvent?.(fromWire<BuildEvent>(event));
      }
    } finally {
      answer.body.destroy();
    }
    throw errorFromWire({ code: 'lost', message: 'the server stopped saying how far the build is' }, 0, {});
  }

  /** An OCI layout as a tar, which `docker load` and podman take as well. */
  async export(image: string, options: CallOptions = {}): Promise<Readable> {
    const call = { ...get(pathOf(image, '/export'), options), headers: { accept: 'application/x-tar, */*' } };
    return (await this.transport.stream({ ...call, timeout: options.requestTimeout ?? 0 })).body;
  }

  /** An image of the files of a sandbox, or of a checkpoint, that was made from a stored image. */
  async commit(source: { sandbox: string } | { checkpoint: string }, name: string, options: ImageCommitOptions = {}): Promise<Image> {
    const { comment, signal, requestTimeout } = options;
    const of = 'sandbox' in source ? `sandboxes/${encodeURIComponent(source.sandbox)}` : `checkpoints/${encodeURIComponent(source.checkpoint)}`;
    const path = `/v1/${of}/commit`;
    return fromWire(await this.transport.json({ method: 'POST', path, json: { name, comment }, signal, timeout: requestTimeout ?? 0 }));
  }

  /** Another name of the same. */
  async tag(image: string, name: string, options: CallOptions = {}): Promise<Image> {
    return fromWire(
      await this.transport.json({ ...get(pathOf(image, '/tag'), options), method: 'POST', json: { name }, repeatable: true }),
    );
  }

  /** Whether other tenants may use it. For administrators. */
  async setPublic(image: string, isPublic: boolean, options: CallOptions = {}): Promise<Image> {
    return fromWire(
      await this.transport.json({ ...get(pathOf(image), options), method: 'PATCH', json: { public: isPublic }, repeatable: true }),
    );
  }

  /** Asks the registry whether the tag has moved. */
  async outdated(image: string, options: CallOptions & ImageLogin = {}): Promise<ImageOutdated> {
    const { username, password, ...rest } = options;
    const call = get(pathOf(image, '/outdated'), rest);
    if (username === undefined && password === undefined) return fromWire(await this.transport.json(call));
    return fromWire(await this.transport.json({ ...call, method: 'POST', json: { username, password }, repeatable: true }));
  }

  /** Sandboxes and checkpoints that were made from it stay. */
  async delete(image: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json({ ...get(pathOf(image), options), method: 'DELETE', goneIsDone: true });
  }

  /** How many bytes count for the tenant's quota. */
  async usage(options: CallOptions = {}): Promise<ImagesUsage> {
    return fromWire(await this.transport.json(get('/v1/images/usage', options)));
  }

  /** Forgets the steps of this tenant's builds: the next ones are done anew. */
  async forgetBuilds(options: CallOptions = {}): Promise<Record<string, number>> {
    return fromWire(await this.transport.json({ ...get('/v1/images/build/cache', options), method: 'DELETE', repeatable: true }));
  }

  /** Removes layers that nothing needs. For administrators. */
  async prune(options: CallOptions = {}): Promise<Record<string, number>> {
    return fromWire(await this.transport.json({ ...get('/v1/images/prune', options), method: 'POST', repeatable: true }));
  }
}

async function* body(head: string, context: BuildOptions['context']): AsyncGenerator<Uint8Array | string> {
  yield `${head}\n`;
  if (typeof context === 'string') yield* packFolder(context);
  else if (context !== undefined) {
    if (typeof context.tar === 'string' || context.tar instanceof Uint8Array) yield context.tar;
    else yield* context.tar;
  }
}

async function* lines(source: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8');
  let rest = '';
  for await (const piece of source) {
    const all = (rest + decoder.decode(piece, { stream: true })).split('\n');
    rest = all.pop()!;
    yield* all.filter((x) => x !== '');
  }
  if (rest !== '') yield rest;
}

import { randomUUID } from 'node:crypto';
import { Checkpoints } from './checkpoints.js';
import { runOnce, type RunOptions, type RunResult } from './contexts.js';
import { collect, get, Transport } from './http.js';
import { followEvents, Sandbox } from './sandbox.js';
import { Images } from './images.js';
import { Secrets } from './secrets.js';
import { Pools, Templates } from './templates.js';
import type {
  AuditRecord,
  CallOptions,
  CreateOptions,
  ListOptions,
  Rate,
  SandboxEvent,
  ServerInfo,
  Tenant,
  Token,
  Whoami,
} from './types.js';
import { type QueryValue, fromWire, listOf, toWire } from './wire.js';

export interface ClocheOptions {
  /** Default: `CLOCHE_URL`, else `http://127.0.0.1:7070`. `unix:/path` is a unix socket. */
  url?: string;
  /** Default: `CLOCHE_TOKEN`. On the unix socket root and the daemon's own user need none. */
  token?: string;
  /** A unix socket, in place of host and port. */
  socketPath?: string;
  /** Milliseconds this side waits for an answer; 0 = for ever. Execs and streamed bodies have no such limit. Default 60,000. */
  timeout?: number;
  /** How often a call is repeated that was refused for now (429, 503) or whose connection broke. Default 3. */
  retries?: number;
  /** Milliseconds before the first repetition; doubles each time. `Retry-After` counts for more. Default 250. */
  retryDelay?: number;
  /** Does the calls in place of node:http. WebSockets are then not used: output comes as Server-Sent Events. */
  fetch?: typeof fetch;
}

/** A connection to a Cloche server. */
export class Cloche {
  readonly sandboxes: Sandboxes;
  readonly checkpoints: Checkpoints;
  readonly images: Images;
  readonly templates: Templates;
  readonly pools: Pools;
  readonly secrets: Secrets;
  readonly tokens: Tokens;
  readonly tenants: Tenants;
  readonly audit: Audit;
  /** @internal */
  readonly transport: Transport;

  constructor(options: ClocheOptions = {}) {
    let url = options.url ?? process.env.CLOCHE_URL ?? 'http://127.0.0.1:7070';
    let socketPath = options.socketPath;
    if (url.startsWith('unix:')) {
      socketPath ??= url.slice(5).replace(/^\/\/(?=\/)/, '');
      url = 'http://localhost';
    }
    const token = options.token ?? process.env.CLOCHE_TOKEN;
    if (token !== undefined && !/^[\x21-\x7e]*$/.test(token))
      throw new TypeError('cloche: the token has characters that no token has (a line break at its end?)');
    this.transport = new Transport({
      url,
      token,
      socketPath,
      timeout: options.timeout ?? 60_000,
      retries: options.retries ?? 3,
      retryDelay: options.retryDelay ?? 250,
      fetch: options.fetch,
    });
    this.sandboxes = new Sandboxes(this.transport);
    this.checkpoints = new Checkpoints(this.transport);
    this.images = new Images(this.transport);
    this.templates = new Templates(this.transport);
    this.pools = new Pools(this.transport);
    this.secrets = new Secrets(this.transport);
    this.tokens = new Tokens(this.transport);
    this.tenants = new Tenants(this.transport);
    this.audit = new Audit(this.transport);
  }

  /**
   * Runs code in a sandbox of its own, which ends with it. With `artifacts` it also gives the files that the code has made. Code that
   * fails is no exception: see `error` and `verdict`. Aborting the signal ends the sandbox.
   */
  run(code: string, options: RunOptions = {}): Promise<RunResult> {
    return runOnce(this.transport, code, options);
  }

  /** What this server is and can do. */
  async info(options: CallOptions = {}): Promise<ServerInfo> {
    return fromWire(await this.transport.json(get('/v1/info', options)));
  }

  async whoami(options: CallOptions = {}): Promise<Whoami> {
    return fromWire(await this.transport.json(get('/v1/whoami', options)));
  }

  async health(options: CallOptions = {}): Promise<{ status: string }> {
    return this.transport.json(get('/healthz', options));
  }

  async version(options: CallOptions = {}): Promise<{ version: string; apiVersion: number }> {
    return fromWire(await this.transport.json(get('/version', options)));
  }

  /** Prometheus text. */
  async metrics(options: CallOptions = {}): Promise<string> {
    const answer = await this.transport.stream({ ...get('/metrics', options), headers: { accept: 'text/plain' } });
    return (await collect(answer.body, 64 * 1024 * 1024)).toString('utf8');
  }

  /** What happens to the tenant's sandboxes, as it happens. */
  events(options: CallOptions & { lastEventId?: string } = {}): AsyncGenerator<SandboxEvent, void, void> {
    return followEvents(this.transport, '/v1/events', options);
  }

  /** Lets idle connections go. A client that is used again makes new ones. */
  close(): void {
    this.transport.close();
  }
}

export class Sandboxes {
  constructor(private readonly transport: Transport) {}

  /** Makes one (or with `key`, finds it). Safe to repeat: the call carries an Idempotency-Key. */
  async create(options: CreateOptions = {}): Promise<Sandbox> {
    const { signal, requestTimeout, idempotencyKey, ...body } = options;
    const wire = await this.transport.json({
      method: 'POST',
      path: '/v1/sandboxes',
      headers: { 'idempotency-key': idempotencyKey ?? randomUUID() },
      json: toWire(body),
      repeatable: true,
      signal,
      timeout: requestTimeout,
    });
    return new Sandbox(this.transport, wire);
  }

  /** By id or name. */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    const wire = await this.transport.json(get(`/v1/sandboxes/${encodeURIComponent(id)}`, options));
    return new Sandbox(this.transport, wire);
  }

  /** Newest first, page by page as the loop goes on. */
  async *list(options: ListOptions = {}): AsyncGenerator<Sandbox, void, void> {
    const query: Record<string, QueryValue> = {
      state: options.state,
      name: options.name,
      tenant: options.tenant,
      limit: options.pageSize,
    };
    for (const [k, v] of Object.entries(options.metadata ?? {})) query[`metadata.${k}`] = v;
    do {
      const page = await this.transport.json<{ sandboxes: unknown[]; next: string | null }>(
        get('/v1/sandboxes', options, query),
      );
      for (const wire of listOf(page.sandboxes, 'sandboxes')) yield new Sandbox(this.transport, wire);
      query.cursor = page.next ?? undefined;
    } while (query.cursor !== undefined);
  }

  /** By id or name, without asking for it first. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json({
      ...get(`/v1/sandboxes/${encodeURIComponent(id)}`, options),
      method: 'DELETE',
      goneIsDone: true,
    });
  }
}

export interface CreateTokenOptions extends CallOptions {
  tenant?: string;
  name?: string;
  scope?: 'read' | 'exec' | 'sandbox' | 'admin';
  /** Seconds, or a text like `"30d"`. */
  expiresIn?: number | string;
  rate?: Rate;
}

export class Tokens {
  constructor(private readonly transport: Transport) {}

  async list(options: CallOptions = {}): Promise<Token[]> {
    const wire = await this.transport.json<{ tokens: unknown[] }>(get('/v1/tokens', options));
    return fromWire(wire.tokens);
  }

  /** The only time the token itself is shown. */
  async create(options: CreateTokenOptions = {}): Promise<Token & { token: string }> {
    const { signal, requestTimeout, ...body } = options;
    return fromWire(
      await this.transport.json({
        method: 'POST',
        path: '/v1/tokens',
        json: toWire({ scope: 'sandbox', ...body }),
        signal,
        timeout: requestTimeout,
      }),
    );
  }

  /** A new secret; the old one goes on for `grace` seconds. */
  async rotate(id: string, options: CallOptions & { grace?: number } = {}): Promise<Token & { token: string }> {
    const path = `/v1/tokens/${encodeURIComponent(id)}/rotate`;
    const json = toWire({ grace: options.grace });
    return fromWire(await this.transport.json({ ...get(path, options), method: 'POST', json }));
  }

  async revoke(id: string, options: CallOptions = {}): Promise<void> {
    const path = `/v1/tokens/${encodeURIComponent(id)}`;
    await this.transport.json({ ...get(path, options), method: 'DELETE', goneIsDone: true });
  }
}

export class Tenants {
  constructor(private readonly transport: Transport) {}

  async list(options: CallOptions = {}): Promise<Tenant[]> {
    const wire = await this.transport.json<{ tenants: unknown[] }>(get('/v1/tenants', options));
    return fromWire(wire.tenants);
  }

  async get(id: string, options: CallOptions = {}): Promise<Tenant> {
    return fromWire(await this.transport.json(get(`/v1/tenants/${encodeURIComponent(id)}`, options)));
  }

  async create(tenant: Pick<Tenant, 'id'> & Partial<Tenant>, options: CallOptions = {}): Promise<Tenant> {
    return fromWire(
      await this.transport.json({ ...get('/v1/tenants', options), method: 'POST', json: toWire(tenant) }),
    );
  }

  async update(id: string, change: Partial<Omit<Tenant, 'id'>>, options: CallOptions = {}): Promise<Tenant> {
    const path = `/v1/tenants/${encodeURIComponent(id)}`;
    return fromWire(
      await this.transport.json({ ...get(path, options), method: 'PATCH', json: toWire(change), repeatable: true }),
    );
  }

  async delete(id: string, options: CallOptions = {}): Promise<void> {
    const path = `/v1/tenants/${encodeURIComponent(id)}`;
    await this.transport.json({ ...get(path, options), method: 'DELETE', goneIsDone: true });
  }
}

export class Audit {
  constructor(private readonly transport: Transport) {}

  /** Records in order, page by page. */
  async *list(
    options: CallOptions & { after?: number; sandbox?: string; kind?: string; pageSize?: number } = {},
  ): AsyncGenerator<AuditRecord, void, void> {
    let after: number | null | undefined = options.after;
    for (;;) {
      const { sandbox, kind, pageSize } = options;
      const page: { records: unknown[]; next?: number | null } = await this.transport.json(
        get('/v1/audit', options, { after: after ?? undefined, sandbox, kind, limit: pageSize }),
      );
      for (const r of listOf(page.records, 'records')) yield fromWire<AuditRecord>(r);
      if (page.next === undefined || page.next === null || page.next === after) return;
      after = page.next;
    }
  }

  async verify(options: CallOptions = {}): Promise<{ ok: boolean; records: number; [more: string]: unknown }> {
    return fromWire(await this.transport.json(get('/v1/audit/verify', options)));
  }
}

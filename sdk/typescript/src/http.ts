/*
 * One call over HTTP: where it goes, how long it may take, when it is repeated, which error it becomes.
 *
 * Repeating. An answer 503, or 429 that says when to come back, means nothing was done, so any call is repeated. A broken
 * connection says nothing, so only calls that may happen twice are: GET, HEAD, PUT, DELETE, and what carries an
 * Idempotency-Key. A connection that was never made was never a call: always repeated. A body that is a stream can be
 * sent once only.
 */
import { randomUUID } from 'node:crypto';
import * as http from 'node:http';
import * as https from 'node:https';
import { Readable } from 'node:stream';
import {
  abortReason,
  ClocheError,
  ConnectionError,
  errorFromWire,
  ProtocolError,
  TimeoutError,
} from './errors.js';
import { fromWire, parseObject, queryString, type QueryValue } from './wire.js';
import { handshake, Socket } from './ws.js';

/** Anything that can be sent as a body. */
export type BodySource = string | Uint8Array | AsyncIterable<Uint8Array | string>;

export interface TransportOptions {
  url: string;
  token?: string;
  socketPath?: string;
  /** Milliseconds for a call; 0 = no limit. */
  timeout: number;
  retries: number;
  /** Milliseconds before the first repetition; doubles each time. */
  retryDelay: number;
  fetch?: typeof fetch;
}

export interface Call {
  method: string;
  path: string;
  query?: Record<string, QueryValue>;
  headers?: Record<string, string>;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as it is. */
  body?: BodySource;
  signal?: AbortSignal;
  /** Overrides the client's; 0 = no limit. */
  timeout?: number;
  /** May be repeated although it is a POST or PATCH: carries an Idempotency-Key, or says the same each time. */
  repeatable?: boolean;
  /** 404 is fine when an earlier try of the same call may have done it. */
  goneIsDone?: boolean;
}

export interface Answer {
  status: number;
  headers: Record<string, string>;
  body: Readable;
}

/** A GET as everybody makes it. */
export function get(path: string, o: { signal?: AbortSignal; requestTimeout?: number }, query?: Record<string, QueryValue>): Call {
  return { method: 'GET', path, query, signal: o.signal, timeout: o.requestTimeout };
}

/** A call that makes something, safe to be repeated: the server answers a key it knows with what it made. */
export function once<T extends Call>(call: T, key: string = randomUUID()): T {
  return { ...call, headers: { ...call.headers, 'idempotency-key': key }, repeatable: true };
}

const MAX_JSON = 256 * 1024 * 1024;
const MAX_ERROR = 8 * 1024 * 1024;
/* A server that asks for more patience than this gets none: the caller decides. */
const MAX_RETRY_AFTER = 60_000;
const IDLE_SOCKET = 10_000;
const NEVER_SENT = new Set(['ECONNREFUSED', 'ENOENT', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH']);

export class Transport {
  readonly base: URL;
  readonly #agent: http.Agent;

  constructor(readonly options: TransportOptions) {
    // "localhost:7070" is a URL, too: of scheme "localhost:".
    if (!/^[a-z]+:\/\//i.test(options.url))
      throw new TypeError(`cloche: '${options.url}' is not the URL of a server; write http://HOST:PORT, https://HOST:PORT or unix:/PATH`);
    this.base = new URL(options.url);
    if (this.base.protocol !== 'http:' && this.base.protocol !== 'https:')
      throw new TypeError(`cloche: the url must be http: or https:, not ${this.base.protocol}`);
    const agent = { keepAlive: true, timeout: IDLE_SOCKET };
    this.#agent = this.base.protocol === 'https:' ? new https.Agent(agent) : new http.Agent(agent);
  }

  /** Lets idle connections go. */
  close(): void {
    this.#agent.destroy();
  }

  /** Whether WebSockets are possible: not when somebody else's `fetch` does the calls. */
  get canUpgrade(): boolean {
    return this.options.fetch === undefined;
  }

  /** The whole answer as JSON; undefined for 204. */
  async json<T>(call: Call): Promise<T> {
    return this.#try(call, async (answer, guard) => {
      const text = (await collect(answer.body, MAX_JSON, guard)).toString('utf8');
      if (answer.status === 204 || text === '') return undefined as T;
      return parseObject<T>(text, 'the answer', answer.status);
    });
  }

  /** An answer whose body is the caller's to read; the timeout ends with its head. */
  async stream(call: Call): Promise<Answer> {
    return this.#try(call, (answer) => Promise.resolve(answer));
  }

  async #try<T>(call: Call, take: (answer: Answer, guard: Guard) => Promise<T>): Promise<T> {
    const oneShot = call.body !== undefined && typeof call.body !== 'string' && !(call.body instanceof Uint8Array);
    const repeatable = call.repeatable ?? ['GET', 'HEAD', 'PUT', 'DELETE'].includes(call.method);
    let unsure = false;
    for (let attempt = 0; ; attempt++) {
      const guard = new Guard(call.signal, call.timeout ?? this.options.timeout);
      try {
        const answer = await this.#once(call, guard);
        if (answer.status >= 400) throw await this.#error(answer, guard);
        return await take(answer, guard);
      } catch (e) {
        const error = guard.explain(e);
        if (call.goneIsDone && unsure && error instanceof ClocheError && error.status === 404) return undefined as T;
        const delay = oneShot ? undefined : this.#retryDelay(error, attempt, repeatable);
        if (delay === undefined) throw error;
        unsure ||= error instanceof ConnectionError;
        await sleep(delay, call.signal);
      } finally {
        guard.done();
      }
    }
  }

  /* Milliseconds until the next try, undefined when there is none. */
  #retryDelay(error: unknown, attempt: number, repeatable: boolean): number | undefined {
    if (attempt >= this.options.retries || !(error instanceof ClocheError)) return undefined;
    const backoff = this.options.retryDelay * 2 ** attempt * (0.5 + Math.random() / 2);
    if (error.status === 429 && error.retryAfter === undefined) return undefined; // a quota does not free itself
    if (error.status === 429 || error.status === 503) {
      if ((error.retryAfter ?? 0) > MAX_RETRY_AFTER) return undefined;
      return Math.max(error.retryAfter ?? 0, backoff);
    }
    if (!(error instanceof ConnectionError)) return undefined;
    const code = (error.cause as NodeJS.ErrnoException | undefined)?.code;
    return repeatable || (code !== undefined && NEVER_SENT.has(code)) ? backoff : undefined;
  }

  async #error(answer: Answer, guard: Guard): Promise<ClocheError> {
    let wire: unknown;
    let details: Record<string, unknown> | undefined;
    try {
      const text = (await collect(answer.body, MAX_ERROR, guard)).toString('utf8');
      const { error, ...rest } = JSON.parse(text) as { error?: unknown };
      wire = error;
      details = fromWire(rest);
      if (typeof wire === 'string') wire = { message: wire };
    } catch (e) {
      if (guard.fired) throw e;
    }
    return errorFromWire(wire, answer.status, {
      requestId: answer.headers['x-request-id'] ?? null,
      retryAfter: retryAfter(answer.headers['retry-after']),
      details,
    });
  }

  #headers(call: Call): Record<string, string> {
    const h: Record<string, string> = { accept: 'application/json', 'x-request-id': randomUUID(), ...call.headers };
    if (this.options.token) h.authorization = `Bearer ${this.options.token}`;
    if (call.json !== undefined) h['content-type'] = 'application/json';
    else if (call.body !== undefined) h['content-type'] ??= 'application/octet-stream';
    return h;
  }

  #target(call: Call): string {
    return this.base.pathname.replace(/\/$/, '') + call.path + queryString(call.query);
  }

  #request(call: Call, headers: Record<string, string>): http.ClientRequest {
    const options: https.RequestOptions = { method: call.method, path: this.#target(call), headers };
    if (this.options.socketPath) {
      options.socketPath = this.options.socketPath;
      headers.host = 'localhost';
    } else {
      options.hostname = this.base.hostname.replace(/^\[|\]$/g, '');
      if (this.base.port) options.port = this.base.port;
    }
    if (call.headers?.upgrade) options.agent = false;
    else options.agent = this.#agent;
    return this.base.protocol === 'https:' ? https.request(options) : http.request(options);
  }

  #once(call: Call, guard: Guard): Promise<Answer> {
    const headers = this.#headers(call);
    const body = call.json !== undefined ? JSON.stringify(call.json) : call.body;
    if (this.options.fetch) return this.#fetched(call, headers, body, guard);
    return new Promise((resolve, reject) => {
      guard.check();
      let answered = false;
      if (typeof body === 'string' || body instanceof Uint8Array)
        headers['content-length'] = String(Buffer.byteLength(body));
      else if (body === undefined && call.method !== 'GET' && call.method !== 'HEAD') headers['content-length'] = '0';
      const req = this.#request(call, headers);
      const stop = guard.onFire((why) => req.destroy(why));
      req.on('error', (e) => {
        stop();
        if (!answered) reject(guard.fired ? guard.why : broken(e));
      });
      req.on('response', (res) => {
        answered = true;
        // The caller's signal goes on to rule the body: an endless stream ends with it.
        const off = onAbort(call.signal, (why) => res.destroy(why));
        res.on('close', () => {
          off();
          stop();
          if (!req.writableFinished) req.destroy();
        });
        resolve({ status: res.statusCode ?? 0, headers: flat(res.headers), body: res });
      });
      if (body === undefined || typeof body === 'string' || body instanceof Uint8Array) req.end(body);
      else void pump(body, req, () => answered, reject);
    });
  }

  async #fetched(
    call: Call,
    headers: Record<string, string>,
    body: BodySource | undefined,
    guard: Guard,
  ): Promise<Answer> {
    guard.check();
    const stop = new AbortController();
    guard.onFire((why) => stop.abort(why));
    const init: RequestInit & { duplex?: string } = { method: call.method, headers, signal: stop.signal };
    if (typeof body === 'string' || body instanceof Uint8Array) init.body = body as never;
    else if (body !== undefined) {
      init.body = Readable.toWeb(Readable.from(body)) as never;
      init.duplex = 'half';
    }
    let res: Response;
    try {
      res = await this.options.fetch!(new URL(this.#target(call), this.base), init);
    } catch (e) {
      throw guard.fired ? guard.why : broken((e as { cause?: Error }).cause ?? (e as Error));
    }
    const found: Record<string, string> = {};
    res.headers.forEach((v, k) => (found[k] = v));
    return {
      status: res.status,
      headers: found,
      body: res.body ? Readable.fromWeb(res.body as never) : Readable.from([]),
    };
  }

  /** Opens a WebSocket; an answer that is none becomes its error. Tried again as any GET. */
  async upgrade(call: Omit<Call, 'method' | 'json' | 'body'>): Promise<Socket> {
    for (let attempt = 0; ; attempt++) {
      const guard = new Guard(call.signal, call.timeout ?? this.options.timeout);
      try {
        return await this.#upgradeOnce(call, guard);
      } catch (e) {
        const error = guard.explain(e);
        const delay = this.#retryDelay(error, attempt, true);
        if (delay === undefined) throw error;
        await sleep(delay, call.signal);
      } finally {
        guard.done();
      }
    }
  }

  #upgradeOnce(call: Omit<Call, 'method' | 'json' | 'body'>, guard: Guard): Promise<Socket> {
    return new Promise((resolve, reject) => {
      guard.check();
      const shake = handshake();
      const full = { ...call, method: 'GET', headers: { ...call.headers, ...shake.headers } };
      const req = this.#request(full, this.#headers(full));
      const stop = guard.onFire((why) => req.destroy(why));
      req.on('error', (e) => reject(guard.fired ? guard.why : broken(e)));
      req.on('upgrade', (res, stream, head) => {
        stop();
        if (!shake.accepts(res)) {
          stream.destroy();
          reject(new ProtocolError('the server answered the WebSocket handshake wrongly', { code: 'protocol' }));
          return;
        }
        resolve(new Socket(stream, head));
      });
      req.on('response', (res) => {
        this.#error({ status: res.statusCode ?? 0, headers: flat(res.headers), body: res }, guard).then(reject, reject);
      });
      req.end();
    });
  }
}

/* Sends a stream with backpressure. When the answer comes first, the rest is not worth sending. */
async function pump(
  body: AsyncIterable<Uint8Array | string>,
  req: http.ClientRequest,
  answered: () => boolean,
  reject: (e: unknown) => void,
): Promise<void> {
  try {
    for await (const piece of body) {
      if (answered() || req.destroyed) return;
      if (!req.write(piece))
        await new Promise<void>((resolve) => {
          const go = (): void => {
            req.off('drain', go).off('close', go).off('response', go);
            resolve();
          };
          req.on('drain', go).on('close', go).on('response', go);
        });
    }
    req.end();
  } catch (e) {
    // The source failed, not the connection: its own error is the one to see.
    reject(e);
    req.destroy();
  }
}

/** The signal and the clock of one try. */
export class Guard {
  #fired = false;
  #why: unknown;
  #timer: NodeJS.Timeout | undefined;
  #off: () => void;
  #hooks = new Set<(why: Error) => void>();

  constructor(signal: AbortSignal | undefined, ms: number) {
    this.#off = onAbort(signal, (why) => this.#fire(why));
    if (ms > 0)
      this.#timer = setTimeout(
        () => this.#fire(new TimeoutError(`no answer within ${ms} ms`, { code: 'timeout' })),
        ms,
      );
  }

  get fired(): boolean {
    return this.#fired;
  }

  get why(): unknown {
    return this.#why;
  }

  check(): void {
    if (this.#fired) throw this.#why;
  }

  /** Calls back when the time is up or the caller gives up; returns how to take it back. */
  onFire(hook: (why: Error) => void): () => void {
    this.#hooks.add(hook);
    return () => this.#hooks.delete(hook);
  }

  explain(e: unknown): unknown {
    return this.#fired ? this.#why : e;
  }

  done(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#off();
    this.#hooks.clear();
  }

  #fire(why: unknown): void {
    if (this.#fired) return;
    this.#fired = true;
    this.#why = why;
    for (const h of this.#hooks) h(why as Error);
  }
}

function onAbort(signal: AbortSignal | undefined, hook: (why: Error) => void): () => void {
  if (!signal) return () => undefined;
  const fire = (): void => hook(abortReason(signal) as Error);
  if (signal.aborted) {
    fire();
    return () => undefined;
  }
  signal.addEventListener('abort', fire, { once: true });
  return () => signal.removeEventListener('abort', fire);
}

/** Waits; an abort ends it early with the signal's reason. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(abortReason(signal));
    const off = onAbort(signal, (why) => {
      clearTimeout(timer);
      reject(why);
    });
    const timer = setTimeout(() => {
      off();
      resolve();
    }, ms);
  });
}

function broken(cause: Error): ConnectionError {
  const code = (cause as NodeJS.ErrnoException).code;
  return new ConnectionError(`no connection to the server: ${cause.message || code || 'unknown'}`, {
    code: 'connection',
    cause,
    remedy:
      code === 'ECONNREFUSED' || code === 'ENOENT'
        ? 'is `cloche serve` running, and is the url right?'
        : code === 'EPROTO'
          ? 'a server without TLS is reached by http://'
          : null,
  });
}

/** A body as one buffer, up to a limit. */
export async function collect(body: Readable, limit: number, guard?: Guard): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  const stop = guard?.onFire((why) => body.destroy(why));
  try {
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      size += piece.length;
      if (size > limit) {
        body.destroy();
        throw new ProtocolError(`an answer of more than ${limit} bytes`, { code: 'protocol' });
      }
      parts.push(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength));
    }
  } catch (e) {
    if (e instanceof ClocheError || guard?.fired) throw e;
    throw e instanceof Error && 'code' in e ? broken(e) : e;
  } finally {
    stop?.();
  }
  return Buffer.concat(parts, size);
}

function flat(headers: http.IncomingHttpHeaders): Record<string, string> {
  const out: Record<string, string> = {};
  for (const [k, v] of Object.entries(headers)) if (v !== undefined) out[k] = Array.isArray(v) ? v.join(', ') : v;
  return out;
}

/* Seconds or a date; as milliseconds from now. */
export function retryAfter(value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  if (/^\d+(\.\d+)?$/.test(value)) return Number(value) * 1000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}

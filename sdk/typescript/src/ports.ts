import { UnsupportedError } from './errors.js';
import { get, type Transport } from './http.js';
import type { CallOptions, Port, PortOptions } from './types.js';
import { fromWire, toWire } from './wire.js';

/** Servers that listen inside a sandbox, reached through the daemon. */
export class Ports {
  constructor(
    private readonly transport: Transport,
    private readonly path: string,
  ) {}

  #call(port: number, options: CallOptions) {
    return get(`${this.path}/ports/${port}`, options);
  }

  /** Those that are public or have a token of their own. */
  async list(options: CallOptions = {}): Promise<Port[]> {
    const wire = await this.transport.json<{ ports: unknown[] }>(get(`${this.path}/ports`, options));
    return fromWire(wire.ports);
  }

  async get(port: number, options: CallOptions = {}): Promise<Port> {
    return fromWire(await this.transport.json(this.#call(port, options)));
  }

  /** Says who may use it. With `token: true` the answer has a new one, this once. Not repeated then: it would be another. */
  async set(port: number, options: PortOptions): Promise<Port> {
    const { signal, requestTimeout, ...body } = options;
    const call = this.#call(port, { signal, requestTimeout });
    return fromWire(
      await this.transport.json({ ...call, method: 'PUT', json: toWire(body), repeatable: body.token !== true }),
    );
  }

  /** Private again: only tokens of the API lead to it. */
  async remove(port: number, options: CallOptions = {}): Promise<void> {
    await this.transport.json({ ...this.#call(port, options), method: 'DELETE', goneIsDone: true });
  }

  /** Where it is, for whoever has a token (or anybody, if it is public). */
  url(port: number, path = '/'): string {
    const { base, options } = this.transport;
    if (options.socketPath !== undefined)
      throw new UnsupportedError('a daemon behind a unix socket has no address for others', {
        code: 'unsupported',
        status: 501,
        remedy: 'use its TCP address, or `cloche port-forward`',
      });
    const before = base.pathname.replace(/\/$/, '');
    return `${base.origin}${before}${this.path}/ports/${port}${path.startsWith('/') ? '' : '/'}${path}`;
  }

  /**
   * Like `fetch`, to a server inside; our token is sent along. An `authorization` of the server's own takes its place: then
   * the port must be public, or its token be in `x-cloche-port-token`.
   */
  fetch(port: number, path = '/', init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    const { token, fetch: own } = this.transport.options;
    if (token !== undefined && !headers.has('authorization')) headers.set('authorization', `Bearer ${token}`);
    return (own ?? fetch)(this.url(port, path), { ...init, headers });
  }
}

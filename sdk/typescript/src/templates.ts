import { get, type Transport } from './http.js';
import type { CallOptions, Pool, PoolOptions, Template, TemplateOptions } from './types.js';
import { fromWire, toWire } from './wire.js';

/** Names for what a create asks, and for what is made ready ahead. */
export class Templates {
  constructor(private readonly transport: Transport) {}

  /** Makes one or puts it in the place of an older one. With `warm` it resolves when that is ready. */
  async set(name: string, options: TemplateOptions = {}): Promise<Template> {
    const { signal, requestTimeout, ...body } = options;
    return fromWire(
      await this.transport.json({
        ...get(`/v1/templates/${encodeURIComponent(name)}`, { signal, requestTimeout }),
        method: 'PUT',
        json: toWire(body),
        // How long warming up takes is its own affair.
        timeout: requestTimeout ?? 0,
      }),
    );
  }

  async get(name: string, options: CallOptions = {}): Promise<Template> {
    return fromWire(await this.transport.json(get(`/v1/templates/${encodeURIComponent(name)}`, options)));
  }

  async list(options: CallOptions = {}): Promise<Template[]> {
    const wire = await this.transport.json<{ templates: unknown[] }>(get('/v1/templates', options));
    return fromWire(wire.templates);
  }

  /** Sandboxes that were made of it stay. */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    const path = `/v1/templates/${encodeURIComponent(name)}`;
    await this.transport.json({ ...get(path, options), method: 'DELETE', goneIsDone: true });
  }
}

/** Sandboxes of a template that are kept ready. */
export class Pools {
  constructor(private readonly transport: Transport) {}

  async set(name: string, options: PoolOptions): Promise<Pool> {
    const { template, min, max } = options;
    const path = `/v1/pools/${encodeURIComponent(name)}`;
    return fromWire(
      await this.transport.json({ ...get(path, options), method: 'PUT', json: toWire({ template, min, max }) }),
    );
  }

  async get(name: string, options: CallOptions = {}): Promise<Pool> {
    return fromWire(await this.transport.json(get(`/v1/pools/${encodeURIComponent(name)}`, options)));
  }

  async list(options: CallOptions = {}): Promise<Pool[]> {
    const wire = await this.transport.json<{ pools: unknown[] }>(get('/v1/pools', options));
    return fromWire(wire.pools);
  }

  /** And what it keeps ready. Sandboxes that were given out stay. */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    const path = `/v1/pools/${encodeURIComponent(name)}`;
    await this.transport.json({ ...get(path, options), method: 'DELETE', goneIsDone: true });
  }
}

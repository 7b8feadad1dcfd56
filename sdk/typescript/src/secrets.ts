import { get, type Transport } from './http.js';
import type { CallOptions, Secret, SetSecretOptions } from './types.js';
import { fromWire } from './wire.js';

/** Values that sandboxes get, and nobody else: no call returns one. */
export class Secrets {
  constructor(private readonly transport: Transport) {}

  /** Sets one; one that is there is rotated, and running sandboxes get the new value. */
  async set(name: string, value: string | Uint8Array, options: SetSecretOptions = {}): Promise<Secret> {
    const { description } = options;
    const json =
      typeof value === 'string'
        ? { value, description }
        : { value_base64: Buffer.from(value).toString('base64'), description };
    const path = `/v1/secrets/${encodeURIComponent(name)}`;
    return fromWire(await this.transport.json({ ...get(path, options), method: 'PUT', json }));
  }

  /** All there is to know but the value. */
  async get(name: string, options: CallOptions = {}): Promise<Secret> {
    return fromWire(await this.transport.json(get(`/v1/secrets/${encodeURIComponent(name)}`, options)));
  }

  async list(options: CallOptions = {}): Promise<Secret[]> {
    const wire = await this.transport.json<{ secrets: unknown[] }>(get('/v1/secrets', options));
    return fromWire(wire.secrets);
  }

  /** Sandboxes that have it get nothing new of it. */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    const path = `/v1/secrets/${encodeURIComponent(name)}`;
    await this.transport.json({ ...get(path, options), method: 'DELETE', goneIsDone: true });
  }
}

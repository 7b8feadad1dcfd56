import { ProtocolError } from './errors.js';

/* Names on the wire are snake_case, here they are camelCase. What the user named himself is never touched. */
const VERBATIM = new Set(['env', 'metadata', 'enforced', 'features', 'labels']);

export const toCamel = (s: string): string => s.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase());
export const toSnake = (s: string): string => s.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);

function mapKeys(v: unknown, name: (s: string) => string): unknown {
  if (Array.isArray(v)) return v.map((x) => mapKeys(x, name));
  if (typeof v !== 'object' || v === null) return v;
  const out: Record<string, unknown> = {};
  for (const [k, x] of Object.entries(v)) {
    if (x === undefined) continue;
    // defineProperty: a key named __proto__ stays a key.
    Object.defineProperty(out, name(k), {
      value: VERBATIM.has(k) ? x : mapKeys(x, name),
      enumerable: true,
      writable: true,
      configurable: true,
    });
  }
  return out;
}

/** An answer's names as the language writes them. */
export function fromWire<T>(v: unknown): T {
  return mapKeys(v, toCamel) as T;
}

/** A request's names as the server writes them; what is undefined is left out. */
export function toWire(v: unknown): unknown {
  return mapKeys(v, toSnake);
}

/** An object from JSON. What is none is the server's mistake, not a TypeError of the caller. */
export function parseObject<T>(text: string, what: string, status?: number): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new ProtocolError(`${what} is no JSON`, { code: 'protocol', status, cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ProtocolError(`${what} is no object`, { code: 'protocol', status });
  return value as T;
}

/** A member that has to be a list. */
export function listOf<T>(value: readonly T[] | null | undefined, name: string): readonly T[] {
  if (!Array.isArray(value)) throw new ProtocolError(`the server sent an object without a list '${name}'`, { code: 'protocol' });
  return value as readonly T[];
}

export type QueryValue = string | number | boolean | undefined;

/** Percent-encodes everything, blanks too: a `+` is a plus. Booleans become 0 and 1. */
export function queryString(query: Record<string, QueryValue> | undefined): string {
  if (!query) return '';
  const parts: string[] = [];
  for (const [k, v] of Object.entries(query)) {
    if (v === undefined) continue;
    const text = typeof v === 'boolean' ? (v ? '1' : '0') : String(v);
    parts.push(`${encodeURIComponent(k)}=${encodeURIComponent(text)}`);
  }
  return parts.length > 0 ? `?${parts.join('&')}` : '';
}

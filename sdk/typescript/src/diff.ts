import type { DiffSource } from './types.js';

/** What `from` is in a query. */
export function diffSource(from: DiffSource | undefined): string | undefined {
  if (from === undefined || from === 'image') return from;
  return 'sandbox' in from ? `sandbox:${from.sandbox}` : `checkpoint:${from.checkpoint}`;
}

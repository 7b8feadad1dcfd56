/* What each sample starts with: a daemon, and a client that is made the way the documentation makes it. */
import { after, before } from 'node:test';
import { NoidAPIError, type NoidClient } from '@cloche/sdk/noid';
import { hasFeature, startDaemon, type Daemon } from '../support/daemon.js';

export const world: { daemon: Daemon; noid: NoidClient } = {} as never;

export function withNoid(): void {
  before(async () => {
    world.daemon = await startDaemon();
    world.noid = world.daemon.noid() as NoidClient;
  });
  after(() => world.daemon?.stop());
}

/**
 * The body of a test that needs checkpoints. Where the server has them it runs and must pass. Where the server says it has none
 * the test is a todo, but only when it fails for that very reason: anything else is a failure.
 */
export function needsCheckpoints(body: () => Promise<void>) {
  return async (t: { todo(why?: string): void }): Promise<void> => {
    if (await hasFeature(world.noid.cloche, 'checkpoints')) return body();
    const refusal = await body().then(
      () => new Error('works, although GET /v1/info says "checkpoints": false'),
      (e: unknown) => e,
    );
    if (refusal instanceof NoidAPIError && refusal.code === 'unsupported') t.todo('the server has no checkpoints yet');
    throw refusal;
  };
}

/** A name of its own for each VM. */
let count = 0;
export const vmName = (what: string): string => `${what}-${process.pid}-${++count}`;

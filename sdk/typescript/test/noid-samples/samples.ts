/* What each sample starts with: a daemon, and a client that is made the way the documentation makes it. */
import { after, before } from 'node:test';
import type { NoidClient } from '@cloche/sdk/noid';
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
 * The body of a test that needs checkpoints. Asks the server: where it has them the test runs and must pass, where it says it
 * has none the test is marked as todo and must fail with the error that says so.
 */
export function needsCheckpoints(body: () => Promise<void>) {
  return async (t: { todo(why?: string): void }): Promise<void> => {
    if (await hasFeature(world.noid.cloche, 'checkpoints')) return body();
    t.todo('GET /v1/info says "checkpoints": false');
    await body();
  };
}

/** A name of its own for each VM. */
let count = 0;
export const vmName = (what: string): string => `${what}-${process.pid}-${++count}`;

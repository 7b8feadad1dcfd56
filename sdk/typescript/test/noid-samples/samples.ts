/* What each sample starts with: a daemon, and a client that is made the way the documentation makes it. */
import { after, before } from 'node:test';
import type { NoidClient } from '@cloche/sdk/noid';
import { startDaemon, type Daemon } from '../support/daemon.js';

export const world: { daemon: Daemon; noid: NoidClient } = {} as never;

export function withNoid(): void {
  before(async () => {
    world.daemon = await startDaemon();
    world.noid = world.daemon.noid() as NoidClient;
  });
  after(() => world.daemon?.stop());
}

/** A name of its own for each VM. */
let count = 0;
export const vmName = (what: string): string => `${what}-${process.pid}-${++count}`;

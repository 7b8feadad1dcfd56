/* The real daemon, started as root in a folder of its own; gone with all its sandboxes afterwards. */
import { spawn } from 'node:child_process';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Cloche, NoidClient, type ClocheOptions, type NoidClientOptions } from '@cloche/sdk';

// This file runs from dist/test/test/support.
const sdk = resolve(dirname(fileURLToPath(import.meta.url)), '../../../..');

export const buildFolder = resolve(sdk, process.env.CLOCHE_BUILD ?? '../../build');

export interface Daemon {
  url: string;
  token: string;
  data: string;
  client(options?: ClocheOptions): Cloche;
  noid(options?: NoidClientOptions): NoidClient;
  stop(): Promise<void>;
}

/** @param config text of a configuration file */
export async function startDaemon(config = ''): Promise<Daemon> {
  const program = join(buildFolder, 'cloche');
  if (!existsSync(program)) throw new Error(`no ${program}: build it, or name the build folder in CLOCHE_BUILD`);
  if (process.getuid?.() !== 0) throw new Error('the daemon makes sandboxes as root: run the tests as root');
  const tmp = await mkdtemp('/var/tmp/cls-');
  await chmod(tmp, 0o711); // the API's own user must get through
  const data = join(tmp, 'd');
  const tokenFile = join(tmp, 'token');
  const configFile = join(tmp, 'config');
  await writeFile(configFile, config);
  const child = spawn(
    program,
    ['serve', '--data', data, '--listen', '127.0.0.1:0', '--token-file', tokenFile, '--config', configFile, '--stop-sandboxes'],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let noise = '';
  child.stderr.on('data', (d: Buffer) => (noise = (noise + d.toString()).slice(-20_000)));
  const ended = new Promise<void>((done) => child.once('close', () => done()));
  const url = await new Promise<string>((found, failed) => {
    const timer = setTimeout(() => failed(new Error(`the daemon does not start:\n${noise}`)), 30_000);
    createInterface({ input: child.stdout }).on('line', (line) => {
      const m = /serving on (\S+)/.exec(line);
      if (!m) return;
      clearTimeout(timer);
      found(m[1]!);
    });
    child.once('close', (code) => {
      clearTimeout(timer);
      failed(new Error(`the daemon ended with ${code}:\n${noise}`));
    });
  }).catch(async (e) => {
    child.kill('SIGTERM');
    await rm(tmp, { recursive: true, force: true });
    throw e;
  });
  const token = (await readFile(tokenFile, 'utf8')).trim();
  const made: { close(): void }[] = [];
  return {
    url,
    token,
    data,
    client(options = {}) {
      const c = new Cloche({ url, token, ...options });
      made.push(c);
      return c;
    },
    noid(options = {}) {
      const c = new NoidClient({ serverUrl: url, token, ...options });
      made.push(c);
      return c;
    },
    async stop() {
      for (const c of made) c.close();
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 45_000);
      await ended;
      clearTimeout(timer);
      await rm(tmp, { recursive: true, force: true });
    },
  };
}

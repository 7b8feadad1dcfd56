/* The package as npm would install it: under its own name, and under @noid/sdk by an alias. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const sdk = resolve(dirname(fileURLToPath(import.meta.url)), '../../../..');

function install(dir: string): void {
  const tgz = execFileSync('npm', ['pack', '--ignore-scripts', '--silent', '--pack-destination', dir], { cwd: sdk, encoding: 'utf8' }).trim().split('\n').at(-1)!;
  for (const name of ['@noid/sdk', '@cloche/sdk']) {
    const to = join(dir, 'node_modules', name);
    fs.mkdirSync(to, { recursive: true });
    execFileSync('tar', ['-xzf', join(dir, tgz), '-C', to, '--strip-components=1']);
  }
  fs.mkdirSync(join(dir, 'node_modules/@types'));
  fs.symlinkSync(join(sdk, 'node_modules/@types/node'), join(dir, 'node_modules/@types/node'));
  fs.symlinkSync(join(sdk, 'node_modules/undici-types'), join(dir, 'node_modules/undici-types'));
}

const ESM = `
import Default, { NoidClient } from '@noid/sdk';
import { NoidClient as Own, Cloche, ClocheError } from '@cloche/sdk';
import Sub from '@cloche/sdk/noid';
const c = new NoidClient({ serverUrl: 'http://127.0.0.1:1', token: 'noid_tok_x' });
console.log(Default === NoidClient, typeof Own.prototype.createVM, typeof Sub.prototype.createVm, typeof Cloche, typeof ClocheError, c.timeout);
`;
const CJS = `
const { NoidClient, default: Default } = require('@noid/sdk');
const { Cloche } = require('@cloche/sdk');
const sub = require('@cloche/sdk/noid');
console.log(Default === NoidClient, typeof NoidClient.prototype.createVM, typeof sub.default.prototype.createVm, typeof Cloche);
`;
const TYPED = `
import Default, { NoidClient, NoidAPIError } from '@noid/sdk';
import { Cloche, type Result } from '@cloche/sdk';
export async function f(): Promise<string> {
  const noid: NoidClient = new Default({ serverUrl: 'http://x', token: 't', timeout: 30000, retries: 3, retryDelay: 1000 });
  const vm = await noid.createVM({ name: 'a', vcpus: 2, memory: 1024, network: 'isolated' });
  const r = await noid.exec(vm.name, 'echo', { timeout: 1000 });
  const code: number = r.exitCode;
  await noid.createCheckpoint('a', 'golden', { label: 'x' });
  await noid.restore('a', 'golden', { as: 'b' });
  const other = await noid.createVm('b', { cpus: 2, memMib: 4096 });
  const n: number | null = (await other.exec(['ls'])).exit_code;
  const native: Result = await (await new Cloche().sandboxes.create()).exec(['ls']);
  return String(code) + String(n) + native.stdout + vm.status + String(NoidAPIError.name);
}
`;

test('imports by both names, from both module systems, with types', (t) => {
  const dir = fs.mkdtempSync('/var/tmp/cls-');
  t.after(() => fs.rmSync(dir, { recursive: true }));
  install(dir);
  fs.writeFileSync(join(dir, 'a.mjs'), ESM);
  fs.writeFileSync(join(dir, 'a.cjs'), CJS);
  const run = (f: string): string => execFileSync(process.execPath, [f], { cwd: dir, encoding: 'utf8' }).trim();
  assert.equal(run('a.mjs'), 'true function function function function 30000');
  assert.equal(run('a.cjs'), 'true function function function');
  const tsc = join(sdk, 'node_modules/typescript/bin/tsc');
  for (const [file, module, resolution] of [['t.mts', 'NodeNext', 'NodeNext'], ['t.cts', 'NodeNext', 'NodeNext'], ['t.ts', 'CommonJS', 'Node10']] as const) {
    fs.writeFileSync(join(dir, file), TYPED);
    execFileSync(process.execPath, [tsc, '--noEmit', '--strict', '--esModuleInterop', '--target', 'ES2022', '--types', 'node', '--module', module, '--moduleResolution', resolution, file], { cwd: dir, stdio: 'inherit' });
  }
});

test('nothing is needed at run time, and nothing but the package is packed', () => {
  const p = JSON.parse(fs.readFileSync(join(sdk, 'package.json'), 'utf8')) as Record<string, unknown>;
  assert.equal(p.dependencies, undefined);
  const files = (JSON.parse(execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: sdk, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })) as { files: { path: string }[] }[])[0]!.files.map((f) => f.path);
  assert.ok(files.every((f) => /^(dist\/(esm|cjs)\/|README\.md$|package\.json$|LICENSE$)/.test(f)), files.join());
  assert.ok(files.includes('dist/esm/noid/index.d.ts') && files.includes('dist/cjs/package.json'));
});

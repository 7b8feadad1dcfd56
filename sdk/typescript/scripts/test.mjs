// Compiles the tests (they import the built package by its own name) and runs them by node's test runner.
// `unit` leaves out what needs a daemon.
import { spawnSync, execFileSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

if (!existsSync(join(root, 'dist/esm/index.js')))
  execFileSync(process.execPath, [join(root, 'scripts/build.mjs')], { stdio: 'inherit' });
rmSync(join(root, 'dist/test'), { recursive: true, force: true });
execFileSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.test.json')], { stdio: 'inherit', cwd: root });

const out = join(root, 'dist/test/test');
const folders = process.argv[2] === 'unit' ? ['unit'] : ['unit', 'functional', 'noid-samples'];
const only = process.argv.slice(process.argv[2] === 'unit' ? 3 : 2);
const files = folders
  .flatMap((f) => (existsSync(join(out, f)) ? readdirSync(join(out, f)).map((n) => join(out, f, n)) : []))
  .filter((f) => f.endsWith('.test.js') && (only.length === 0 || only.some((o) => f.includes(o))));
if (files.length === 0) {
  console.error('no tests found');
  process.exit(1);
}
const [major, minor] = process.versions.node.split('.').map(Number);
const flags = ['--enable-source-maps', '--test'];
if (major > 20 || (major === 20 && minor >= 11)) flags.push('--test-timeout=300000');
// Later versions print for people even into a pipe; whoever counts wants the same words from each.
if (major >= 20 && !process.stdout.isTTY) flags.push('--test-reporter=tap');
const run = spawnSync(process.execPath, [...flags, ...files], { stdio: 'inherit', cwd: root });
process.exit(run.status ?? 1);

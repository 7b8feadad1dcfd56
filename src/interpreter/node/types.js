'use strict';
// TypeScript without its types: by Node itself from 22.13 on, or by a package that is installed. Types are not checked.
const path = require('path');
const { spawnSync } = require('child_process');
const Module = require('module');
const { requireHere } = require('./modules.js');

const GLOBAL = [path.join(path.dirname(process.execPath), '..', 'lib', 'node_modules'), '/usr/local/lib/node_modules',
  '/usr/lib/node_modules', '/usr/share/nodejs'];

class TypeScriptUnavailable extends Error {
  constructor() {
    super(`Node ${process.version} cannot remove types; use Node 22.13 or later, or install one of the packages typescript, ` +
      'esbuild and sucrase, or the program esbuild');
    this.name = 'TypeScriptUnavailable';
  }
}

function packaged(name) {
  for (const find of [() => requireHere()(name), ...GLOBAL.map(folder => () => require(path.join(folder, name)))]) {
    try {
      return find();
    } catch (e) {
      continue;
    }
  }
  return undefined;
}

// Node warns that the function is new, each time a process uses it first.
function quietly(call) {
  const emit = process.emitWarning;
  process.emitWarning = () => {};
  try {
    return call();
  } finally {
    process.emitWarning = emit;
  }
}

function byNode(code) {
  try {
    return quietly(() => Module.stripTypeScriptTypes(code, { mode: 'strip' }));
  } catch (e) {
    if (e.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw e;
    return quietly(() => Module.stripTypeScriptTypes(code, { mode: 'transform' })); // enum and its kin are code
  }
}

function byTypeScript(ts, code) {
  const made = ts.transpileModule(code, {
    reportDiagnostics: true,
    compilerOptions: { target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext, isolatedModules: true,
      verbatimModuleSyntax: true, removeComments: false },
  });
  const bad = (made.diagnostics || []).find(d => d.category === ts.DiagnosticCategory.Error && d.code < 2000);
  if (bad) throw new SyntaxError(ts.flattenDiagnosticMessageText(bad.messageText, '\n'));
  return made.outputText.replace(/^export \{\};?\s*$/m, '');
}

// Unused imports stay: another cell may use them. Versions of esbuild have different names for that.
const KEEP = { compilerOptions: { verbatimModuleSyntax: true, preserveValueImports: true, importsNotUsedAsValues: 'preserve' } };

function byProgram(code) {
  const made = spawnSync('esbuild', ['--loader=ts', '--target=esnext', '--log-level=error', '--color=false',
    `--tsconfig-raw=${JSON.stringify(KEEP)}`], { input: code, encoding: 'utf8', maxBuffer: 1 << 28 });
  if (made.error) throw made.error;
  if (made.status === 0) return made.stdout;
  const [, message, line, column] = /\[ERROR\] (.*)\n\s*<stdin>:(\d+):(\d+)/.exec(made.stderr) || [0, made.stderr.trim(), 0, 0];
  throw new SyntaxError(line ? `${message} (line ${line}, column ${column})` : message);
}

let remover;

function find() {
  if (typeof Module.stripTypeScriptTypes === 'function') return byNode;
  const ts = packaged('typescript');
  if (ts && ts.transpileModule) return code => byTypeScript(ts, code);
  const esbuild = packaged('esbuild');
  if (esbuild) {
    return code => esbuild.transformSync(code, { loader: 'ts', target: 'esnext',
      tsconfigRaw: KEEP }).code;
  }
  const sucrase = packaged('sucrase');
  if (sucrase) return code => sucrase.transform(code, { transforms: ['typescript'], disableESTransforms: true, keepUnusedImports: true }).code;
  if (spawnSync('esbuild', ['--version']).status === 0) return byProgram;
  return undefined;
}

// @isScript(code): whether the code is JavaScript as it is, which needs nobody to remove anything.
function withoutTypes(code, isScript) {
  remover = remover || find(); // it may be installed between two cells
  if (remover) return remover(code);
  if (isScript(code)) return code;
  throw new TypeScriptUnavailable();
}

module.exports = { withoutTypes };

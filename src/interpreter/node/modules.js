'use strict';
// require() and import of cells, as if they were a file in the working folder.
const fs = require('fs');
const path = require('path');
const { createRequire, builtinModules } = require('module');
const { pathToFileURL } = require('url');

function requireHere() {
  return createRequire(path.join(process.cwd(), 'cell.js'));
}

// The file that a package gives to import: by "exports" of its package.json, which require.resolve() reads for require() only.
function exported(target) {
  if (typeof target === 'string') return target;
  if (Array.isArray(target)) return target.map(exported).find(Boolean);
  if (target && typeof target === 'object') {
    for (const [condition, value] of Object.entries(target)) {
      if (['import', 'node', 'module-sync', 'default'].includes(condition)) {
        const found = exported(value);
        if (found) return found;
      }
    }
  }
  return undefined;
}

function inPackage(specifier) {
  const m = /^((?:@[^/]+\/)?[^/]+)(?:\/(.*))?$/.exec(specifier);
  if (!m) return undefined;
  for (const folder of requireHere().resolve.paths(specifier) || []) {
    const root = path.join(folder, m[1]);
    let about;
    try {
      about = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'));
    } catch (e) {
      continue;
    }
    if (about.exports === undefined) return undefined;
    const key = m[2] ? './' + m[2] : '.';
    const table = typeof about.exports === 'object' && !Array.isArray(about.exports) &&
      Object.keys(about.exports).some(k => k.startsWith('.')) ? about.exports : { '.': about.exports };
    if (key in table) {
      const file = exported(table[key]);
      return file && path.join(root, file);
    }
    for (const [pattern, target] of Object.entries(table)) {
      const [before, after] = pattern.split('*');
      if (after !== undefined && key.startsWith(before) && key.endsWith(after) && key.length >= pattern.length) {
        const file = exported(target);
        return file && path.join(root, file.replace(/\*/g, key.slice(before.length, key.length - after.length)));
      }
    }
    return undefined;
  }
  return undefined;
}

function resolve(specifier) {
  if (/^(?:node|data|file|https?):/.test(specifier) || builtinModules.includes(specifier)) return specifier;
  if (/^\.{0,2}\//.test(specifier)) {
    const file = path.resolve(specifier);
    return pathToFileURL(fs.existsSync(file) ? file : requireHere().resolve(file)).href;
  }
  return pathToFileURL(inPackage(specifier) || requireHere().resolve(specifier)).href;
}

// What a CommonJS file exports, with all of its names: Node sees only those that it finds in the text.
function withNames(found) {
  const whole = found.default;
  if (whole === null || typeof whole !== 'object' || !Object.keys(found).every(k => k === 'default' || k === 'module.exports' || k in whole)) {
    return found;
  }
  return { ...whole, ...found };
}

// In a script of vm's, which the daemon starts, import() is refused: there its program passes one that works.
const load = typeof importFrom === 'function' ? importFrom : (s, o) => (o === undefined ? import(s) : import(s, o));

// @names: what an import statement takes, which must be there.
async function importHere(specifier, options, names = []) {
  let found = await load(resolve(String(specifier)), options);
  if (names.some(name => !(name in found))) found = withNames(found);
  const missing = names.find(name => !(name in found));
  if (missing !== undefined) throw new SyntaxError(`The requested module '${specifier}' does not provide an export named '${missing}'`);
  return found;
}

module.exports = { requireHere, importHere };

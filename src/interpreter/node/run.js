'use strict';
// Runs cells in V8's console mode, through an inspector session of this process: it keeps const, let and class, lets a later cell
// declare them again, and has `await` at the top level. A cell runs inside of vm.Script, which heeds SIGINT.
const inspector = require('inspector');
const util = require('util');
const vm = require('vm');
const { transform, IMPORT } = require('./cell.js');
const { importHere, requireHere } = require('./modules.js');
const { withoutTypes } = require('./types.js');
const { textOf } = require('./display.js');

const TAKE = Symbol('take'), CALL = Symbol('call');
const VALUE_MAX = 64 << 10, TRACEBACK_MAX = 256 << 10;

class Interrupted extends Error {}
Interrupted.prototype.name = 'KeyboardInterrupt';

// A cell that calls process.exit(). The context lives on.
class ProcessExit extends Error {}
ProcessExit.prototype.name = 'ProcessExit';

class Cells {
  constructor(language) {
    this.language = language;
    this.sources = new Map();
    this.session = new inspector.Session();
    this.session.connect();
    const hidden = value => ({ value, configurable: true, writable: true, enumerable: false });
    Object.defineProperties(globalThis, { [TAKE]: hidden(undefined), [CALL]: hidden(undefined), [IMPORT]: hidden(importHere) });
    this.global = this.post('Runtime.evaluate', { expression: 'globalThis', objectGroup: 'kernel' }).result.objectId;
    this.interruptible = new vm.Script(`globalThis[Object.getOwnPropertySymbols(globalThis).find(s => s.description === 'call')]()`,
      { filename: 'kernel' });
    this.interrupt = null;
    this.requireFrom = null;
  }

  // Before a cell: require() is that of the working folder.
  refresh() {
    if (this.requireFrom === process.cwd()) return;
    this.requireFrom = process.cwd();
    globalThis.require = requireHere();
    globalThis.module = globalThis.module || { exports: {}, id: '<cell>' };
    globalThis.exports = globalThis.exports || globalThis.module.exports;
    globalThis.__dirname = this.requireFrom;
    globalThis.__filename = this.requireFrom + '/cell';
  }

  // Within the process an answer that needs no waiting comes before post() returns.
  post(method, params) {
    let got;
    this.session.post(method, params, (error, answer) => {
      got = error ? { error } : answer;
    });
    if (got === undefined || got.error) throw new Error(`inspector: ${method}: ${got ? got.error.message : 'no answer'}`);
    return got;
  }

  // The value that an inspector's description is about.
  take(remote) {
    if (remote.type === 'undefined' || ['string', 'boolean'].includes(remote.type)) return remote.value;
    let taken;
    globalThis[TAKE] = value => {
      taken = value;
    };
    const argument = remote.objectId ? { objectId: remote.objectId } : remote.unserializableValue !== undefined ?
      { unserializableValue: remote.unserializableValue } : { value: remote.value };
    this.post('Runtime.callFunctionOn', { objectId: this.global, arguments: [argument], silent: true, functionDeclaration:
      `function(v) { this[Object.getOwnPropertySymbols(this).find(s => s.description === 'take')](v); }` });
    globalThis[TAKE] = undefined;
    return taken;
  }

  toScript(code) {
    return this.language === 'typescript' ? withoutTypes(code, isScript) : code;
  }

  // {value} of the cell's last expression, in an object so that nobody calls its then(). Throws what the cell throws.
  // @begun is called when SIGINT ends it.
  async run(code, name, begun) {
    this.refresh();
    this.sources.set(name, code);
    if (this.sources.size > 200) this.sources.delete(this.sources.keys().next().value);
    let script = transform(this.toScript(code));
    if (/^\s*\{/.test(script) && !/;\s*$/.test(script) && isScript(`(${script}\n)`)) script = `(${script}\n)`; // {a: 1}
    const value = await this.interrupted(new Promise((resolve, reject) => {
      globalThis[CALL] = () => {
        globalThis[CALL] = undefined;
        begun();
        this.session.post('Runtime.evaluate', { expression: `${script}\n//# sourceURL=${name}`, replMode: true, objectGroup: 'cell',
          silent: true, generatePreview: false }, (error, answer) => {
          // Newer versions of Node answer, too, when SIGINT has ended the cell.
          if (error) setImmediate(() => reject(new Error(error.message)));
          else if (answer.exceptionDetails) reject(this.problem(answer.exceptionDetails));
          else resolve({ value: this.take(answer.result) });
          this.session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
        });
      };
      try {
        this.interruptible.runInThisContext({ breakOnSigint: true, displayErrors: false });
      } catch (e) {
        reject(e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? new Interrupted('') : e);
      }
    }));
    return util.types.isPromise(value.value) ? { value: await this.interrupted(value.value) } : value;
  }

  problem(details) {
    if (!details.exception) return new Error(details.text);
    const thrown = this.take(details.exception);
    if (thrown instanceof SyntaxError && !/\n\s+at \S*cell-/.test(thrown.stack || '')) {
      return new Problem(thrown, details.lineNumber + 1, details.columnNumber + 1);
    }
    return new Problem(thrown);
  }

  // @promise, or an Interrupted before that.
  interrupted(promise) {
    return new Promise((resolve, reject) => {
      this.interrupt = () => reject(new Interrupted(''));
      promise.then(resolve, reject);
    }).finally(() => {
      this.interrupt = null;
    });
  }

  names() {
    return [...this.post('Runtime.globalLexicalScopeNames', {}).names, ...Object.keys(globalThis)];
  }

  // The value of a name, if finding it has no effects.
  quiet(expression) {
    try {
      const answer = this.post('Runtime.evaluate', { expression, throwOnSideEffect: true, silent: true, objectGroup: 'cell', timeout: 500 });
      const found = !answer.exceptionDetails;
      return { found, value: found ? this.take(answer.result) : undefined };
    } catch (e) {
      return { found: false };
    } finally {
      this.session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
    }
  }

  // The fields of an error event.
  describe(e, name) {
    let line, column;
    if (e instanceof Problem) [line, column, e] = [e.line, e.column, e.thrown];
    const isError = e !== null && typeof e === 'object' && typeof e.stack === 'string';
    let title = 'Error', value;
    try {
      title = isError ? String(e.name) : e instanceof Interrupted ? 'KeyboardInterrupt' : 'Error';
      value = isError ? String(e.message) : typeof e === 'string' ? e : textOf(e);
    } catch (other) {
      value = 'the exception cannot be described';
    }
    const traceback = this.traceback(isError ? e : null, title, value, name, line, column);
    const made = { name: title, value: cut(value, VALUE_MAX), traceback: cut(traceback, TRACEBACK_MAX) };
    if (line !== undefined) Object.assign(made, { line, column });
    return made;
  }

  // The error with the line of the cell that it came from, and the calls above it, without ours.
  traceback(e, title, value, name, line, column) {
    let calls = [];
    if (e && line === undefined) {
      const lines = String(e.stack).split('\n').filter(x => /^\s+at /.test(x));
      const last = lines.findIndex(x => /node:inspector|Session\.post|\/interpreter\/node\/|at Script\.runInThisContext|\bkernel:1:/.test(x));
      calls = (last < 0 ? lines : lines.slice(0, last)).map(x => x.replace(/at <anonymous>:/, `at ${name}:`));
      const m = calls.map(x => /(cell-\d+):(\d+):(\d+)/.exec(x)).find(Boolean);
      if (m && this.sources.has(m[1])) [name, line, column] = [m[1], Number(m[2]), Number(m[3])];
    }
    const out = [];
    const text = line !== undefined && this.sources.has(name) ? this.sources.get(name).split('\n')[line - 1] : undefined;
    if (text !== undefined) out.push(`${name}:${line}`, text.slice(0, 500), ' '.repeat(Math.max(Math.min(column, 500) - 1, 0)) + '^', '');
    const cause = e && e.cause !== undefined ? [`  [cause]: ${textOf(e.cause)}`] : [];
    return [...out, `${title}${value ? ': ' + value : ''}`, ...calls, ...cause].join('\n') + '\n';
  }
}

// What a cell has thrown: any value, with the position of a syntax error.
class Problem {
  constructor(thrown, line, column) {
    Object.assign(this, { thrown, line, column });
  }
}

function isScript(code) {
  try {
    new vm.Script(`(async () => {${transform(code)}\n})`);
    return true;
  } catch (e) {
    try {
      new vm.Script(code);
      return true;
    } catch (again) {
      return false;
    }
  }
}

function cut(text, size) {
  return text.length <= size ? text : `${text.slice(0, size)}\n[${text.length - size} more characters]`;
}

module.exports = { Cells, ProcessExit, Interrupted };

'use strict';
// What an editor asks about code without running it: complete, is_complete, inspect. V8 refuses what would have effects.
const vm = require('vm');
const { transform } = require('./cell.js');
const { textOf } = require('./display.js');

const MATCHES_MAX = 1000;
const TEXT_MAX = 64 << 10;
const KEYWORDS = ('async await break case catch class const continue debugger default delete do else export extends false finally ' +
  'for function if import in instanceof let new null of return static super switch this throw true try typeof undefined var ' +
  'void while with yield').split(' ');

// Positions of the protocol count code points; those of JavaScript's texts do not.
function toUnits(code, cursor) {
  return cursor === undefined || cursor === null ? code.length : [...code].slice(0, Math.max(cursor, 0)).join('').length;
}

function toPoints(code, units) {
  return [...code.slice(0, units)].length;
}

function complete(cells, code, cursor) {
  const at = toUnits(code, cursor);
  const m = /((?:[\w$\u0080-\uffff]+\??\.)*)([\w$\u0080-\uffff]*)$/.exec(code.slice(0, at));
  let names;
  if (m[1]) {
    const owner = cells.quiet(m[1].replace(/\??\.$/, ''));
    names = owner.found ? properties(owner.value) : [];
  } else if (/[.)\]}]\s*\.\s*[\w$]*$/.test(code.slice(0, at))) {
    names = [];
  } else {
    names = m[2] ? [...cells.names(), ...Object.getOwnPropertyNames(globalThis), ...KEYWORDS] : cells.names();
  }
  const matches = [...new Set(names)].filter(n => n.startsWith(m[2]) && /^[\w$\u0080-\uffff]+$/.test(n)).sort().slice(0, MATCHES_MAX);
  return { matches, start: toPoints(code, at - m[2].length), end: toPoints(code, at) };
}

function properties(value) {
  const names = [];
  for (let o = Object(value); o && names.length < 10000; o = Object.getPrototypeOf(o)) {
    if (o === Object.prototype && names.length) break;
    names.push(...Object.getOwnPropertyNames(o).filter(n => !/^\d/.test(n)));
  }
  return names;
}

function isComplete(code, toScript) {
  try {
    new vm.Script(`(async () => {${transform(toScript(code))}\n})`, { importModuleDynamically: undefined });
    return { status: 'complete', indent: '' };
  } catch (e) {
    if (e.name === 'TypeScriptUnavailable') return { status: 'invalid', indent: '' };
    const open = /Unterminated template|missing \) after|Unexpected end|Invalid or unexpected token|Unterminated regular/;
    if (open.test(e.message) && isOpen(code)) {
      const last = code.split('\n').filter(x => x.trim()).pop() || '';
      const indent = /^\s*/.exec(last)[0];
      return { status: 'incomplete', indent: /[{([]\s*$/.test(last) ? indent + '  ' : indent };
    }
    return isOpen(code) ? { status: 'incomplete', indent: '' } : { status: 'invalid', indent: '' };
  }
}

// Whether the code ends inside brackets, a template or a comment.
function isOpen(code) {
  try {
    new vm.Script(code);
    return false;
  } catch (e) {
    return /Unexpected end of input|Unterminated template literal|missing \) after argument list/.test(e.message) &&
      !/[)}\]]\s*[)}\]]*\s*$/.test('x' + code.slice(-1) + 'x') || unbalanced(code);
  }
}

function unbalanced(code) {
  let depth = 0;
  const bare = code.replace(/\/\*[^]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`/g, '');
  if (/`|\/\*/.test(bare)) return true;
  for (const c of bare) {
    if ('([{'.includes(c)) depth++;
    else if (')]}'.includes(c) && --depth < 0) return false;
  }
  return depth > 0;
}

function inspect(cells, code, cursor) {
  const at = toUnits(code, cursor);
  const before = /(?:[\w$\u0080-\uffff]+\.)*[\w$\u0080-\uffff]*$/.exec(code.slice(0, at))[0];
  let name = (before + /^[\w$\u0080-\uffff]*/.exec(code.slice(at))[0]).replace(/\.$/, '');
  if (!name) name = (/((?:[\w$]+\.)*[\w$]+)\([^()]*$/.exec(code.slice(0, at)) || [])[1] || '';
  const { found, value } = name ? cells.quiet(name) : {};
  if (!found) return { found: false, mime: {} };
  let text = `Type: ${value === null ? 'null' : typeof value === 'object' ? (value.constructor && value.constructor.name) || 'object' : typeof value}\n`;
  text += typeof value === 'function' ? Function.prototype.toString.call(value) : textOf(value);
  return { found: true, mime: { 'text/plain': text.slice(0, TEXT_MAX) } };
}

module.exports = { complete, isComplete, inspect };

'use strict';
// A cell's text as a script: import and export statements become calls and declarations, on the same lines. Everything else is
// left to V8, whose console mode has `await` and lets a cell declare a const again.

const IMPORT = '__cloche_import__';
const WORD = /[\w$\u0080-\uffff]/;
// After these, a slash begins a regular expression, not a division.
const BEFORE_REGEX = /(?:^|[([{,;=:?!&|+\-*%^~<>}]|\b(?:return|typeof|case|do|else|in|of|void|delete|throw|await|yield|new|instanceof))\s*$/;

// Calls @found(word, start, depth) for each word of the code that is import or export; not for those in texts and comments.
function words(code, found) {
  const stack = []; // of open templates: the depth outside of each
  let depth = 0, i = 0;
  const n = code.length;
  while (i < n) {
    const c = code[i];
    if (c === '/' && code[i + 1] === '/') {
      const end = code.indexOf('\n', i);
      i = end < 0 ? n : end;
    } else if (c === '/' && code[i + 1] === '*') {
      const end = code.indexOf('*/', i + 2);
      i = end < 0 ? n : end + 2;
    } else if (c === '/' && BEFORE_REGEX.test(code.slice(Math.max(0, i - 40), i))) {
      i = regexEnd(code, i);
    } else if (c === '"' || c === "'") {
      i = textEnd(code, i, c);
    } else if (c === '`') {
      i = template(code, i + 1);
    } else if (c === '}' && stack.length && stack[stack.length - 1] === depth) {
      stack.pop();
      i = template(code, i + 1);
    } else if (WORD.test(c)) {
      let end = i + 1;
      while (end < n && WORD.test(code[end])) end++;
      const word = code.slice(i, end);
      if ((word === 'import' || word === 'export') && code[i - 1] !== '.') found(word, i, depth);
      i = end;
    } else {
      if ('([{'.includes(c)) depth++;
      else if (')]}'.includes(c)) depth--;
      i++;
    }
  }

  // The end of the text part of a template: behind its last quote, or inside of ${.
  function template(text, at) {
    for (; at < n; at++) {
      if (text[at] === '\\') at++;
      else if (text[at] === '`') return at + 1;
      else if (text[at] === '$' && text[at + 1] === '{') {
        stack.push(depth);
        return at + 2;
      }
    }
    return n;
  }
}

function textEnd(code, i, quote) {
  for (i++; i < code.length && code[i] !== quote && code[i] !== '\n'; i++) if (code[i] === '\\') i++;
  return i + 1;
}

function regexEnd(code, i) {
  let set = false;
  for (i++; i < code.length && code[i] !== '\n'; i++) {
    if (code[i] === '\\') i++;
    else if (code[i] === '[') set = true;
    else if (code[i] === ']') set = false;
    else if (code[i] === '/' && !set) return i + 1;
  }
  return i;
}

const STATEMENT = /^import\s*(?:(type\s+)(?=[\w${*]))?(?:([\w$]+)\s*(?:,\s*)?)?(?:\*\s*as\s+([\w$]+)|\{([^}]*)\})?\s*(?:from\s*)?(['"])([^'"\n]*)\5\s*(?:(?:with|assert)\s*(\{[^}]*\}))?/;

function importStatement(text) {
  const m = STATEMENT.exec(text);
  if (!m) return null;
  const lines = '\n'.repeat((m[0].match(/\n/g) || []).length);
  if (m[1]) return { size: m[0].length, code: lines };
  const names = (m[4] || '').replace(/\/\*[^]*?\*\/|\/\/.*/g, '').split(',').map(x => x.trim())
    .filter(x => x && !/^type\s/.test(x)).map(x => x.replace(/\s+as\s+/, ': '));
  if (m[2]) names.unshift(`default: ${m[2]}`);
  const wanted = JSON.stringify(names.map(x => x.split(':')[0]));
  const call = `await ${IMPORT}(${JSON.stringify(m[6])}, ${m[7] ? `{with: ${m[7]}}` : 'undefined'}, ${wanted})`;
  let code = call;
  if (m[3]) code = `const ${m[3]} = ${call}` + (m[2] ? `, {default: ${m[2]}} = ${m[3]}` : '');
  else if (names.length) code = `const {${names.join(', ')}} = ${call}`;
  return { size: m[0].length, code: `${code.replace(/\n/g, ' ')};${lines}` }; // it ends there, whatever follows
}

function transform(code) {
  if (!/\b(?:import|export)\b/.test(code)) return code;
  const changes = [];
  words(code, (word, start, depth) => {
    const rest = code.slice(start, start + 100000);
    if (word === 'import' && /^import\s*\(/.test(rest)) {
      changes.push({ start, size: 6, code: IMPORT });
    } else if (depth === 0 && word === 'import' && !/^import\s*\./.test(rest)) {
      const made = importStatement(rest);
      if (made) changes.push({ start, ...made });
    } else if (depth === 0 && word === 'export') {
      const m = /^export\s+(?:default\s+)?(?=[^\s{*])/.exec(rest) || /^export\s*\{[^}]*\}\s*;?/.exec(rest);
      if (m) changes.push({ start, size: m[0].length, code: m[0].replace(/[^\n]/g, '') });
    }
  });
  for (const { start, size, code: text } of changes.reverse()) code = code.slice(0, start) + text + code.slice(start + size);
  return code;
}

module.exports = { transform, words, IMPORT };

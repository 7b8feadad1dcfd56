"""The kernel for JavaScript and TypeScript as a process."""
import base64
import json
import os
import struct
import shutil
import subprocess
import time

import pytest
from kernel import Ended, Kernel, node

NODE = shutil.which(os.environ.get('CLOCHE_NODE', 'node')) or 'node'


def js(**start):
    return Kernel(node('javascript', NODE), **start)


@pytest.fixture(scope='module')
def shared():
    with js() as k:
        yield k


@pytest.fixture
def fresh():
    with js() as k:
        yield k


# Values and state

@pytest.mark.parametrize('code, text', [
    ('1 + 1', '2'), ('"a"', "'a'"), ('[1, "b", null]', "[ 1, 'b', null ]"), ('({a: 1})', '{ a: 1 }'), ('{a: 1}', '{ a: 1 }'),
    ('{ let q = 3; q * 2 }', '6'), ('null', 'null'), ('10n ** 20n', '100000000000000000000n'), ('NaN', 'NaN'), ('-0', '-0'),
    ('Symbol("s")', 'Symbol(s)'), ('new Set([1])', 'Set(1) { 1 }'), ('/a/g', '/a/g'), ('new Date(0)', '1970-01-01T00:00:00.000Z'),
    ('(x => x)', '[Function (anonymous)]'), ('class K {}; K', '[class K]'), ('typeof require', "'function'"),
    ('[..."héllo"].length', '5'), ('`t${1 + 1}`', "'t2'"), ('for (var i = 0; i < 3; i++) i', '2'), ('if (1) { 7 }', '7'),
    ('Promise.resolve(7)', '7'), ('await Promise.resolve(8)', '8'), ('const r = await (await (async () => 4)()); r + 1', '5'),
    ('new Error("v") instanceof Error', 'true'), ('[] instanceof Array', 'true'), ('Object.keys({b: 1})', "[ 'b' ]"),
    ('Buffer.from("hi").toString("hex")', "'6869'"), ('new URL("http://a/b").pathname', "'/b'"), ('structuredClone({a: [1]}).a[0]', '1'),
    ('typeof fetch', "'function'"), ('[3, 1, 2].sort()', '[ 1, 2, 3 ]'), ('0.1 + 0.2', '0.30000000000000004'),
])
def test_the_last_value_is_the_result(shared, code, text):
    assert shared.run(code).text == text


@pytest.mark.parametrize('code', ['undefined', 'const z1 = 1', 'let z2', 'function z3() {}', 'var z4 = 3', '', '// only', 'class Z5 {}'])
def test_nothing_is_shown_for_a_declaration(shared, code):
    r = shared.run(code)
    assert r.results == [] and r.error is None


def test_const_let_and_class_stay_and_may_be_declared_again(fresh):
    fresh.run('const a = 1; let b = 2; class C { m() { return 3 } } function f() { return a + b }')
    assert fresh.run('a + b + new C().m() + f()').text == '9'
    assert fresh.run('const a = 10; a + b').text == '12'
    assert fresh.run('f()').text == '12'
    assert fresh.run('class C { m() { return 4 } } new C().m()').text == '4'
    assert fresh.run('a = 5').error['name'] == 'TypeError'


def test_top_level_await(fresh):
    assert fresh.run('const sleep = ms => new Promise(r => setTimeout(r, ms)); await sleep(20); const late = 6; late').text == '6'
    assert fresh.run('late').text == '6'
    assert fresh.run('let t = 0; for await (const x of (async function* () { yield 1; yield 2 })()) t += x; t').text == '3'
    assert fresh.run('await Promise.all([1, 2].map(async x => x * 2))').main['application/json'] == [2, 4]
    e = fresh.run('await sleep(5); throw new RangeError("later")').error
    assert (e['name'], e['value']) == ('RangeError', 'later')


def test_import_and_require(fresh, tmp_path):
    fresh.ask('start', cwd=str(tmp_path))
    (tmp_path / 'm.mjs').write_text('export const v = 3; export default function d() { return 4 }\n')
    (tmp_path / 'c.cjs').write_text('module.exports = {w: 5}\n')
    package = tmp_path / 'node_modules' / 'esm-only'
    package.mkdir(parents=True)
    (package / 'package.json').write_text('{"name": "esm-only", "type": "module", "exports": {".": {"import": "./i.js"}, "./x/*": "./lib/*.js"}}')
    (package / 'i.js').write_text('export const e = 6\n')
    (package / 'lib').mkdir()
    (package / 'lib' / 'y.js').write_text('export const y = 7\n')
    code = ('import d, {v} from "./m.mjs"\nimport * as all from "./m.mjs"\nimport { w as renamed } from "./c.cjs"\n'
            'import {e} from "esm-only"\nimport { y } from "esm-only/x/y"\nimport "node:fs"\n[v, d(), all.v, renamed, e, y]')
    r = fresh.run(code)
    assert r.error is None and r.text == '[ 3, 4, 3, 5, 6, 7 ]', r.events
    assert fresh.run('require("./c.cjs").w').text == '5'
    assert fresh.run('(await import("./m.mjs")).default()').text == '4'
    assert fresh.run('import data from "./no.mjs"').error
    assert "export named 'nothing'" in fresh.run('import { nothing } from "./m.mjs"').error['value']
    (tmp_path / 'd.json').write_text('{"k": [1]}')
    assert fresh.run('require("./d.json")').main['application/json'] == {'k': [1]}
    assert fresh.run('export const shown = 9; shown').text == '9'
    assert fresh.run('const text = `import x from "y"`; // import z from "w"\n/import a/.test(text)').text == 'false'
    assert fresh.run('import os from "os"\n[os.EOL.length]').text == '[ 1 ]'


# Results

def test_rich_results(shared):
    png = b'\x89PNG\r\n\x1a\n'
    code = '({[Symbol.for("Jupyter.display")]() { return {"text/html": "<b>", "text/plain": "b"} }})'
    assert shared.run(code).main == {'text/html': '<b>', 'text/plain': 'b'}
    r = shared.run(f'display.html("<i>"); display({{a: 1}}); display({{"text/latex": "$x$"}}, {{raw: true}});'
                   f'display.png(Buffer.from({list(png)})); 5')
    assert [x['is_main'] for x in r.results] == [False, False, False, False, True]
    assert r.results[0]['mime'] == {'text/html': '<i>'} and r.results[2]['mime'] == {'text/latex': '$x$'}
    assert r.results[1]['mime'] == {'text/plain': '{ a: 1 }', 'application/json': {'a': 1}}
    assert base64.b64decode(r.results[3]['mime']['image/png']) == png
    r = shared.run('({async [Symbol.for("Jupyter.display")]() { return {"text/markdown": "# later"} }})')
    assert r.main['text/markdown'] == '# later'


def test_values_that_are_hard_to_show(shared):
    assert '[Circular' in shared.run('const o = {}; o.o = o; o').text
    assert shared.run('new Proxy({}, {get() { throw new Error("trap") }})').end['status'] == 'ok'
    assert shared.run('({get x() { throw new Error("getter") }})').end['status'] == 'ok'
    r = shared.run('({[Symbol.for("Jupyter.display")]() { throw new Error("bad display") }, k: 1})')
    assert r.end['status'] == 'ok' and 'bad display' in r.stderr
    assert shared.run('"\\ud800"').end['status'] == 'ok'
    assert shared.run('let deep = []; for (let i = 0; i < 100000; i++) deep = [deep]; deep').end['status'] == 'ok'
    r = shared.run('"x".repeat(12 << 20)').results[0]
    assert r['truncated'] == {'text/plain': (12 << 20) + 2} and len(r['mime']['text/plain']) == 1 << 20
    r = shared.run('for (let i = 0; i < 5000; i++) display(i)')
    assert r.error['name'] == 'TooManyResults' and len(r.results) == 1000
    assert shared.run('new Array(5000000).fill(1)').main.keys() == {'text/plain'}


# Output

def test_one_log_is_one_event(shared):
    r = shared.run('console.log("a\\nb", {c: 1}); console.error("e"); process.stdout.write("w"); console.log("%s is %d", "x", 5)')
    assert [(e['type'], e['text']) for e in r.events[:-1]] == [
        ('stdout', 'a\nb { c: 1 }\n'), ('stderr', 'e\n'), ('stdout', 'w'), ('stdout', 'x is 5\n')]
    assert '┌' in shared.run('console.table([{a: 1}])').stdout


def test_child_processes_print_in_order(shared):
    r = shared.run('const {execSync, spawnSync} = require("child_process")\nconsole.log(1)\nexecSync("echo 2; echo e >&2", {stdio: "inherit"})\n'
                   'console.log(3); execSync("echo 4").toString()')
    assert r.stdout == '1\n2\n3\n' and r.stderr == 'e\n' and r.text == "'4\\n'"


def test_output_is_bounded():
    with js(output_max=1 << 20) as k:
        r = k.run('for (let i = 0; i < 40000; i++) console.log("x".repeat(99))')
        assert len(r.stdout) == 1 << 20 and r.end['dropped'] == 4000000 - (1 << 20)
        assert len(r.of('stdout')) < 2500
        assert k.run('console.log(1)').stdout == '1\n'


def test_timers_that_print_later_belong_to_no_execution(fresh):
    assert fresh.run('setTimeout(() => console.log("late"), 200); 1').text == '1'
    event = fresh.event(5)
    assert event == {'type': 'stdout', 'id': None, 'text': 'late\n'}
    fresh.run('setTimeout(() => { throw new Error("in a callback") }, 10); 1')
    assert 'in a callback' in fresh.event(5)['text']
    fresh.run('Promise.reject(new Error("nobody waits")); 1')
    assert fresh.run('await new Promise(r => setTimeout(r, 50)); 2').text == '2'


# Errors

def test_errors_have_the_cells_lines_and_none_of_ours(shared):
    n = shared.run('function bad(x) {\n  return x.missing.deep\n}').end['execution_count']
    e = shared.run('1\nbad({})').error
    assert e['name'] == 'TypeError' and 'return x.missing.deep' in e['traceback'] and f'cell-{n}:2' in e['traceback']
    assert 'inspector' not in e['traceback'] and 'interpreter/node' not in e['traceback']
    assert shared.run('throw "text"').error['value'] == 'text'
    assert shared.run('throw {code: 5}').error['value'] == '{ code: 5 }'
    assert shared.run('throw null').error['value'] == 'null'
    assert shared.run('nope').error['value'] == 'nope is not defined'
    assert shared.run('(function f() { f() })()').error['name'] == 'RangeError'
    assert 'cause' in shared.run('throw new Error("o", {cause: new Error("inner")})').error['traceback']


def test_syntax_errors_have_their_position(shared):
    e = shared.run('let ok = 1\nlet x = ;').error
    assert (e['name'], e['line'], e['column']) == ('SyntaxError', 2, 9)
    assert shared.run('JSON.parse("{")').error['name'] == 'SyntaxError'


def test_leaving_the_process_is_an_error_of_the_cell(shared):
    shared.run('const kept = 1')
    assert shared.run('process.exit(3)').error['name'] == 'ProcessExit'
    assert shared.run('kept').text == '1'


def test_env_holds_for_one_execution(shared):
    code = '[process.env.CELL_X, process.env.HOME]'
    assert shared.run(code, env={'CELL_X': 'y', 'HOME': None}).text == "[ 'y', undefined ]"
    assert shared.run('process.env.CELL_X').main is None


# Interrupts and ends

@pytest.mark.parametrize('code', ['while (true) {}', 'await new Promise(() => {})', 'new Promise(r => setTimeout(r, 300000))',
                                  'for (;;) console.log("x".repeat(50))'])
def test_an_interrupt_keeps_variables(fresh, code):
    fresh.run('const kept = 5')
    number = fresh.begin(code)
    time.sleep(0.4)
    fresh.interrupt()
    events = fresh.until_end(number, 10)
    assert events[-2]['name'] == 'KeyboardInterrupt'
    assert fresh.run('kept').text == '5'


def test_interrupts_between_cells_do_nothing(fresh):
    for _ in range(10):
        fresh.interrupt()
    assert fresh.run('1').text == '1'


def test_the_end_of_the_process_is_seen(fresh):
    fresh.begin('console.log("before"); process.kill(process.pid, "SIGKILL")')
    assert fresh.event()['text'] == 'before\n'
    with pytest.raises(Ended):
        fresh.event()


def test_a_hang_up_ends_the_kernel(fresh):
    fresh.process.stdin.close()
    assert fresh.process.wait(5) == 0


def test_a_hang_up_ends_a_cell_that_waits(fresh):
    fresh.begin('await new Promise(() => setInterval(() => {}, 1000))')
    time.sleep(0.3)
    fresh.process.stdin.close()
    fresh.process.wait(8)


def test_nothing_is_left_in_the_temporary_folder(tmp_path):
    with Kernel(node('javascript', NODE), env={'TMPDIR': str(tmp_path)}) as k:
        assert k.run('1').text == '1'
        assert os.listdir(tmp_path) == []


# Bad input

def test_ten_megabytes_of_code(shared):
    assert shared.run('const big = "' + 'a' * (10 << 20) + '"; big.length').text == str(10 << 20)
    assert shared.run('"a\0b".length').text == '3'
    assert shared.run('1').text == '1'


def test_frames_that_are_no_requests(fresh):
    for bad in (5, None, {'a': 1}):
        assert 'code must be a string' in fresh.ask('execute', code=bad)['message']
    assert 'no request' in fresh.ask('nonsense')['message']
    assert 'restrict' in fresh.ask('start', restrict={'imports': ['fs']})['message']
    for body in (b'[1]', b'{', b'\xff', b'', b'null'):
        fresh.raw(struct.pack('<I', len(body)) + body)
        event = fresh.event()
        assert (event['type'], event['id']) == ('refused', None)
    assert fresh.run('1').text == '1'
    fresh.raw(b'\xff\xff\xff\xff')
    with pytest.raises(Ended, match='65'):
        fresh.event()


def test_requests_in_pieces_and_many_at_once(fresh):
    bodies = [json.dumps({'type': 'execute', 'id': i, 'code': f'{i}'}).encode() for i in range(50)]
    data = b''.join(struct.pack('<I', len(b)) + b for b in bodies)
    for at in range(0, len(data), 7):
        fresh.raw(data[at:at + 7])
    for i in range(50):
        assert fresh.until_end(i)[0]['mime']['text/plain'] == str(i)


# What editors ask

def test_complete_inspect_is_complete_history(fresh):
    fresh.run('const variableOne = {keyA: 1, keyB: 2}; function adder(a, b) { return a + b }; let ran = false')
    assert fresh.ask('complete', code='x = variableO')['matches'] == ['variableOne']
    r = fresh.ask('complete', code='variableOne.key')
    assert (r['matches'], r['start'], r['end']) == (['keyA', 'keyB'], 12, 15)
    assert 'log' in fresh.ask('complete', code='console.l')['matches']
    fresh.ask('complete', code='(ran = true).x')
    assert fresh.run('ran').text == 'false'
    r = fresh.ask('inspect', code='adder(1', cursor=3)
    assert r['found'] and 'return a + b' in r['mime']['text/plain']
    assert not fresh.ask('inspect', code='nothingHere')['found']
    for code, status in (('1+1', 'complete'), ('function f() {', 'incomplete'), ('if (x) {\n  y', 'incomplete'), ('a b', 'invalid'),
                         ('f(1,', 'incomplete'), ('`abc', 'incomplete'), ('await x', 'complete'), ('import a from "b"', 'complete'),
                         ('', 'complete'), ('let x = ', 'incomplete'), ('let = 5 6', 'invalid'), ('}', 'invalid')):
        assert fresh.ask('is_complete', code=code)['status'] == status, code
    assert [c['code'] for c in fresh.ask('history', last=1)['cells']] == ['ran']


# TypeScript

TYPED = '''interface P { name: string; age?: number }
type Id = string | number
const people: P[] = [{ name: "Ada", age: 36 }, { name: "Bob" }]
function first<T>(xs: T[]): T { return xs[0] }
(first<P>(people) as P).name'''


@pytest.fixture(params=['package', 'program'])
def remover(request, tmp_path_factory):
    """A folder in which something removes types, for versions of Node that cannot: a package, or Debian's program esbuild."""
    folder = tmp_path_factory.mktemp('ts')
    if request.param == 'package':
        subprocess.run(['npm', 'install', '--no-audit', '--no-fund', '--silent', 'typescript@5'], cwd=folder, check=True, timeout=120)
    return str(folder)


def test_typescript(remover):
    with Kernel(node('typescript', NODE), cwd=remover) as k:
        assert k.ready['language'] == 'typescript'
        assert k.run(TYPED).text == "'Ada'"
        assert k.run('const n: number = 4; n satisfies number').text == '4'
        assert k.run('enum Color { Red, Green }\nColor.Green').text == '1'
        assert k.run('import type { Stats } from "fs"\nimport { join, type ParsedPath } from "path"\njoin("a", "b")').text == "'a/b'"
        assert k.run('await Promise.resolve<number>(3)').text == '3'
        assert k.run('const x: = 3').error['name'] == 'SyntaxError'
        assert k.run('class A { constructor(private x: number) {} get() { return this.x } }\nnew A(7).get()').text == '7'
        assert k.ask('is_complete', code='const a: number = 1')['status'] == 'complete'


def test_typescript_without_anything_that_removes_types(tmp_path):
    can = subprocess.run([NODE, '-p', 'typeof require("module").stripTypeScriptTypes'], capture_output=True, text=True).stdout.strip()
    with Kernel(node('typescript', NODE), cwd=str(tmp_path), env={'PATH': str(tmp_path)}) as k:
        if can == 'function':
            assert k.run(TYPED).text == "'Ada'"
        else:
            e = k.run(TYPED).error
            assert e['name'] == 'TypeScriptUnavailable' and 'install one of the packages' in e['value']
            assert k.run('1 + 1').text == '2'

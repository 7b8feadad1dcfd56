"""The shell's kernel as a process, with bash and with the plain sh where there is no bash."""
import os
import struct
import subprocess
import time

import pytest
from kernel import Ended, Kernel, shell

# A root without bash: what the kernel finds there is sh (dash).
NO_BASH = ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', 'mount --bind /dev/null /bin/bash && exec "$0"']


def argv(kind):
    return shell() if kind == 'bash' else NO_BASH + shell()


@pytest.fixture(scope='module', params=['bash', 'sh'])
def kind(request):
    return request.param


@pytest.fixture
def fresh(kind):
    with Kernel(argv(kind)) as k:
        assert k.ready['language'] == 'shell' and k.ready['version'] == kind
        yield k


@pytest.fixture(scope='module')
def shared(kind):
    with Kernel(argv(kind)) as k:
        yield k


# State

def test_variables_functions_and_folder_stay(fresh, tmp_path):
    fresh.run(f'x="a b"; f() {{ echo "f: $1 $x"; }}; cd "{tmp_path}"; export EXPORTED=1; alias greet="echo hello"')
    r = fresh.run('f 1; pwd; sh -c \'echo $EXPORTED\'; greet')
    assert r.stdout == f'f: 1 a b\n{tmp_path}\n1\nhello\n' and r.error is None and r.stderr == ''


def test_nothing_but_the_commands_output_is_output(fresh):
    assert fresh.run('true').events == [{'type': 'end', 'id': 1, 'status': 'ok', 'execution_count': 1, 'dropped': 0}]
    assert fresh.run('').error is None
    assert fresh.run('# only this').error is None
    assert fresh.run('echo one').stdout == 'one\n'
    assert fresh.run('echo "what!? !! `echo back` $((2 * 21))"').stdout == 'what!? !! back 42\n'


def test_a_status_other_than_zero_is_an_error(shared):
    r = shared.run('echo before; false')
    assert r.stdout == 'before\n' and (r.error['name'], r.error['value']) == ('ExitStatus', '1')
    assert shared.run('no_such_program').error['value'] == '127'
    assert shared.run('sh -c "exit 42"').error['value'] == '42'
    assert shared.run('false; true').error is None


def test_scripts_of_several_lines(shared):
    code = 'total=0\nfor i in 1 2 3; do\n  total=$((total + i))\ndone\ncat <<END\ntotal $total\nEND\nif [ $total -eq 6 ]; then echo six; fi'
    assert shared.run(code).stdout == 'total 6\nsix\n'
    assert shared.run('seq 100000 | tail -1').stdout == '100000\n'


def test_an_exit_replaces_the_shell_in_the_same_folder(fresh, tmp_path):
    fresh.run(f'cd "{tmp_path}"; x=1')
    exited = fresh.run('exit 3')
    e = exited.error
    assert e['name'] == 'ShellExited' and 'status 3' in e['value'] and exited.end['state'] == 'lost'
    assert fresh.run('echo "[$x]"; pwd').stdout == f'[]\n{tmp_path}\n'
    assert fresh.run('kill -9 $$').error['name'] == 'ShellExited'
    assert fresh.run('echo on').stdout == 'on\n'


@pytest.mark.parametrize('code', ['for i in 1', 'echo "open', ')', 'if true; then', ': ${nope?missing}', 'f() {', 'readonly r=1; r=2; :',
                                  '. /no/such/file', 'shift 99'])
def test_errors_of_the_shell_leave_it_running(fresh, code):
    fresh.run('kept=5')
    fresh.run(code, timeout=10)
    assert fresh.run('echo $kept').stdout == '5\n'


def test_env_holds_for_one_execution(fresh):
    fresh.run('OLD=before; SPACED="a  b"')
    code = 'echo "$NEW|$OLD|$SPACED"; sh -c \'echo "$NEW"\''
    assert fresh.run(code, env={'NEW': "it's $HOME", 'OLD': 'x', 'SPACED': None}).stdout == "it's $HOME|x|\nit's $HOME\n"
    assert fresh.run(code).stdout == '|before|a  b\n\n'
    assert fresh.run('exit 0', env={'NEW': '1'}).error
    assert fresh.run('echo "[$NEW]"').stdout == '[]\n'


def test_start_sets_folder_environment_and_limit(kind, tmp_path):
    with Kernel(argv(kind), cwd='/') as k:
        assert k.ask('start', cwd=str(tmp_path), env={'A': 'b'}, output_max=10)['type'] == 'reply'
        assert k.run('echo $A').stdout == 'b\n'
        assert k.run('pwd').stdout == str(tmp_path)[:10]
        assert 'no/such' in k.ask('start', cwd='/no/such')['message']
        assert 'restrict' in k.ask('start', restrict={'imports': []})['message']


# Output

def test_streams_are_apart_and_characters_whole(shared):
    r = shared.run('echo out; echo err >&2; printf "\\303"; sleep 0.1; printf "\\244\\377\\n"')
    assert r.stdout == 'out\nä\ufffd\n' and r.stderr == 'err\n'
    assert shared.run('cat').stdout == ''


def test_output_is_bounded_and_what_is_lost_is_counted(kind):
    with Kernel(argv(kind), output_max=1 << 20) as k:
        r = k.run('yes | head -c 5000000')
        assert len(r.stdout) == 1 << 20 and r.end['dropped'] == 5000000 - (1 << 20)
        assert k.run('echo 1').stdout == '1\n'


def test_jobs_that_print_later_belong_to_no_execution(fresh):
    fresh.run('(sleep 0.3; echo late) &')
    event = fresh.event(5)
    assert (event['type'], event['id'], event['text']) == ('stdout', None, 'late\n')


# Interrupts and ends

@pytest.mark.parametrize('code', ['sleep 300', 'while :; do :; done', 'sleep 300; echo never', 'yes', 'sleep 300 | cat', 'read x < /dev/zero',
                                  'for i in 1 2 3; do sleep 100; done'])
def test_an_interrupt_keeps_variables(fresh, code):
    fresh.run('kept=5')
    number = fresh.begin(code)
    time.sleep(0.4)
    fresh.interrupt()
    events = fresh.until_end(number, 10)
    assert events[-2]['name'] == 'KeyboardInterrupt' and 'never' not in str(events)
    assert fresh.run('echo $kept').stdout == '5\n'


def test_interrupts_between_cells_do_nothing(fresh):
    fresh.run('kept=5')
    for _ in range(10):
        fresh.interrupt()
    assert fresh.run('echo $kept').stdout == '5\n'


def left_over(mark):
    return subprocess.run(['pgrep', '-f', f'sleep {mark}$'], capture_output=True, text=True).stdout.split()


def test_a_hang_up_ends_kernel_and_commands(fresh):
    mark = f'30{os.getpid()}'
    fresh.begin(f'trap "" INT; sleep {mark}')
    time.sleep(0.4)
    assert left_over(mark)
    fresh.process.stdin.close()
    fresh.process.wait(8)
    assert not left_over(mark)


def test_a_hang_up_between_cells(fresh):
    fresh.process.stdin.close()
    assert fresh.process.wait(5) == 0


# Bad input

def test_large_and_strange_code(shared):
    big = 'x="' + 'a' * (10 << 20) + '"; echo ${#x}'
    assert shared.run(big, timeout=120).stdout == f'{10 << 20}\n'
    assert 'NUL' in shared.ask('execute', code='echo a\0b')['message']
    assert shared.run('x=; echo fine').stdout == 'fine\n'


def test_requests_that_are_none(fresh):
    for bad in (5, None, {'a': 1}):
        assert 'code must be a string' in fresh.ask('execute', code=bad)['message']
    assert 'no request' in fresh.ask('nonsense')['message']
    assert 'not the name' in fresh.ask('execute', code='1', env={'A=B': 'x'})['message']
    assert 'env must be an object' in fresh.ask('execute', code='1', env=[])['message']
    for body in (b'[1]', b'{', b'\xff', b'', b'null', b'{"id": 1} x'):
        fresh.raw(struct.pack('<I', len(body)) + body)
        assert fresh.event()['type'] == 'refused'
    assert fresh.run('echo 1').stdout == '1\n'
    fresh.raw(b'\xff\xff\xff\xff')
    with pytest.raises(Ended, match='65'):
        fresh.event()


def test_a_stream_cut_inside_a_request_is_the_end(fresh):
    fresh.raw(struct.pack('<I', 100) + b'{"type"')
    fresh.process.stdin.close()
    with pytest.raises(Ended, match='65'):
        fresh.event()


# What editors ask

def test_is_complete_and_history(fresh):
    for code, status in (('echo a', 'complete'), ('for i in 1; do', 'incomplete'), ('echo "a', 'incomplete'), ('if true; then', 'incomplete'),
                         (')', 'invalid'), ('f() {\n echo', 'incomplete'), ('', 'complete')):
        assert fresh.ask('is_complete', code=code)['status'] == status, code
    fresh.run('echo 1')
    fresh.run('false')
    assert fresh.ask('history')['cells'] == [{'execution_count': 1, 'code': 'echo 1'}, {'execution_count': 2, 'code': 'false'}]
    assert [c['code'] for c in fresh.ask('history', last=1)['cells']] == ['false']


def test_complete_and_inspect(fresh, kind, tmp_path):
    (tmp_path / 'some_file.txt').write_text('')
    fresh.run(f'cd {tmp_path}; my_variable=7; my_function() {{ :; }}')
    r = fresh.ask('complete', code='cat some_f')
    assert (r['matches'], r['start'], r['end']) == (['some_file.txt'], 4, 10)
    if kind == 'bash':
        assert fresh.ask('complete', code='echo $my_v')['matches'] == ['my_variable']
        assert 'my_function' in fresh.ask('complete', code='my_f')['matches']
        assert '7' in fresh.ask('inspect', code='my_variable')['mime']['text/plain']
    assert 'function' in fresh.ask('inspect', code='my_function', cursor=3)['mime']['text/plain']
    assert not fresh.ask('inspect', code='nothing_like_this')['found']
    assert fresh.run('echo $my_variable').end['execution_count'] == 2

"""The kernel for R as a process."""
import base64
import os
import struct
import time

import pytest
from kernel import Ended, Kernel, Result, shell

R = shell() + ['r']


@pytest.fixture
def fresh():
    with Kernel(R, output_max=1 << 20) as k:
        assert k.ready['language'] == 'r'
        yield k


@pytest.fixture(scope='module')
def shared():
    with Kernel(R) as k:
        yield k


def mimes(r):
    return [sorted(x['mime']) for x in r.results]


def test_variables_stay_and_values_show(fresh):
    assert fresh.run('x <- 20').results == []
    assert fresh.run('x * 2 + 2').main == {'text/plain': '[1] 42'}
    r = fresh.run('x; "two"; invisible(3)')
    assert [x['mime']['text/plain'] for x in r.results] == ['[1] 20', '[1] "two"'] and r.main is None
    assert fresh.run('NULL').text == 'NULL' and fresh.run('.Last.value').text == 'NULL'
    assert fresh.run('f <- function(a) {\n  a + 1\n}\nf(1)').text == '[1] 2'
    assert fresh.run('print.mine <- function(x, ...) cat("mine!\\n")\nstructure(1, class = "mine")').text == 'mine!'
    assert fresh.run('setClass("P", representation(n = "numeric"))\nnew("P", n = 1)').text.startswith('An object of class "P"')


def test_output_comes_in_order_and_in_utf8(shared):
    r = shared.run('cat("ä 日本\\n"); message("told"); cat("no end"); "last"')
    assert r.stdout == 'ä 日本\nno end' and r.stderr == 'told\n' and r.text == '[1] "last"'
    kinds = [e['type'] for e in shared.run('cat("1\\n"); 1; cat("2\\n"); 2').events]
    assert kinds == ['stdout', 'result', 'stdout', 'result', 'end']
    assert shared.run('system("echo child; echo err >&2")').stdout == 'child\n'
    assert shared.run('warning("beware")').stderr.endswith('beware\n')
    assert shared.run('readline("? ")').text == '[1] ""' and shared.run('length(readLines(file("stdin")))').text == '[1] 0'
    assert shared.run('system("cat; echo over")').stdout == 'over\n'


def test_data_frames_and_lists(shared):
    r = shared.run('data.frame(a = 1:3, b = c("x", "<é>", NA), c = c(0.1, NA, Inf), d = as.Date("2024-02-01"), e = factor(c("p", "q", "p")))')
    assert sorted(r.main) == ['text/html', 'text/plain'] and '&lt;é&gt;' in r.main['text/html'] and '3 rows × 5 columns' in r.main['text/html']
    assert r.results[0]['data'] == {'a': [1, 2, 3], 'b': ['x', '<é>', None], 'c': [0.1, None, None], 'd': ['2024-02-01'] * 3, 'e': ['p', 'q', 'p']}
    r = shared.run('data.frame(n = 1:300000)')
    assert len(r.results[0]['data']['n']) == 200000 and r.results[0]['truncated_data'] == 300000 and len(r.main['text/html']) < 10000
    assert shared.run('list(a = 1, b = list("q\\"\\\\\\n", TRUE), c = c(1.5, NA), d = NULL)').main['application/json'] == {
        'a': 1, 'b': ['q"\\\n', True], 'c': [1.5, None], 'd': None}
    assert 'application/json' not in shared.run('list(function(x) x)').main
    assert mimes(shared.run('structure(list(1), class = "own")')) == [['text/plain']]
    assert shared.run('data.frame()').results[0]['mime']['text/plain'] == 'data frame with 0 columns and 0 rows'
    assert shared.run('paste <- 1; paste0 <- function(...) "broken"; c <- 3; head(mtcars, 2)').results[0]['data']['mpg'] == [21, 21]
    shared.run('rm(paste, paste0, c)')


def png(r):
    found = [base64.b64decode(x['mime']['image/png']) for x in r.results if 'image/png' in x['mime']]
    return [struct.unpack('>II', p[16:24]) for p in found if p.startswith(b'\x89PNG')]


def test_figures(shared, tmp_path):
    r = shared.run('plot(1:3)\nlines(3:1)\nhist(c(1, 2, 2)); "value"')
    assert png(r) == [(700, 700)] * 2 and r.text == '[1] "value"'
    assert png(shared.run('options(repr.plot.width = 4, repr.plot.height = 3)\nplot(1)')) == [(400, 300)]
    assert png(shared.run('plot(1); dev.off()')) == [(400, 300)] and png(shared.run('par(mar = c(1, 1, 1, 1))')) == []
    r = shared.run(f'png("{tmp_path}/own.png"); plot(1); invisible(dev.off())')
    assert png(r) == [] and os.path.getsize(f'{tmp_path}/own.png') > 500
    r = shared.run('options(repr.plot.width = 200, repr.plot.height = 200)\nplot(1)')
    assert png(r) == [] and 'million pixels' in r.error['value']
    shared.run('options(repr.plot.width = NULL, repr.plot.height = NULL)')
    r = shared.run('plot(1)\nstop("late")')  # what was drawn before it is shown
    assert png(r) == [(700, 700)] and r.error['value'] == 'late'
    assert png(shared.run('1')) == []


def test_results_of_other_kinds(shared):
    r = shared.run('display_html("<b>x</b>"); display_json("{\\"a\\": [1]}"); display_markdown("# t"); display(5); display_json("no"); 6')
    assert [x['mime'] for x in r.results[:4]] == [{'text/html': '<b>x</b>'}, {'application/json': {'a': [1]}}, {'text/markdown': '# t'}, {'text/plain': '[1] 5'}]
    assert r.results[4]['truncated'] == {'application/json': 2} and r.text == '[1] 6' and [x['is_main'] for x in r.results] == [False] * 5 + [True]


def test_errors_have_name_place_and_trace(shared):
    r = shared.run('g <- function(v) stop("bad ", v)\nf <- function(v) g(v)\nf(3)')
    assert (r.error['name'], r.error['value']) == ('Error', 'bad 3') and r.end['status'] == 'error'
    assert 'Error in g(v): bad 3' in r.error['traceback'] and 'f(3)  (<cell' in r.error['traceback'] and 'line 3' in r.error['traceback']
    e = shared.run('y <- 1\nx <- = 2').error
    assert (e['name'], e['value'], e['line'], e['column']) == ('ParseError', "unexpected '='", 2, 6)
    assert shared.run('for (i in').error['value'] == 'unexpected end of input'
    assert shared.run('library(no.such.package)').error['name'] == 'packageNotFoundError'
    assert shared.run('stop(structure(class = c("own", "error", "condition"), list(message = "m", call = NULL)))').error['name'] == 'own'
    assert shared.run('quit(status = 3)').error['name'] == 'QuitError' and shared.run('1').text == '[1] 1'
    assert shared.run('sink(tempfile()); stop("in a sink")').error['value'] == 'in a sink' and shared.run('cat("seen")').stdout == 'seen'
    r = shared.run('h <- function(n) h(n + 1)\nh(1)')
    assert r.error and shared.run('1 + 1').text == '[1] 2'


def test_interrupt_keeps_variables(fresh):
    fresh.run('kept <- 7')
    for code in ('repeat {}', 'Sys.sleep(60)', 'system("sleep 60")', 'while (TRUE) cat("x\\n")'):
        number = fresh.begin(code)
        time.sleep(0.4)
        fresh.interrupt()
        r = Result(fresh.until_end(number))
        assert r.error is None or r.error['name'] in ('KeyboardInterrupt', 'Error'), (code, r.error)
        assert fresh.run('kept').text == '[1] 7'


def test_environment_and_folder(tmp_path):
    with Kernel(R, cwd='/', env={'A': '1'}) as k:
        assert k.ask('start', cwd=str(tmp_path), env={'B': 'two\nlines', 'A': None})['type'] == 'reply'
        assert k.run('getwd()').text == f'[1] "{tmp_path}"' and k.run('Sys.getenv(c("A", "B"), "none")').text.split()[-2:] == ['"none"', '"two\\nlines"']
        assert k.run('Sys.getenv("C")', env={'C': 'ä='}).text == '[1] "ä="' and k.run('Sys.getenv("C", NA)').text == '[1] NA'
        assert k.run('Sys.getenv("B", NA)', env={'B': None}).text == '[1] NA' and k.run('nchar(Sys.getenv("B"))').text == '[1] 9'


def test_too_much_of_everything(fresh):
    r = fresh.run('cat(strrep("x", 3e6)); "end"')
    assert len(r.stdout) == 1 << 20 and r.end['dropped'] == 3_000_000 - (1 << 20) and r.text == '[1] "end"'
    r = fresh.run('strrep("y", 3e6)')
    assert len(r.text) == 1 << 20 and r.results[0]['truncated']['text/plain'] > 3_000_000
    r = fresh.run('display_html(strrep("h", 30e6)); 1')
    assert r.results[0] == {**r.results[0], 'mime': {}, 'truncated': {'text/html': 30_000_000}} and r.text == '[1] 1'
    r = fresh.run('for (i in 1:2000) display(i)')
    assert r.error['name'] == 'TooManyResults' and len(r.results) == 1000
    assert fresh.run('e <- new.env(); e$e <- e; l <- list(); for (i in 1:3000) l <- list(l); length(l)').text == '[1] 1'
    assert fresh.run('1').text == '[1] 1'
    assert fresh.ask('execute', code='a\0b')['message'] == 'code must not have NULs'


def test_what_editors_ask(shared):
    shared.run('variable_one <- 1; variable_two <- function(a, b = 2) a')
    r = shared.ask('complete', code='1 + variable_', cursor=13)
    assert r['matches'] == ['variable_one', 'variable_two'] and (r['start'], r['end']) == (4, 13)
    assert shared.ask('complete', code='x <- "é"\nmtca', cursor=13)['matches'] == ['mtcars']
    for code, status in (('1 + 1', 'complete'), ('f <- function(', 'incomplete'), ('"open', 'incomplete'), ('x <- = 1', 'invalid')):
        assert shared.ask('is_complete', code=code)['status'] == status, code
    r = shared.ask('inspect', code='variable_two(1)', cursor=3)
    assert r['found'] and 'function (a, b = 2)' in r['mime']['text/plain']
    assert not shared.ask('inspect', code='no_such', cursor=2)['found']
    assert [c['code'] for c in shared.ask('history', last=1)['cells']][0].startswith('variable_one')


@pytest.mark.parametrize('code, status', (('tools::pskill(Sys.getpid(), 9)', -9), ('tools::pskill(Sys.getpid(), 11)', None)))
def test_the_kernel_ends_as_r_ends(code, status):
    with Kernel(R) as k:
        with pytest.raises(Ended):
            k.run('cat("before\\n")\n' + code)
        ended = k.process.wait(10)
        assert ended == status or (status is None and ended != 0)


def test_a_fork_does_not_become_a_second_kernel(shared):
    shared.run('kept <- 1')
    assert shared.run('p <- parallel:::mcfork(); cat(""); display(2); 5').text == '[1] 5'
    assert shared.run('library(parallel); unlist(mccollect(lapply(1:3, function(i) mcparallel({ display(i); i * 2 }))), use.names = FALSE)').text == '[1] 2 4 6'
    for i in range(20):
        assert shared.run(f'kept + {i}').text == f'[1] {1 + i}'


def test_forged_messages_do_no_harm():
    with Kernel(R) as k:
        r = k.run('w <- file("/proc/self/fd/9", "wb", raw = TRUE); writeBin(charToRaw("end 6\\n9 0 /xxx"), w); flush(w); 5')
        assert k.run('6').text == '[1] 6' and r.end['status'] == 'ok'
        try:
            k.run('writeBin(as.raw(rep(65, 300)), w); flush(w); 5')
        except Ended:
            pass


def test_a_sandbox_without_r_says_so():
    with Kernel(R, env={'PATH': '/nonexistent'}) as k:
        with pytest.raises(Ended):
            k.ask('start')


def test_the_folder_of_a_kernel_that_was_killed_goes_with_the_next(tmp_path):
    def folder(k):
        made = k.run('cat(tempdir())').stdout
        k.run('writeLines("x", file.path(tempdir(), "mine"))')
        return made
    env = {'TMPDIR': str(tmp_path)}
    with Kernel(R, env=env) as dead:
        first = folder(dead)
        os.kill(int(dead.run('cat(Sys.getpid())').stdout), 9)
    assert os.path.exists(first + '/mine') and first.startswith(str(tmp_path))
    with Kernel(R, env=env) as one, Kernel(R, env=env) as two:
        assert one.run('1').text == '[1] 1' and not os.path.exists(first)
        assert all(os.path.exists(folder(k) + '/mine') for k in (one, two, one))

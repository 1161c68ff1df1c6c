#!/usr/bin/python3
"""The test driver tested: what must count as a failure does."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("run", os.path.join(HERE, "..", "run"))
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
loader.exec_module(run)

NODE_TAP = """TAP version 13
# Subtest: suite
    # Subtest: good
    ok 1 - good
      ---
      duration_ms: 0.2
      ...
    # Subtest: bad
    not ok 2 - bad
      ---
      duration_ms: 1.8
      failureType: 'testCodeFailure'
      ...
    # Subtest: later
    ok 3 - later # SKIP
      ---
      ...
    1..3
not ok 1 - suite
  ---
  failureType: 'subtestsFailed'
  ...
ok 2 - tests/e2e/empty.test.mjs
  ---
  ...
1..2
# tests 4
# pass 2
# fail 1
# cancelled 0
# skipped 1
# todo 0
"""


def shell(script, env=None):
    def body(phase):
        phase.ok(phase.call(["sh", "-c", script], env) == 0, script)
    return body


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        run.LOGS, run.GRACE_S = folder.name, 0.5

    def phase(self, body, name="p", needs=(), limit_s=20):
        return run.Phase(name, needs, body, limit_s)

    def ran(self, *phases):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            run.run_all(list(phases))
        return out.getvalue()

    def test_counts_cmocka(self):
        p = self.phase(None)
        text = "1..4\nok 1 - a\nnot ok 2 # SKIP b\nnot ok 3 - c\n# not ok - group\nok 4 - d\n"
        self.assertEqual(run.count_tap(p, text, "t"), 4)
        self.assertEqual((p.passed, p.failures, len(p.skips)), (2, ["t: c"], 1))

    def test_counts_node(self):
        p = self.phase(None)
        run.count_node(p, NODE_TAP, ["tests/e2e/empty.test.mjs"], 1)
        self.assertEqual(p.passed, 1)
        self.assertEqual(p.failures, ["tests/e2e/empty.test.mjs: no test in this file", "bad"])
        self.assertEqual(p.skips, ["later"])

    def test_exit_status_without_a_failed_test_is_a_failure(self):
        p = self.phase(None)
        run.count_node(p, "# pass 3\n# fail 0\n# cancelled 0\n", [], 7)
        self.assertEqual((p.passed, p.failures), (3, ["node --test: exit status 7"]))

    def test_what_fails_once_is_unsteady_and_has_failed_all_the_same(self):
        self.addCleanup(setattr, run, "AGAIN", False)
        for again, second, expected in ((False, 0, (0, 1, 0)), (True, 0, (0, 1, 1)), (True, 1, (0, 1, 0))):
            run.AGAIN = again
            p = self.phase(None)
            p.failures = ["bad"]

            def alone(name):
                done = self.phase(None)
                done.ok(second == 0, name)
                return done

            run.try_again(p, ["f"], alone)
            self.assertEqual((p.passed, len(p.failures), len(p.unsteady)), expected)

    def test_the_file_of_a_failed_test_is_found(self):
        text = "not ok 1 - a\n  ---\n  duration_ms: 1\n  location: '%s:3:1'\n  ...\nok 2 - b\n  ---\n  location: 'x:1:1'\n  ...\n"
        files = ["tests/e2e/a.test.mjs", "tests/e2e/b.test.mjs"]
        self.assertEqual(run.failed_files(text % os.path.abspath(files[1]), files), [files[1]])

    def test_good_phase_passes(self):
        p = self.phase(shell("true"))
        self.ran(p)
        self.assertEqual((p.passed, p.failures), (1, []))

    def test_no_test_is_a_failure(self):
        p = self.phase(lambda phase: None)
        self.ran(p)
        self.assertEqual(p.failures, ["p: no test was run"])

    def test_failed_command_shows_its_log(self):
        p = self.phase(shell("echo the reason; exit 3"))
        out = self.ran(p)
        self.assertEqual(len(p.failures), 1)
        self.assertIn("   | the reason", out)

    def test_hung_phase_is_ended(self):
        p = self.phase(shell("sleep 60"), limit_s=1)
        self.ran(p)
        self.assertEqual(p.failures, ["p took over 1 s"])
        self.assertLess(p.seconds(), 10)

    def test_exception_in_a_phase_is_a_failure(self):
        def body(phase):
            raise KeyError("oops")
        p = self.phase(body)
        self.ran(p)
        self.assertEqual(len(p.failures), 1)

    def test_needed_phase_failed(self):
        ran = []
        a, b = self.phase(shell("false"), "a"), self.phase(ran.append, "b", ("a",))
        self.ran(a, b)
        self.assertEqual((b.failures, ran), (["b: not run, a failed"], []))

    def test_marked_process_left_behind(self):
        p = self.phase(shell("setsid sleep 61 >/dev/null 2>&1 &"))
        self.ran(p)
        self.assertRegex(p.failures[0], r"^left a process behind: \d+ .*sleep 61")

    def test_hidden_process_left_behind_is_adopted(self):
        run.adopt_orphans()
        # Before it is sleep, it is still in the phase's session.
        p = self.phase(shell("env -i setsid sleep 62 >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done"))
        self.ran(p)
        left = run.end_left_behind(lambda: run.orphans([p]))
        self.assertEqual([c for _, c in left], ["sleep 62"])
        self.assertEqual(run.end_left_behind(lambda: run.orphans([p])), [])

    def test_whole_run_has_a_deadline(self):
        was, run.DEADLINE_S = run.DEADLINE_S, 1
        self.addCleanup(setattr, run, "DEADLINE_S", was)
        a, b = self.phase(shell("sleep 63"), "a"), self.phase(shell("true"), "b", ("a",))
        self.ran(a, b)
        self.assertTrue(a.failures and b.failures)
        self.assertLess(a.seconds(), 10)


if __name__ == "__main__":
    unittest.main()

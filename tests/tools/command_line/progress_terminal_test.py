"""usage: progress_terminal_test.py SLUICE LAYER   long work shows a line on a terminal, and nothing in a pipe

The first seconds of a run that would take hours, and a whole calibration, whose time does not depend on the machine.
"""
import os
import pty
import select
import subprocess
import sys
import time
import unittest

SLUICE, LAYER = sys.argv[1:3]
ENDLESS = [SLUICE, "run", LAYER, "--seed", "1", "--tokens", "8", "--threads", "1", "--repeat", "1000000"]
ERASE = b"\r\033[K"


def read_terminal(command, until):
    """What `command` writes to its standard error, a terminal, up to its end or to `until`, and how it ended."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = b""
    end = time.monotonic() + 200
    while until is None or until not in text:
        if not select.select([mine], [], [], max(0.0, end - time.monotonic()))[0]:
            break
        try:
            text += os.read(mine, 4096)
        except OSError:  # the process has ended
            break
    if until is not None:
        process.terminate()
    status = process.wait(timeout=100)
    os.close(mine)
    return text, status


class Progress(unittest.TestCase):
    def test_a_terminal_shows_the_repetitions_of_a_run(self):
        begin = time.monotonic()
        text, _ = read_terminal(ENDLESS, b" of 1000000")
        self.assertRegex(text, rb"^\r\x1b\[Krepetition [0-9]+ of 1000000")
        self.assertGreaterEqual(time.monotonic() - begin, 2)

    def test_a_pipe_gets_nothing(self):
        process = subprocess.Popen(ENDLESS, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(4)
        self.assertIsNone(process.poll())
        process.terminate()
        self.assertEqual(process.communicate(timeout=100)[1], b"")

    def test_a_calibration_shows_what_it_measures_and_removes_the_line_at_its_end(self):
        text, status = read_terminal([SLUICE, "calibrate"], None)
        self.assertEqual(status, 0, text)
        self.assertRegex(text, rb"[2-7] of 7: measuring ")
        self.assertTrue(text.startswith(ERASE) and text.endswith(ERASE), text)
        self.assertNotIn(b"\n", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

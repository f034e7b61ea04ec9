#!/usr/bin/python3
"""Checks the model of the protocol between ranks exhaustively with spin, and that planted mistakes are found.

usage: ranks_test.py [--all] [--only searches|mistakes] [RANKS.pml]    --all: also what takes minutes

Prints the states of each search. Skips itself where spin is missing.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

# ranks, steps, faults at most; COARSE takes larger steps (the model says which)
SEARCHES = [(2, 2, 1, ""), (2, 1, 2, ""), (2, 3, 0, ""), (3, 1, 1, "COARSE"), (3, 2, 0, "COARSE")]
LONG_SEARCHES = [(2, 3, 1, ""), (2, 2, 2, ""), (3, 2, 1, "COARSE"), (3, 1, 2, "COARSE")]

SMALL, TWO_FAULTS, THREE_RANKS = (2, 2, 1, ""), (2, 1, 2, ""), (3, 1, 0, "COARSE")
MISTAKES = {
    "ONE_HALF": (SMALL, "boards have one half: a rank that is a gather ahead overwrites what another still reads"),
    "NUMBER_POSTED_FIRST": (SMALL, "the number of a board is there before its block"),
    "COUNTS_PUT_LATE": (SMALL, "counts are put after the board that says they are there"),
    "RING_BEFORE_STORE": (SMALL, "a doorbell is rung before what it announces is stored"),
    "EPOCH_READ_LATE": (SMALL, "a waiter reads the epoch after it looked: a ring in between is lost"),
    "LEFT_READ_LATE": (SMALL, "a waiter asks who has left after it looked: who posted and left is missed in vain"),
    "LEFT_SILENTLY": (SMALL, "a rank leaves without a ring"),
    "CLEARED_LATE": (SMALL, "counters are cleared after the counts were posted: signals are lost"),
    "COUNTS_NOT_AWAITED": (SMALL, "rows are sent before the counts of the receiver are there"),
    "ABORT_NOT_ASKED": (SMALL, "a step whose tasks stopped at an abort counts as done"),
    "REFUSED_ALONE": (SMALL, "a rank refuses a step by itself: the others' step pairs with its next one"),
    "REFUSAL_OF_FIRST_ONLY": (THREE_RANKS, "a rank looks at the refusals of itself and rank 0 only"),
    "MESSAGE_UNLOCKED": (TWO_FAULTS, "two threads of a rank abort at once: the message changes after it was read"),
    "LOST_SET_LATE": (SMALL, "a death aborts before the dead rank is named"),
    "DEATH_NOT_TOLD": (SMALL, "a death is noted, but aborts nothing"),
    "WATCHER_DOES_NOT_RING": (TWO_FAULTS, "a rank aborts and dies before it rang, and nobody else rings"),
}
LONGEST = 600  # seconds of a search


class Search:
    """One search in a folder of its own. `errors`: found; `states`: visited; `said`: spin's words of the error."""

    def __init__(self, model, search, mistake=None):
        ranks, steps, faults, coarse = search
        defines = [f"-DN={ranks}", f"-DSTEPS={steps}", f"-DFAULTS={faults}"]
        defines += ["-DCOARSE"] if coarse else []
        defines += [f"-DMISTAKE_{mistake}"] if mistake else []
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(model, os.path.join(folder, "ranks.pml"))
            self._run(["spin", *defines, "-a", "ranks.pml"], folder)
            # deaths stop processes by `provided`, with which spin's partial order reduction is not sound
            self._run(["cc", "-O1", "-w", "-DSAFETY", "-DNOREDUCE", "-DVECTORSZ=2048", "-o", "pan", "pan.c"], folder)
            text = self._run(["./pan", "-E", "-m500000", "-w22"], folder)
        errors = re.search(r"errors: (\d+)", text)
        states = re.search(r"^ *(\d+) states, stored", text, re.M)
        if not errors or not states or "max search depth too small" in text or (
                "Search not completed" in text and errors[1] == "0"):
            raise RuntimeError(f"the search did not end:\n{text[-3000:]}")
        self.errors, self.states = int(errors[1]), int(states[1])
        said = re.search(r"^pan:\d+: (.*)$", text, re.M)
        self.said = said[1] if said else ""

    @staticmethod
    def _run(command, folder):
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LONGEST)
        if done.returncode != 0 and command[0] != "./pan":
            raise RuntimeError(f"{' '.join(command)}: status {done.returncode}:\n{done.stdout}")
        return done.stdout


def name_of(search):
    ranks, steps, faults, coarse = search
    return f"{ranks} ranks, {steps} step(s), {faults} fault(s) at most" + (", larger steps" if coarse else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", choices=("searches", "mistakes"))
    parser.add_argument("model", nargs="?",
                        default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "ranks.pml"))
    given = parser.parse_args()
    model = given.model
    searches = [] if given.only == "mistakes" else SEARCHES + (LONG_SEARCHES if given.all else [])
    mistakes = {} if given.only == "searches" else MISTAKES
    if shutil.which("spin") is None or shutil.which("cc") is None:
        print("SKIP: there is no spin, or no C compiler")
        return 0
    passed = failed = 0
    for search in searches:
        began = time.monotonic()
        found = Search(model, search)
        good = found.errors == 0
        print(f"{name_of(search)}: {found.states:,} states, {time.monotonic() - began:.0f} s: "
              f"{'no error' if good else 'FAILED: ' + found.said}", flush=True)
        passed, failed = passed + good, failed + (not good)
    for mistake, (search, what) in mistakes.items():
        found = Search(model, search, mistake)
        good = found.errors > 0
        print(f"{mistake}: {'found' if good else 'FAILED: not found'} after {found.states:,} states: {what}", flush=True)
        passed, failed = passed + good, failed + (not good)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

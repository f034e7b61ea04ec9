#!/usr/bin/python3
"""Starts the ranks of a job by hand and prints how each ended.

usage: start_ranks.py STYLE N [LATE] -- COMMAND...   STYLE: hand or torchrun; rank 1 starts LATE seconds late
"""
import os
import sys
import time

import processes


def main():
    split = sys.argv.index("--")
    style, size = sys.argv[1], int(sys.argv[2])
    late = float(sys.argv[3]) if split > 3 else 0
    command = sys.argv[split + 1:]
    started = {}
    # the last first, so that nothing depends on the order
    for rank in sorted(range(size), key=lambda number: (number == 1 and late > 0, -number)):
        if rank == 1 and late > 0:
            time.sleep(late)
        variables = (processes.by_hand(f"test-{os.getpid()}", rank, size) if style == "hand" else
                     processes.by_torchrun(20000 + os.getpid() % 40000, rank, size))
        started[rank] = processes.Process(command, variables)
    failed = 0
    for rank in range(size):
        status = started[rank].wait(120)
        failed += status != 0
        print(f"rank {rank}: status {status}")
        for line in (started[rank].printed() + started[rank].text()).splitlines():
            print(f"rank {rank}: {line}")
        started[rank].end()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

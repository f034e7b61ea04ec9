#!/usr/bin/python3
"""Starts the ranks of a job by hand and prints how each ended.

usage: start_ranks.py STYLE N [LATE] -- COMMAND...   STYLE: hand or torchrun; rank 1 starts LATE seconds late
"""
import secrets
import sys
import time

import processes


def main():
    split = sys.argv.index("--")
    style, size = sys.argv[1], int(sys.argv[2])
    late = float(sys.argv[3]) if split > 3 else 0
    command = sys.argv[split + 1:]
    started = {}
    # not by the number of this process: tests beside this one may have a numbering of their own
    job = f"test-{secrets.token_hex(8)}"
    # the last first, so that nothing depends on the order
    for rank in sorted(range(size), key=lambda number: (number == 1 and late > 0, -number)):
        if rank == 1 and late > 0:
            time.sleep(late)
        variables = (processes.by_hand(job, rank, size) if style == "hand" else
                     processes.by_torchrun(job, rank, size))
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

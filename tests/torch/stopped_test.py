"""A rank that is stopped inside a collective call of the package is named at the others after their time limit; one that is late is not."""

import inspect
import os
import pathlib
import signal
import socket
import tempfile
import time
import types
import unittest
import warnings

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import route
from sluice_torch import te
from sluice_torch.ranks import collectives
from sluice_torch.recipe import DelayedScaling

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 32, 48, 4, 2
LIMIT = 1.5  # seconds
AT_ONCE = 6  # jobs, which wait nearly all their time


def make(**options):
    options = {"ep_group": dist.group.WORLD, "timeout": LIMIT, "threads": 1, **options}
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(**options))


def step(layer, **options):
    x = torch.randn(7, HIDDEN).bfloat16().requires_grad_()
    ids, weights = route(7, EXPERTS, TOP_K, 1)
    layer(x, ids, weights, **options).float().sum().backward()
    return layer


def numbers_of_mesh():
    own = [dist.new_group([rank]) for rank in range(2)]
    return make(tp_group=dist.group.WORLD, ep_group=own[dist.get_rank()])._group.members()


def clip():
    layer = step(make())
    sluice_torch.clip_grad_norm_(layer.parameters(), 1.0)


def order():
    make().order_pairs(route(7, EXPERTS, TOP_K, 1)[0])


def move():
    layer = step(make(spare=0))
    layer.place(list(reversed(layer.places.expert_at)))


def amaxes_of(group):
    config = types.SimpleNamespace(sequence_parallel=False, params_dtype=torch.bfloat16)
    layer = te.TEColumnParallelLinear(
        32, 64, config=config, init_method=torch.nn.init.zeros_, bias=False, skip_bias_add=False, gather_output=False,
        is_expert=False, tp_group=dist.group.WORLD, threads=1, timeout=LIMIT,
    )  # fmt: skip
    with sluice_torch.fp8_autocast(fp8_recipe=DelayedScaling(), fp8_group=group):
        layer(torch.randn(4, 1, 32).bfloat16())[0].float().sum().backward()


def free():
    step(make())
    sluice_torch.clear_cache()


def save():
    path = os.path.join(os.environ["TEST_TMPDIR"], "adapters")
    sluice_torch.save_adapters(path, {"a": make(lora=sluice_torch.LoRAConfig(2, 2.0))})


# The call in which a rank is stopped, by what it is called in its message, with the calls before it of that name; and what gets there.
CALLS = {
    "meet for the first time": (0, lambda: step(make())),
    "number the ranks of a mesh": (0, numbers_of_mesh),
    "norms of gradients": (0, clip),
    "order pairs": (0, order),
    "count rows of experts": (0, lambda: make(spare=0).take_rows_seen()),
    "make adapters equal": (0, lambda: make(tp=2, lora=sluice_torch.LoRAConfig(2, 2.0))),
    "sum gradients of adapters": (0, lambda: step(make(tp=2, lora=sluice_torch.LoRAConfig(2, 2.0)))),
    "sum gradients of copies": (0, lambda: step(make(spare=1))),
    "move experts": (0, move),
    "move experts, tensors": (2, move),  # the first two exchange what is asked for
    "exchange amaxes": (0, lambda: amaxes_of(None)),
    "exchange amaxes, fp8_group": (1, lambda: amaxes_of(dist.group.WORLD)),
    "gather down_weight": (0, lambda: sluice_torch.state.full(torch.nn.Sequential(make()))),
    "save adapters": (0, save),
    "free layers": (0, free),
}


def at_call(wanted, then):
    """Calls then() where this process comes to the collective call `wanted`."""
    name, before = wanted.split(",")[0], CALLS[wanted][0]
    seen = []

    def wrapped(real):
        def call(*arguments, **options):
            seen.append(inspect.signature(real).bind(*arguments, **options).arguments["what"])
            if seen[-1] == name and seen.count(name) == before + 1:
                then()
            return real(*arguments, **options)

        return call

    for each in ("gather", "all_reduce", "broadcast", "finish_all"):
        setattr(collectives, each, wrapped(getattr(collectives, each)))


def stopped(rank, size, wanted):
    if rank == 1:
        at_call(wanted, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    started = time.monotonic()
    try:
        CALLS[wanted][1]()
    except RuntimeError as error:
        print(f"{time.monotonic() - started:.1f} s: {error}", flush=True)
        raise SystemExit(3)


def killed(rank, size):
    if rank == 1:
        at_call("order pairs", lambda: os.kill(os.getpid(), signal.SIGKILL))
    order()


def gone(rank, size):
    """A rank that ended before the others came to a call."""
    at_call("move experts, tensors", lambda: os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else time.sleep(1))
    move()


def late(rank, size, told):
    """A rank that loads or compiles for longer than the limit is waited for, with a warning: rank 1 comes when rank 0 has given it."""
    order()  # the ranks have met, before which one may come late, too
    said = []

    def show(message, *details, **named):
        said.append(str(message))
        pathlib.Path(told).touch()

    warnings.simplefilter("always")
    warnings.showwarning = show
    while rank == 1 and not os.path.exists(told):
        time.sleep(0.1)
    order()
    assert len(said) == (rank == 0) and all("order pairs: has waited 1.5 s for rank 1" in each for each in said), said


def without_store(rank, size):
    """Rank 0, which has the store, is stopped: the other cannot know who is missing, and says so."""
    if rank == 0:
        at_call("order pairs", lambda: os.kill(os.getpid(), signal.SIGSTOP))
    order()


class StoppedTest(unittest.TestCase):
    def start(self, name, *arguments, store=None):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        store = store or pathlib.Path(folder.name) / "store"
        return [core_jobs.start(name, rank, 2, store, *arguments, role="rank") for rank in range(2)]

    def end(self, ranks, survivor=0):
        """What the survivor printed, and how it ended; the other one is killed then."""
        said, ended = core_jobs.finish(ranks[survivor], 60)
        ranks[1 - survivor].kill()
        ranks[1 - survivor].communicate()
        return said, ended

    def test_a_stopped_rank_is_named(self):
        names = list(CALLS)
        for first in range(0, len(names), AT_ONCE):
            jobs = {name: self.start("stopped", name) for name in names[first : first + AT_ONCE]}
            for name, ranks in jobs.items():
                with self.subTest(call=name):
                    said, ended = self.end(ranks)
                    self.assertEqual(ended, 3, said)
                    self.assertIn(f"{name.split(',')[0]}: no sign of life from rank 1 for 1.5 s", said)

    def test_a_killed_rank_is_named(self):
        said, ended = self.end(self.start("killed"))
        self.assertEqual(ended, 1, said)
        self.assertIn("order pairs: rank 1 did not take part", said)

    def test_a_rank_that_is_gone_already_is_named(self):
        said, ended = self.end(self.start("gone"))
        self.assertEqual(ended, 1, said)
        self.assertIn("move experts: rank 1 did not take part", said)

    def test_a_late_rank_is_waited_for(self):
        with tempfile.TemporaryDirectory() as folder:
            core_jobs.run_ranks(self, "late", 2, arguments=(os.path.join(folder, "told"),))

    def test_without_the_store_the_wait_ends_too(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        said, ended = self.end(self.start("without_store", store=f"tcp://127.0.0.1:{port}"), survivor=1)
        self.assertEqual(ended, 1, said)
        self.assertIn("the store of torch.distributed", said)


if __name__ == "__main__":
    if not core_jobs.main({each.__name__: each for each in (stopped, killed, gone, late, without_store)}):
        unittest.main()

"""Column- and row-parallel linear layers against torch.matmul in bfloat16 and gloo, with one process per rank."""

import multiprocessing
import os
import statistics
import tempfile
import time
import types

import torch
import torch.distributed as dist

_TINY_CALLS = 200  # calls of a layer with almost no work, per repetition


class Peer:
    """The layer as it is written without overlap: gather or sum over gloo, and torch.matmul."""

    def __init__(self, column: bool, weight: torch.Tensor, rank: int, ranks: int):
        self.column, self.weight, self.rank, self.ranks = column, weight, rank, ranks

    def _gather(self, part):
        parts = [torch.empty_like(part) for _ in range(self.ranks)]
        dist.all_gather([each.view(torch.uint8) for each in parts], part.contiguous().view(torch.uint8))
        return torch.cat(parts)

    def _scatter(self, terms):
        terms = terms.float()  # gloo of PyTorch 1.13 adds no bfloat16, and has no reduce_scatter
        dist.all_reduce(terms)
        return terms.chunk(self.ranks)[self.rank].bfloat16()

    def forward(self, x):
        if self.column:
            self.rows = self._gather(x)
            return self.rows @ self.weight.t()
        self.rows = x
        return self._scatter(x @ self.weight.t())

    def backward(self, dy):
        if self.column:
            return self._scatter(dy @ self.weight), dy.t() @ self.rows
        dy = self._gather(dy)
        return dy @ self.weight, dy.t() @ self.rows


def run_rank(rank: int, store: str, given) -> None:
    """One rank: prints the results at rank 0."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(given.threads)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=given.ranks)
    for column in (True, False):
        measure(column, rank, given.ranks, given)
    dist.destroy_process_group()


def measure(column: bool, rank: int, ranks: int, given) -> None:
    layer = _layer(column, given.ins, given.outs, given.threads)
    peer = Peer(column, layer.weight.detach(), rank, ranks)
    rows, part = given.rows, given.rows // ranks
    made = torch.Generator().manual_seed(rank)
    ins, outs = (given.ins, given.outs // ranks) if column else (given.ins // ranks, given.outs)
    x = torch.randn(part if column else rows, ins, generator=made).bfloat16().requires_grad_()
    dy = torch.randn(rows if column else part, outs, generator=made).bfloat16()
    times = {name: {"forward": [], "backward": []} for name in ("sluice", "peer")}
    for repetition in range(given.repetitions + 2):  # two are not counted: they compile programs and allocate memory
        for name in times:
            dist.barrier()
            began = time.perf_counter()
            y = layer(x)[0] if name == "sluice" else peer.forward(x.detach())
            between = time.perf_counter()
            dist.barrier()
            middle = time.perf_counter()
            if name == "sluice":
                x.grad = layer.weight.grad = None
                y.backward(dy)
            else:
                peer.backward(dy)
            ended = time.perf_counter()
            if repetition >= 2:
                times[name]["forward"].append((between - began) * 1e3)
                times[name]["backward"].append((ended - middle) * 1e3)
    overhead = _overhead(column, given)
    if rank != 0:
        return
    kind = "column parallel" if column else "row parallel"
    for name in ("forward", "backward"):
        ours, theirs = (statistics.median(times[each][name]) for each in ("sluice", "peer"))
        print(f"{kind:<16}{name:<10}{ours:>10.1f}{theirs:>18.1f}{theirs / ours:>10.2f}")
    print(f"{kind:<16}a call with almost no work: {overhead:.0f} us")


def _layer(column: bool, ins: int, outs: int, threads: int):
    from sluice_torch import te

    kind = te.TEColumnParallelLinear if column else te.TERowParallelLinear
    config = types.SimpleNamespace(sequence_parallel=True, params_dtype=torch.bfloat16)
    return kind(ins, outs, config=config, bias=False, tp_group=dist.group.WORLD, threads=threads)


def _overhead(column: bool, given) -> float:
    """Microseconds of a forward of one token per rank without gradients: all of it counts as overhead."""
    layer = _layer(column, 32, 32, given.threads)
    x = torch.randn(1 if column else layer.shape.tp, layer.shape.ins_here).bfloat16()
    best = float("inf")
    with torch.no_grad():
        for _ in range(given.repetitions + 1):
            began = time.perf_counter()
            for _ in range(_TINY_CALLS):
                layer(x)
            best = min(best, (time.perf_counter() - began) / _TINY_CALLS)
    return best * 1e6


def run_all(given) -> int:
    """Starts a process per rank. The exit status: 1 if one failed."""
    print(f"{given.rows} rows, {given.ins} -> {given.outs}, {given.ranks} processes of {given.threads} threads; milliseconds, medians")
    print(f"{'layer':<16}{'pass':<10}{'sluice':>10}{'matmul and gloo':>18}{'ratio':>10}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place, context = os.path.join(folder, "store"), multiprocessing.get_context("spawn")
        ranks = [context.Process(target=run_rank, args=(rank, place, given)) for rank in range(given.ranks)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    return int(any(rank.exitcode for rank in ranks))

"""sluice_torch.MoE at several ranks, which are processes with a torch.distributed group over gloo."""

import contextlib
import copy
import io
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import forks
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import BOUND, eager, error, route
from sluice_torch import Parallel
from sluice_torch.base import library
from sluice_torch.ranks import ranks

HIDDEN, INTERMEDIATE, TOP_K = 64, 48, 2
LIMIT = 120  # seconds for a job


def batch(rank, tokens, experts, seed):
    made = torch.Generator().manual_seed(100 * seed + rank)
    x = torch.randn(tokens, HIDDEN, generator=made).bfloat16().requires_grad_()
    dy = torch.randn(tokens, HIDDEN, generator=made).bfloat16()
    ids, weights = route(tokens, experts, TOP_K, 100 * seed + rank)
    return x, ids, weights.requires_grad_(), dy


def all_weights(experts):
    made = torch.Generator().manual_seed(7)
    gate_up = 0.1 * torch.randn(experts, 2 * INTERMEDIATE, HIDDEN, generator=made)
    down = 0.1 * torch.randn(experts, HIDDEN, INTERMEDIATE, generator=made)
    return gate_up.bfloat16(), down.bfloat16()


def make(group, experts, timeout=20, **options):
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, experts, TOP_K, **grouped(ep_group=group, timeout=timeout, **options))
    first, count = layer.first_expert, layer.gate_up_weight.shape[0]
    with torch.no_grad():
        for weight, whole in zip((layer.gate_up_weight, layer.down_weight), all_weights(experts)):
            weight.copy_(whole[first : first + count])
    return layer


def check_step(layer, rank, counts, experts, seed):
    """A step of this rank, against one process that has the tokens and experts of all ranks."""
    x, ids, weights, dy = batch(rank, counts[rank], experts, seed)
    y = layer(x, ids, weights)
    found = torch.autograd.grad(y, [x, weights, layer.gate_up_weight, layer.down_weight], dy)
    parts = [batch(r, tokens, experts, seed) for r, tokens in enumerate(counts)]
    whole = [weight.float().requires_grad_() for weight in all_weights(experts)]
    leaves = [[part[0].detach().float().requires_grad_(), part[2]] for part in parts]
    ys = [eager(leaf[0], part[1], leaf[1], *whole) for leaf, part in zip(leaves, parts)]
    expected = torch.autograd.grad(ys, leaves[rank] + whole, [part[3].float() for part in parts])
    own = slice(layer.first_expert, layer.first_expert + layer.gate_up_weight.shape[0])
    assert error(y, ys[rank]) < BOUND, error(y, ys[rank])
    for name, a, b in zip(("x", "expert_weights"), found, expected):
        assert a.shape == b.shape and error(a, b) < BOUND, (name, error(a, b))
    for name, a, b in zip(("gate_up_weight", "down_weight"), found[2:], expected[2:]):
        assert a.shape == b[own].shape and error(a, b[own]) < BOUND, (name, error(a, b[own]))


def has_ucx():
    library.load()
    try:
        return bool(torch.classes.sluice.Network().address())
    except RuntimeError as error:
        assert "built without UCX" in str(error), error
        return False


def steps(rank, size):
    layer = make(dist.group.WORLD, 8)
    for seed, counts in enumerate(([37, 20, 9, 12], [0, 64, 1, 5], [100, 3, 50, 0])):
        check_step(layer, rank, counts[:size], 8, seed)


def uneven(rank, size):
    check_step(make(dist.group.WORLD, 7), rank, [21, 40, 8][:size], 7, 1)


def part_of_the_ranks(rank, size):
    """The last rank is in no group with the others."""
    group = dist.new_group(list(range(size - 1)))
    if rank < size - 1:
        check_step(make(group, 8), rank, [21, 40][: size - 1], 8, 1)
        return
    try:
        make(group, 8)
    except ValueError as refused:
        assert "this process is not one of its ranks" in str(refused), refused
        return
    raise AssertionError("a process outside the group made a layer of it")


def inference(rank, size):
    """Steps in flight of two layers that share a workspace, without and with gradients."""
    layers = [make(dist.group.WORLD, 8), make(dist.group.WORLD, 8, activation="reglu")]
    x, ids, weights, _ = batch(rank, 30 + rank, 8, 1)
    with torch.no_grad():
        plain = [layer(x, ids, weights) for layer in layers]
        pending = [layer.submit_forward(x, ids, weights) for layer in layers]
        for step, y in zip(pending, plain):
            assert torch.equal(step.wait(), y)
    x.requires_grad_()
    leaves = [[x, layer.gate_up_weight, layer.down_weight] for layer in layers]
    expected = [torch.autograd.grad(layer(x, ids, weights).float().sum(), own) for layer, own in zip(layers, leaves)]
    for order in ((0, 1), (1, 0)):
        pending = [layer.submit_forward(x, ids, weights) for layer in layers]
        for n in order:
            found = torch.autograd.grad(pending[n].wait().float().sum(), leaves[n])
            assert all(map(torch.equal, found, expected[n])), (order, n)


@contextlib.contextmanager
def on_machine(number):
    """What this process believes to be its machine, until its layers are freed."""
    with unittest.mock.patch.object(ranks, "_machine", lambda: f"machine-{number}"):
        yield
        sluice_torch.clear_cache()


def several_machines(rank, size):
    """Rows go by UCX between ranks that believe to be on two machines, and a refusal goes there, too."""
    if not has_ucx():
        return
    with on_machine(rank % 2):
        layer = make(dist.new_group(), 8)
        assert layer.spans_machines
        for seed, counts in enumerate(([37, 20, 9], [0, 64, 1])):
            check_step(layer, rank, counts[:size], 8, seed)
        x, ids, weights, _ = batch(rank, 5, 8, 1)
        ids[0, 0] = 99 if rank == 1 else ids[0, 0]
        try:
            layer(x, ids, weights)
        except (RuntimeError, ValueError) as refused:
            assert "expert_ids[0, 0] is 99" in str(refused), refused
        else:
            raise AssertionError("a step with an expert that does not exist")
        check_step(layer, rank, [3, 2, 1][:size], 8, 3)
        del layer


def without_ucx(rank, size):
    """Ranks of several machines, one of which lacks UCX: an error at all of them."""

    def missing():
        raise RuntimeError("sluice: there is none")

    if not has_ucx():
        return
    network = missing if rank == 1 else ranks._network
    with on_machine(rank % 2), unittest.mock.patch.object(ranks, "_network", network):
        try:
            make(dist.new_group(), 8)(*batch(rank, 5, 8, 1)[:3])
        except RuntimeError as refused:
            assert "on several machines: rank 0 on machine-0, rank 1 on machine-1; that needs UCX" in str(refused), refused
            assert "which these ranks lack: 1 (rank 1: sluice: there is none)" in str(refused), refused
            return
    raise AssertionError("ranks of several machines made a layer without UCX")


def not_reached(rank, size):
    """One rank gives a damaged address, then one where nobody is: an error at all ranks, and no rank waits for ever."""
    if not has_ucx():
        return

    network = ranks._network

    class Elsewhere:
        """The network of this process, as if it were at another address."""

        def __init__(self, address):
            self.real = network()
            self.given = address if rank == 1 else self.real.address()

        def address(self):
            return self.given

        def join(self, *arguments):
            return self.real.join(*arguments)

    left = network().address()
    for address, expected in (left[:-2], "UCX: the address of rank 1 is damaged"), (left, "UCX: "):
        with on_machine(rank % 2), unittest.mock.patch.object(ranks, "_network", lambda: Elsewhere(address)):
            with unittest.TestCase().assertRaisesRegex(RuntimeError, expected):
                make(dist.new_group(), 8, timeout=5)(*batch(rank, 5, 8, 1)[:3])


def copies(rank, size):
    """A layer with a group is copied; the error about pickling names what can be saved, and that can be."""
    layer = make(dist.group.WORLD, 8)
    x, ids, weights, _ = batch(rank, 5, 8, 1)
    y = layer(x, ids, weights)
    assert torch.equal(copy.deepcopy(layer)(x, ids, weights), y)
    model = torch.nn.Sequential(layer)
    for whole in (layer, model):
        for save in (pickle.dumps, lambda whole: torch.save(whole, io.BytesIO())):
            try:
                save(whole)
            except TypeError as refused:
                assert "a layer with an ep_group cannot be pickled: save its state_dict()" in str(refused), refused
            else:
                raise AssertionError("a layer with a group was pickled")
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = sluice_torch.MoE(HIDDEN, INTERMEDIATE, 8, TOP_K, parallel=Parallel(dist.group.WORLD, timeout=20))
    torch.nn.Sequential(other).load_state_dict(torch.load(file))
    assert torch.equal(other(x, ids, weights), y)


def status_of_child(work):
    """The exit status of a forked child that calls work()."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        status = 1
        try:
            torch.set_num_threads(1)  # with more, PyTorch itself hangs in a child
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def forked(rank, size):
    """Children of a rank, before and after its first layer and step, do not wait for ranks that they cannot reach."""

    def refused(call):
        with unittest.TestCase().assertRaisesRegex(RuntimeError, f"process {os.getppid()} made the group of ranks, of which this"):
            call()

    def before_any_layer():
        layer = make(dist.group.WORLD, 8)
        refused(lambda: layer(*batch(rank, 5, 8, 1)[:3]))

    def in_a_child():
        x, ids, weights, _ = batch(rank, 5, 8, 1)
        layer = make(dist.group.WORLD, 8)
        refused(lambda: layer(x, ids, weights))
        refused(lambda: sluice_torch.exchange.dispatch(x, ids, weights, 8, dist.group.WORLD))
        refused(lambda: sluice_torch.state.full(layer))
        refused(lambda: used(x, ids, weights))
        make(None, 8)(x, ids, weights)  # one without ranks works
        sluice_torch.state.full(alone)

    alone = make(None, 8)
    assert status_of_child(before_any_layer) == 0
    used = make(dist.group.WORLD, 8)
    assert status_of_child(in_a_child) == 0
    check_step(used, rank, [3, 2, 1][:size], 8, 3)
    assert status_of_child(in_a_child) == 0
    check_step(used, rank, [3, 2, 1][:size], 8, 3)


class RanksTest(unittest.TestCase):
    def job(self, size, *parts):
        """Runs parts of a test one after another in the same processes."""
        with tempfile.TemporaryDirectory() as folder:
            names = ",".join(part.__name__ for part in parts)
            command = [names, str(size), str(pathlib.Path(folder) / "meeting")]
            # pairs end as users' processes do, which takes a second
            started = [forks.start(__file__, [*command, str(rank)], ends_whole=size == 2) for rank in range(size)]
            try:
                said = [process.communicate(timeout=LIMIT)[0] for process in started]
            finally:
                for process in started:
                    process.kill()
                    process.wait()
        ends = [process.returncode for process in started]
        told = "".join(f"\nrank {rank}, {end}: {text}" for rank, (end, text) in enumerate(zip(ends, said)))
        self.assertEqual(ends, [0] * size, told)

    def test_two_ranks_do_what_one_process_does(self):
        self.job(2, steps, inference, copies)

    def test_three_ranks_do_what_one_process_does(self):
        self.job(3, steps, uneven, part_of_the_ranks)

    def test_forked_children_of_ranks_are_refused(self):
        self.job(2, forked)

    def test_forked_children_can_be_ranks(self):
        """As torch.multiprocessing starts them: the parent has this package, but no group."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "fork", str(pathlib.Path(folder) / "meeting")]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_ranks_of_several_machines_do_what_one_process_does(self):
        self.job(3, several_machines, without_ucx)
        self.job(2, several_machines, not_reached)
        if not has_ucx():
            self.skipTest("built without UCX (libucx-dev is not installed)")

    def test_a_group_before_torch_distributed_is_refused(self):
        with self.assertRaisesRegex(ValueError, "torch.distributed is not initialized"):
            sluice_torch.MoE(64, 48, 8, 2, parallel=Parallel(object()))


def be_rank(parts, size, meeting, rank):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    for part in parts.split(","):
        print(f"{part}:", flush=True)
        globals()[part](rank, size)
        dist.barrier()


def fork_ranks(meeting):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.multiprocessing.start_processes(child_rank, (meeting,), nprocs=2, start_method="fork")


def child_rank(rank, meeting):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    steps(rank, 2)
    dist.barrier()


if __name__ == "__main__":
    if sys.argv[1:2] == ["fork"]:
        fork_ranks(sys.argv[2])
    elif len(sys.argv) > 4:
        be_rank(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        unittest.main()

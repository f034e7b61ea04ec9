"""A model whose experts two processes share trains like the whole model in one process."""

import os
import subprocess
import sys
import tempfile
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

import sluice_torch
from decoder import Decoder, loss_of
from models import layouts
from models.curves_test import batches, train
from sluice_torch import Parallel, Steps

RANKS = 2
LIMIT_S = 240


def make_model():
    torch.manual_seed(6)
    return Decoder(lambda: layouts.Qwen3Block(experts=7))  # the first rank owns 4 of them, the second 3


def train_whole():
    """Losses of all tokens, in this process, with eager experts."""
    return train(make_model()).tolist()


def train_share(rank, store, out):
    """One rank: its experts, and its share of each batch. The first writes the mean losses of all."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    wait = timedelta(seconds=LIMIT_S)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=wait)
    model = make_model()
    replaced = sluice_torch.replace_moe(model, parallel=Parallel(dist.group.WORLD, timeout=LIMIT_S), steps=Steps(threads=1))
    own = [parameter for name, parameter in model.named_parameters() if ".experts." in name]
    assert len(replaced) == 2 and [len(parameter) for parameter in own] == [4 - rank] * 4, own
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)  # as train()
    losses = []
    for tokens in batches():
        loss = loss_of(model, tokens.chunk(RANKS)[rank])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for parameter in model.parameters():
            if not any(parameter is each for each in own):
                dist.all_reduce(parameter.grad)
            parameter.grad /= RANKS  # those of experts are sums over the tokens of all ranks already
        optimizer.step()
        mean = loss.detach() / RANKS
        dist.all_reduce(mean)
        losses.append(mean.item())
    check_refused(model.get_submodule(replaced[0]), rank)
    if rank == 0:
        torch.save(losses, out)
    dist.barrier()


def check_refused(block, rank):
    """An exception of a block before its layer's step fails the step at all ranks, and the next step is right."""
    width = next(parameter.shape[-1] for name, parameter in block.named_parameters() if ".gate_up" in name)
    hidden = torch.randn(1, 5, width, generator=torch.Generator().manual_seed(rank))
    with torch.no_grad():
        expected = block(hidden)
        for refusing in range(RANKS):
            try:
                block(hidden[..., 1:] if rank == refusing else hidden)
            except RuntimeError as error:
                said = str(error)
            assert "shapes cannot be multiplied" in said, said
            assert rank == refusing or f"rank {refusing}: " in said, said
            found = block(hidden)
            for a, b in zip(*((y if isinstance(y, tuple) else (y,)) for y in (found, expected))):
                assert torch.equal(a, b), refusing


class RanksTest(unittest.TestCase):
    def test_two_processes_share_the_experts(self):
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            store, out = os.path.join(folder, "store"), os.path.join(folder, "losses.pt")
            command = [sys.executable, os.path.abspath(__file__)]
            children = [subprocess.Popen([*command, "rank", str(rank), store, out]) for rank in range(RANKS)]
            try:
                expected = torch.tensor(train_whole())
                for rank, child in enumerate(children):
                    self.assertEqual(child.wait(timeout=LIMIT_S), 0, f"rank {rank}")
            finally:
                for child in children:
                    child.kill()
                    child.wait()
            found = torch.tensor(torch.load(out))
        self.assertLess(expected[-1], expected[0] - 1.0)
        difference = (found - expected).abs().max().item()
        print(f"from {expected[0]:.3f} to {expected[-1]:.3f}, largest difference {difference:.4f}")
        self.assertLess(difference, 0.03)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        train_share(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        unittest.main()

"""What hyper_parallel's callers take from its platform: exchanges of parts of tensors between all ranks of a group."""

import functools

import torch
import torch.distributed as dist

from ..ranks import collectives
from ..ranks.parallel import Parallel
from ..ranks.ranks import Group


class _Done:
    """A step that has ended."""

    def wait(self):
        return True


def _exchange(parts: list[torch.Tensor], sizes: list[int], group) -> torch.Tensor:
    """Sends part r to rank r of the group; returns the parts from all ranks, of these many rows, joined. Collective."""
    group = dist.group.WORLD if group is None else group
    members = Group(Parallel(group))
    rank, size = members.rank, members.size
    if len(parts) != size or len(sizes) != size:
        raise ValueError(f"there are {len(parts)} parts to send and {len(sizes)} to receive, expected {size}, the ranks of the group")
    found = [part.new_empty(count, *part.shape[1:]) for part, count in zip(parts, sizes)]
    if len(parts[rank]) != sizes[rank]:
        raise ValueError(f"rank {rank} has {len(parts[rank])} rows for itself, expected {sizes[rank]}")
    found[rank] = parts[rank]
    steps, tensors = [], []
    for number, peer in enumerate(members.members()):
        if number == rank:
            continue
        for call, tensor in ((dist.isend, parts[number].contiguous()), (dist.irecv, found[number])):
            if tensor.numel():
                tensors.append(tensor)
                steps.append(functools.partial(call, tensor.view(-1).view(torch.uint8), peer, group=group))
    collectives.finish_all(steps, tensors, group, "exchange parts", members.timeout)
    return torch.cat(found)


class _Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, sent, received, group):
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _exchange(list(tensor.split(sent)), received, group)

    @staticmethod
    def backward(ctx, grad):
        return _exchange(list(grad.split(ctx.received)), ctx.sent, ctx.group), None, None, None


class _Platform:
    def all_to_all_single(self, input_tensor, output_shape, group, async_op: bool = False):
        """Equal parts of input_tensor to all ranks; returns what came from them in `output_shape`, and with async_op a step that has
        ended, else None. Without gradients."""
        size = dist.get_world_size(group)
        if len(input_tensor) % size:
            raise ValueError(f"input_tensor has {len(input_tensor)} rows, expected a multiple of {size} ranks")
        parts = list(input_tensor.detach().split(len(input_tensor) // size)) if len(input_tensor) else [input_tensor.detach()] * size
        output = _exchange(parts, [len(input_tensor) // size] * size, group).view(output_shape)
        return output, _Done() if async_op else None

    def differentiable_all_to_all_single(self, input_tensor, input_splits, output_splits, group):
        """Sends input_splits[r] rows to rank r, and returns output_splits[r] rows of each rank; its gradient goes back."""
        if sum(input_splits) != len(input_tensor):
            raise ValueError(f"input_splits are {list(input_splits)}, expected a sum of {len(input_tensor)}, the rows of input_tensor")
        return _Exchanged.apply(input_tensor, list(input_splits), list(output_splits), group)

    def arange(self, start, end=None, step=1, dtype=None, device=None):
        return torch.arange(*((0, start) if end is None else (start, end)), step, dtype=dtype, device=device)


def get_platform() -> _Platform:
    """PyTorch on a CPU."""
    return _Platform()

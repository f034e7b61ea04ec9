"""The calling code of hyper_parallel: styles that divide experts over ranks, and the vocabulary of its graphs (docs/HYPER_PARALLEL.md).

    ExpertParallel          deals experts over the ranks
    TensorParallel          gives each rank a shard of every expert
    ExpertTensorParallel    deals experts over groups of ranks, and shards over the ranks of a group

A style divides the layers of sluice_torch in a module, or else a module whose parameters are stacks of matrices, one for each expert,
and which is called with rows sorted by expert and their counts. That module's own forward computes its part, or Sluice's program where
both are proven to be the same function. The classes are styles of torch.distributed.tensor.parallel where PyTorch has it.
"""

import abc
import inspect
import types

import torch

from . import exchange
from .callers import grouped_experts, styles
from .callers.hyper_graph import (  # noqa: F401: part of this module
    AllToAllFillConfig,
    AllToAllType,
    ComputeGraph,
    GmmFillConfig,
    OperatorNode,
    OpType,
    SplitSpec,
    SwiGLUFillConfig,
    TaskSplitValue,
    TensorSpec,
    init_task_split_value,
)
from .callers.hyper_platform import get_platform  # noqa: F401: part of this module
from .ranks import pairs, ranks
from .ranks.parallel import Parallel

try:
    from torch.distributed.tensor.parallel.style import ParallelStyle
except ImportError:  # older than 2.0, or without torch.distributed
    ParallelStyle = abc.ABC

# The dimension of intermediate columns of the weights w1, w3 [E, I, H] and w2 [E, H, I].
_SHARDED = {"w1": 1, "w3": 1, "w2": 2}
# The methods of a style that a program takes the place of.
_STEPS = ("_parts", "_partition_fn", "_token_dispatch", "_token_combine")


class BaseExpertParallel(ParallelStyle):
    """Divides a module by _partition_fn(), and changes its forward: it gets what _token_dispatch() makes of its arguments, and
    _token_combine() makes its result. A style has no state of its own: one object may be applied to several modules."""

    def apply(self, module: torch.nn.Module, device_mesh) -> torch.nn.Module:
        """Changes `module` in place, and returns it. Make the optimizer afterwards. ValueError: it has such a forward already."""
        if "_parallel_handles" in vars(module):
            raise ValueError(f"{type(module).__name__} has the part of a rank already, expected it whole")
        for name, each in list(module.named_modules()):
            self._partition_fn(name, each, device_mesh)
        signature = inspect.signature(module.forward)

        def forward(module, *inputs, **named):
            if module._parallel_program is not None and module._parallel_program.fits(module, inputs, named):
                return module._parallel_program.run(module, *inputs[:2])
            given, open_before = signature.bind(*inputs, **named), len(module._parallel_handles)
            try:
                routed = module._parallel_forward(*self._token_dispatch(module, given.args, device_mesh), **given.kwargs)
                return self._token_combine(module, routed, device_mesh)
            finally:
                del module._parallel_handles[open_before:]

        module._parallel_handles, module._parallel_program = [], None  # handles: dispatches whose combine has not come
        module.own_forward_reason = f"{type(self).__name__} has its own _token_dispatch"
        module._parallel_forward, module.forward = module.forward, types.MethodType(forward, module)  # methods: a copy gets its own
        return module

    def _apply(self, module: torch.nn.Module, device_mesh) -> torch.nn.Module:
        """The name under which parallelize_module() calls it."""
        return self.apply(module, device_mesh)

    @abc.abstractmethod
    def _partition_fn(self, name: str, module: torch.nn.Module, device_mesh):
        """Divides the parameters of one submodule, of this name."""

    @abc.abstractmethod
    def _token_dispatch(self, module: torch.nn.Module, inputs: tuple, device_mesh) -> tuple:
        """The arguments with which the module computes its part."""

    @abc.abstractmethod
    def _token_combine(self, module: torch.nn.Module, routed_output, device_mesh):
        """The result of the module from the result of its part."""


class _Style(BaseExpertParallel):
    tokens = "own"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(tokens={self.tokens!r})"

    @abc.abstractmethod
    def _groups(self, device_mesh) -> tuple:
        """ep_group and tp_group; None where there is no such dimension."""

    def apply(self, module: torch.nn.Module, device_mesh) -> torch.nn.Module:
        """ValueError: sizes that ranks do not divide; parameters that are no stacks of experts; layers of sluice_torch with part of their
        experts already. Then nothing is changed."""
        if layers := styles.layers_in(module):
            styles.divide(layers, self._groups(device_mesh), self.tokens)
            return module
        if self._groups(device_mesh)[1] is not None and self.tokens != "same":
            raise ValueError(f"tokens is {self.tokens!r}, expected 'same' for modules that are no layers of sluice_torch")
        parameters = dict(module.named_parameters())
        if not parameters:
            raise ValueError(f"{type(module).__name__} has neither a sluice_torch.MoE nor a parameter")
        experts = {name: len(each) if each.dim() else None for name, each in parameters.items()}
        if len(set(experts.values())) > 1 or None in experts.values():
            shapes = ", ".join(f"{name} {list(each.shape)}" for name, each in parameters.items())
            raise ValueError(f"the parameters of {type(module).__name__} are no stacks of one part for each of the same experts: {shapes}")
        for name, each in module.named_modules():
            self._parts(name, each, device_mesh)  # raises before anything is changed
        reason = self._own_forward_reason(module, device_mesh)
        program = None if reason else grouped_experts.Program(module, *self._groups(device_mesh))
        super().apply(module, device_mesh)
        module.own_forward_reason, module._parallel_program = reason, program
        (module._parallel_experts,) = set(experts.values())
        return module

    def _own_forward_reason(self, module: torch.nn.Module, device_mesh) -> str | None:
        """Why the module's forward computes its steps; None: Sluice's program does. The same at all ranks. Collective."""
        own = [name for name in _STEPS if getattr(type(self), name) is not getattr(_Style, name)]
        reason = f"{type(self).__name__} has its own {own[0]}" if own else grouped_experts.find_difference(module)
        said = ranks.Group(Parallel(*self._groups(device_mesh))).gather_objects(reason, "agree on a program")
        return reason or next((f"rank {rank}: {each}" for rank, each in enumerate(said) if each), None)

    def _parts(self, name: str, module: torch.nn.Module, device_mesh) -> dict[str, torch.Tensor]:
        """What this rank has of the parameters of a submodule, as views of them."""
        ep_group, tp_group = self._groups(device_mesh)
        made = {}
        for own, whole in module.named_parameters(recurse=False):
            part = whole.detach()
            if ep_group is not None:
                rank, size = ranks.place_in("device_mesh", ep_group)
                places = ranks.dealt(len(whole), size, rank)
                part = part[places.start : places.stop]
            if tp_group is not None:
                full = f"{name}.{own}" if name else own
                rank, size = ranks.place_in("device_mesh", tp_group)
                if own not in _SHARDED or whole.dim() != 3:
                    raise ValueError(f"{full} has shape {list(whole.shape)}, expected w1 or w3 [E, I, H] or w2 [E, H, I], which have shards")
                if whole.shape[_SHARDED[own]] % size:
                    raise ValueError(f"{full} has {whole.shape[_SHARDED[own]]} intermediate columns, expected a multiple of {size} ranks")
                part = part.chunk(size, _SHARDED[own])[rank]
            made[own] = part
        return made

    def _partition_fn(self, name: str, module: torch.nn.Module, device_mesh):
        for own, part in self._parts(name, module, device_mesh).items():
            requires_grad = getattr(module, own).requires_grad
            setattr(module, own, torch.nn.Parameter(part.clone(), requires_grad=requires_grad))

    def _token_dispatch(self, module: torch.nn.Module, inputs: tuple, device_mesh) -> tuple:
        """Exchanges rows [R, H] sorted by expert, counts [E], scores [R] or None for the rows, counts and scores of the rank's experts, by
        expert. Collective."""
        ep_group, tp_group = self._groups(device_mesh)
        rows, counts, *more = inputs
        scores = more[0] if more else None
        if ep_group is not None:
            with ranks.shared_by(ranks.Group(Parallel(ep_group))).refusing():
                experts = module._parallel_experts
                ids = pairs.ids_of_sorted(rows, counts, experts)
                probs = torch.ones(len(rows), 1) if scores is None else scores.reshape(len(rows), 1).float()
            rows, _, probs, local, handle = exchange.dispatch(rows, ids, probs, experts, ep_group)
            module._parallel_handles.append(handle)
            counts = local.to(counts.dtype)
            if scores is not None:
                scores = probs.to(scores.dtype).view(-1, *scores.shape[1:])
        if tp_group is not None:
            group = ranks.Group(Parallel(tp_group))
            rows = _SumOfGradients.apply(rows, group)
            scores = scores if scores is None else _SumOfGradients.apply(scores, group)
        return (rows, counts, *([scores] if more else []), *more[1:])

    def _token_combine(self, module: torch.nn.Module, routed_output: torch.Tensor, device_mesh) -> torch.Tensor:
        """The results [R, H] of this rank's rows, in their order; with shards they are whole sums. Collective."""
        ep_group, tp_group = self._groups(device_mesh)
        if tp_group is not None:
            routed_output = _Sum.apply(routed_output, ranks.Group(Parallel(tp_group)))
        return routed_output if ep_group is None else exchange.combine(routed_output, ep_group, module._parallel_handles.pop())


class ExpertParallel(_Style):
    """Each rank of the mesh gets its range of the experts, whole."""

    def _groups(self, device_mesh) -> tuple:
        return styles.group_of(device_mesh, "ep"), None


class TensorParallel(_Style):
    """Each rank of the mesh gets its shard of every expert. `tokens`: as for MoE; other modules have the same rows at all ranks."""

    def __init__(self, *, tokens: str = "same"):
        super().__init__()
        self.tokens = tokens

    def _groups(self, device_mesh) -> tuple:
        return None, styles.group_of(device_mesh, "tp")


class ExpertTensorParallel(_Style):
    """The mesh has dimensions "ep" and "tp": each rank gets its shard of the experts of its group. `tokens` as in TensorParallel."""

    def __init__(self, *, tokens: str = "same"):
        super().__init__()
        self.tokens = tokens

    def _groups(self, device_mesh) -> tuple:
        return styles.groups_of(device_mesh)


def _sum(tensor: torch.Tensor, group: ranks.Group, what: str) -> torch.Tensor:
    total = tensor.float() if tensor.dtype != torch.float32 else tensor.clone()
    group.all_reduce(total, what)
    return total.to(tensor.dtype)


class _Sum(torch.autograd.Function):
    """apply(terms, group): their sum over the ranks, of which each gets the same gradient."""

    @staticmethod
    def forward(ctx, terms, group):
        return _sum(terms.contiguous(), group, "sum results of shards")

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _SumOfGradients(torch.autograd.Function):
    """apply(tensor, group): the tensor, which is the same at all ranks; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, grad):
        return _sum(grad.contiguous(), ctx.group, "sum gradients of shards"), None


def _generate_permute_indices(tokens_per_expert_group: torch.Tensor, experts_per_rank: int, num_ranks: int):
    """Orders rows that lie by source rank, then by expert, as counts [num_ranks * experts_per_rank] say. Returns permuted_indices
    int64, the row that comes at each place by expert, then by rank; and the rows of each expert."""
    counts = tokens_per_expert_group.view(num_ranks, experts_per_rank)
    first = (tokens_per_expert_group.cumsum(0) - tokens_per_expert_group).view(num_ranks, experts_per_rank)
    lengths, begins = counts.t().reshape(-1).long(), first.t().reshape(-1).long()
    places = torch.arange(int(lengths.sum()), device=counts.device)
    own = lengths.cumsum(0) - lengths
    return places + (begins - own).repeat_interleave(lengths), counts.sum(0)


def _permute(x: torch.Tensor, tokens_per_expert_group: torch.Tensor, ep_degree: int, num_local_experts: int):
    """Returns the shape of x, its rows by expert, their indices, and the rows of each expert."""
    indices, counts = _generate_permute_indices(tokens_per_expert_group, num_local_experts, ep_degree)
    return x.shape, x[indices], indices, counts


def _unpermute(out: torch.Tensor, original_shape, permuted_indices: torch.Tensor) -> torch.Tensor:
    """The rows of _permute() in their order before."""
    return out.new_zeros(original_shape).index_copy(0, permuted_indices, out)

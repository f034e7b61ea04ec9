"""The graph builder's vocabulary of hyper_parallel's multicore schedules, and such a graph as one of Sluice (docs/HYPER_PARALLEL.md).

A node says into how many tasks it is split, if the tensors that it reads are split where it needs them. Sluice's compiler finds its
own splits, so to_sluice() takes the nodes, their tensors and the sizes.
"""

import collections
import dataclasses
import enum
import typing

from ..base.integers import MAX_EXPERTS, MAX_RANKS, MAX_TOKENS, whole_number
from ..layers.builder import Graph

OpType = enum.Enum("OpType", ("ALLTOALL", "GMM", "SWIGLU", "SWIGLU_GRAD"))
AllToAllType = enum.Enum("AllToAllType", ("DISPATCH", "COMBINE", "OTHER"))


@dataclasses.dataclass(eq=False)
class TensorSpec:
    """A tensor: `split_dim` is -1, or the dimension that is split into `split_num` parts."""

    name: str
    shape: list
    param_position: int
    dtype_size: int = 2
    tensor_type: int = 0
    transpose: bool = False
    is_dynamic: bool = False
    split_dim: int = dataclasses.field(default=-1, init=False)
    split_num: int = dataclasses.field(default=1, init=False)


@dataclasses.dataclass
class SplitSpec:
    """When a node is split: always (None), or if each of the inputs, pairs of number and dimension, is split there. Then it has
    task_num_fn(tsv) tasks, and its outputs are split along these dimensions (-1: not)."""

    split_inputs: list | None
    task_num_fn: typing.Callable
    split_output_dims: list = dataclasses.field(default_factory=lambda: [0])


@dataclasses.dataclass
class AllToAllFillConfig:
    moe_type: AllToAllType = AllToAllType.DISPATCH
    advance: str = "vector"
    event_group: int = 1


@dataclasses.dataclass
class GmmFillConfig:
    offset_inputs: set = dataclasses.field(default_factory=lambda: {0})
    rank_in_event: bool = False
    global_trigger: bool = False
    out_offset: bool = True
    advance: str = "cube"
    event_delta: int = 0
    num_cube_cores: int = 24


@dataclasses.dataclass
class SwiGLUFillConfig:
    pass


@dataclasses.dataclass(eq=False)
class OperatorNode:
    """A node; `split_value` is the rows of a tile. task_num is known after ComputeGraph.propagate_splits()."""

    name: str
    op_type: OpType
    inputs: list
    outputs: list
    param_positions: list
    split_value: int
    split_spec: SplitSpec
    tiling_position: int
    fill_config: object
    kernel_spec: object = None
    diagnostic_name: str | None = None
    predecessors: list = dataclasses.field(default_factory=list, init=False, repr=False)
    successors: list = dataclasses.field(default_factory=list, init=False, repr=False)
    task_num: int = dataclasses.field(default=0, init=False)


class TaskSplitValue:
    """Sizes that numbers of tasks follow from, for `tp` and `ep` ranks, `seq_size` tokens and `all_expert_num` experts, of which a token
    has `top_k`. ValueError: a number below 1."""

    def __init__(self, tp: int = 4, ep: int = 4, seq_size: int = 8192, all_expert_num: int = 32, top_k: int = 8):
        for name, value in (("tp", tp), ("ep", ep), ("seq_size", seq_size), ("all_expert_num", all_expert_num), ("top_k", top_k)):
            whole_number(name, value, 1, MAX_TOKENS)
        self.tp, self.ep, self.seq_size, self.all_expert_num, self.top_k = tp, ep, seq_size, all_expert_num, top_k
        self.single_rank_expert_num = all_expert_num // ep
        self.seq_all = seq_size * ep * top_k // tp
        self.per_rank_seq = self.seq_all // ep
        self.per_expert_seq = self.seq_all // top_k
        self.per_expert_seq_to_other = self.seq_all // (ep * top_k)
        self.all_event_num = 1 + all_expert_num + 3 * self.single_rank_expert_num
        self.rank_id = 0
        init_task_split_value(self)


def init_task_split_value(tsv: TaskSplitValue):
    """Sets the counters of a schedule in the making to 0."""
    tsv.pre_pre_event_num = tsv.pre_event_num = tsv.pre_task_num = 0
    tsv.pre_cube_task_num = tsv.pre_vector_task_num = tsv.pre_mix_task_num = 0


class ComputeGraph:
    """Nodes in the order of add_op(), and the edges between them."""

    def __init__(self):
        self._ops: dict[str, OperatorNode] = {}
        self._tsv = None

    def add_op(self, op: OperatorNode) -> "ComputeGraph":
        """ValueError: there is a node of this name."""
        if op.name in self._ops:
            raise ValueError(f"node {op.name!r} is given twice")
        self._ops[op.name] = op
        return self

    def add_edge(self, src, dst) -> "ComputeGraph":
        """Between nodes, or names of nodes, that were added. ValueError: one was not."""
        first, last = (self.get_op(each.name if isinstance(each, OperatorNode) else each) for each in (src, dst))
        first.successors.append(last)
        last.predecessors.append(first)
        return self

    def get_op(self, name: str) -> OperatorNode:
        """ValueError: there is none of this name."""
        if name not in self._ops:
            raise ValueError(f"the graph has no node {name!r}, expected one of {', '.join(self._ops) or 'none: it is empty'}")
        return self._ops[name]

    def topological_sort(self) -> list[OperatorNode]:
        """Each node after those before it, else in the order of add_op(). ValueError: nodes wait for each other."""
        waits = {name: len(op.predecessors) for name, op in self._ops.items()}
        ready, order = collections.deque(op for op in self._ops.values() if not waits[op.name]), []
        while ready:
            order.append(ready.popleft())
            for each in order[-1].successors:
                waits[each.name] -= 1
                if not waits[each.name]:
                    ready.append(each)
        if len(order) < len(self._ops):
            raise ValueError(f"the graph has a cycle through {', '.join(name for name, count in waits.items() if count > 0)}")
        return order

    def propagate_splits(self, tsv: TaskSplitValue):
        """Sets task_num of each node, and split_dim and split_num of each tensor. ValueError: a cycle; a function that gives no number of
        tasks; a split of a tensor that a node does not have."""
        order = self.topological_sort()
        for op in order:
            for tensor in (*op.inputs, *op.outputs):
                tensor.split_dim, tensor.split_num = -1, 1
        for op in order:
            spec = op.split_spec
            for number, _ in spec.split_inputs or ():
                if not 0 <= number < len(op.inputs):
                    raise ValueError(f"node {op.name!r} is split by input {number}, expected one of its {len(op.inputs)}")
            is_split = all(op.inputs[number].split_dim == dim for number, dim in spec.split_inputs or ())
            op.task_num = whole_number(f"task_num_fn of node {op.name!r}", spec.task_num_fn(tsv), 0, 1 << 31) if is_split else 1
            for tensor, dim in zip(op.outputs, spec.split_output_dims):
                if op.task_num > 1 and dim != -1:
                    tensor.split_dim, tensor.split_num = dim, op.task_num
        self._tsv = tsv

    def to_sluice(self, name: str = "compute_graph", tsv: TaskSplitValue | None = None) -> Graph:
        """A graph with the same nodes and tensors for Sluice's compiler: `.save()` or `.compile()` it. Its tokens are what the dispatch
        sends, one row each, with `expert_ids` [T, 1]; offsets and sizes follow from these, for any routing. `tsv` is by default the
        argument of propagate_splits(). ValueError: sizes that are not known; nodes or tensors that Sluice has in no such form."""
        tsv = tsv or self._tsv
        if tsv is None:
            raise ValueError("the sizes are not known: call propagate_splits(tsv) first, or pass tsv")
        return _Lowering(name, self.topological_sort(), tsv).graph


class _Lowering:
    """A graph of Sluice from nodes in order."""

    def __init__(self, name: str, ops: list[OperatorNode], tsv: TaskSplitValue):
        ranks = whole_number("ep", tsv.ep, 1, MAX_RANKS)
        experts = whole_number("all_expert_num", tsv.all_expert_num, 1, MAX_EXPERTS)
        tokens = whole_number("per_rank_seq", tsv.per_rank_seq, 1, MAX_TOKENS)
        self.graph = Graph(name, ranks=ranks, experts=experts, top_k=1, max_tokens=tokens)
        self.graph.add_tensor("expert_ids", "I32", "T", 1).add_tensor("routing", "routing")
        self.graph.add_op("route", {"expert_ids": "expert_ids"}, {"routing": "routing"})
        for op in ops:
            self.add(op)

    def add(self, op: OperatorNode):
        if op.op_type is OpType.ALLTOALL:
            self.add_exchange(op)
        elif op.op_type is OpType.GMM:
            self.add_product(op)
        elif op.op_type is OpType.SWIGLU:
            (gate_up,), (act,) = self.wide(op, 1), op.outputs
            self.graph.add_op("activation", {"gate_up": self.rows(gate_up)}, {"act": self.rows(act)}, op.name, kind="swiglu")
        else:
            (act_grad, gate_up), (grad,) = self.wide(op, 2), op.outputs
            operands = {"act_grad": self.rows(act_grad), "gate_up": self.rows(gate_up)}
            self.graph.add_op("activation_grad", operands, {"gate_up_grad": self.rows(grad)}, op.name, kind="swiglu")

    def add_exchange(self, op: OperatorNode):
        (source,), (target,) = self.wide(op, 1), op.outputs
        kind = getattr(op.fill_config, "moe_type", None)
        if kind is AllToAllType.DISPATCH:
            self.graph.add_op("dispatch", {"tokens": self.tensor(source, "T"), "routing": "routing"}, {"rows": self.rows(target)}, op.name)
        elif kind is AllToAllType.COMBINE:
            self.graph.add_op("combine", {"rows": self.rows(source), "routing": "routing"}, {"tokens": self.tensor(target, "T")}, op.name)
        else:
            raise ValueError(f"node {op.name!r} is an exchange of type {kind}, expected DISPATCH or COMBINE")

    def add_product(self, op: OperatorNode):
        """A weight gradient is a sum over the rows of an expert, so it has a matrix for each."""
        (a, b), (c,) = self.wide(op, 2), op.outputs
        if len(c.shape) == 3:
            self.graph.add_op("gmm_weight_grad", {"a": self.rows(a), "b": self.rows(b)}, {"grad": self.tensor(c, "E")}, op.name)
        else:
            transpose = {"transpose": True} if b.transpose else {}
            self.graph.add_op("gmm", {"rows": self.rows(a), "weight": self.tensor(b, "E")}, {"product": self.rows(c)}, op.name, **transpose)

    def wide(self, op: OperatorNode, count: int) -> list[TensorSpec]:
        """The inputs of a node that are matrices or stacks of them, not offsets, sizes and lists of groups."""
        found = [each for each in op.inputs if len(each.shape) > 1]
        if len(found) != count or len(op.outputs) != 1:
            raise ValueError(f"node {op.name!r} has {len(found)} matrices as inputs and {len(op.outputs)} outputs, expected {count} and 1")
        return found

    def rows(self, spec: TensorSpec) -> str:
        return self.tensor(spec, "R")

    def tensor(self, spec: TensorSpec, extent: str) -> str:
        if spec.dtype_size != 2 or len(spec.shape) != (3 if extent == "E" else 2):
            raise ValueError(f"tensor {spec.name!r} has shape {list(spec.shape)} of {spec.dtype_size} bytes, expected bfloat16 [{extent}, ...]")
        fields = {"type": "BF16", "shape": [extent, *spec.shape[1:]]}
        known = self.graph.tensors.get(spec.name)
        if known is None:
            self.graph.add_tensor(spec.name, fields["type"], *fields["shape"])
        elif known != fields:
            raise ValueError(f"tensor {spec.name!r} is used as {known['shape']} and as {fields['shape']}")
        return spec.name

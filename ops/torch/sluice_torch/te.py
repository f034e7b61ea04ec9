"""Column- and row-parallel linear layers that overlap communication with their products, with the interface that
Megatron-style models expect. They need no Megatron.

With config.sequence_parallel each rank has its part of the first dimension (the sequence) outside a pair of layers:
a column-parallel layer gathers it, a row-parallel one adds the terms of all ranks and scatters them. Without it all
ranks have the same tokens, and the terms are all-reduced. Products use bfloat16 with float32 sums; float32 inputs and
parameters are rounded in each step.
"""

import dataclasses
import math
import os
import warnings

import torch

from . import cache, ranks, recording, scaling
from .autocast import Chooser, is_in_backward
from .described_calls import described
from .encodings import BF16, encodings_of, refuse_unknown
from .graphs import dealt
from .integers import MAX_ROWS, whole_number
from .linear_graphs import LinearShape, linear_graph
from .main_grad import AddedToMainGrad, main_grad_of
from .megatron_groups import tp_group_of
from .reporting import Reports
from .tensors import as_stored, empty_weight
from .writes import write

_DTYPES = (torch.bfloat16, torch.float32)


@dataclasses.dataclass
class ShardedTensor:
    """A rank's part of a parameter, for checkpoints: at `global_offset` in a tensor of `global_shape`. `replica` numbers
    the ranks that have the same part."""

    key: str
    data: torch.Tensor
    global_shape: tuple[int, ...]
    global_offset: tuple[int, ...]
    replica: int = 0


class _ParallelLinear(Reports, torch.nn.Module):
    """What both layers share. `_column` and the dimension of the weight that ranks share are theirs."""

    _column = True

    def __init__(self, ins, outs, config, init_method, bias, skip_bias_add, is_expert, allocate, stride, keep_master, options):
        super().__init__()
        known = {"tp_group": None, "pg_collection": None, "name": None, "threads": 0, "timeout": 30.0, "max_tokens": 65536, "keep": "all", "encode": None}
        refuse_unknown(type(self).__name__, {name: value for name, value in options.items() if name not in known}, known)
        options = {**known, **options}
        if options["keep"] not in ("all", "minimal", "regather"):
            raise ValueError(f"keep is {options['keep']!r}, expected 'all', 'minimal' or 'regather'")
        if stride != 1:
            raise ValueError(f"stride is {stride!r}, expected 1: a rank has one contiguous part of the weight")
        self.config, self.is_expert, self.skip_bias_add = config, is_expert, skip_bias_add
        self.threads, self.timeout, self.keep = options["threads"], options["timeout"], options["keep"]
        self.sequence_parallel = bool(getattr(config, "sequence_parallel", False)) and not is_expert
        group = tp_group_of(config, is_expert, options["tp_group"], options["pg_collection"])
        tokens = "own" if self.sequence_parallel or group is None else "same"
        self._group = ranks.Group(tp_group=group, tokens=tokens, timeout=self.timeout)
        tp = self._group.tp
        for name, size in (("input_size", ins), ("output_size", outs)):
            whole_number(name, size, 1, MAX_ROWS)
        divided, name = (outs, "output_size") if self._column else (ins, "input_size")
        if divided % tp:
            raise ValueError(f"{name} is {divided}, expected a multiple of the {tp} ranks of tp_group")
        in_program = bias and not skip_bias_add
        own = encodings_of(options["encode"])
        self._encodings, self._scales = Chooser(own), scaling.Scales()
        self.shape = LinearShape(
            self._column, ins, outs, tp, tokens if tp > 1 else "own", in_program, options["max_tokens"], own or BF16
        )
        self._layers = {}
        self._make_parameters(init_method, bias, allocate, keep_master)

    @property
    def _sharded(self) -> int:
        """The dimension of the weight that ranks share."""
        return 0 if self._column else 1

    def _make_parameters(self, init_method, bias, allocate, keep_master):
        dtype = getattr(self.config, "params_dtype", torch.bfloat16)
        if dtype not in _DTYPES:
            raise ValueError(f"params_dtype is {dtype}, expected torch.bfloat16 or torch.float32")
        initialise = getattr(self.config, "perform_initialization", True)
        shape = self.shape
        self.master_weight = None
        if allocate:
            self.weight = torch.nn.Parameter(empty_weight(shape.outs_here, shape.ins_here, dtype=dtype))
            if initialise:
                whole = self._initial(init_method, dtype)
                write(self.weight, whole.chunk(shape.tp, self._sharded)[self._group.rank])
                self.master_weight = whole if keep_master else None
            _mark(self.weight, self._sharded, allreduce=not self.is_expert)
        else:
            self.register_parameter("weight", None)
        if bias:
            self.bias = torch.nn.Parameter(torch.zeros(shape.outs_here, dtype=dtype))
            if self._column:
                _mark(self.bias, 0, allreduce=not self.is_expert)
            else:
                self.bias.allreduce = not self.is_expert
                # its gradient is that of this rank's tokens
                self.bias.sequence_parallel = self.sequence_parallel
        else:
            self.register_parameter("bias", None)

    def _initial(self, init_method, dtype) -> torch.Tensor:
        """The whole weight, the same at all ranks: that of rank 0."""
        whole = torch.empty(self.shape.outs, self.shape.ins, dtype=torch.float32)
        bound = 1 / math.sqrt(self.shape.ins)
        failure = None
        try:
            init_method(whole) if init_method is not None else torch.nn.init.uniform_(whole, -bound, bound)
        except Exception as error:
            failure = error  # raised after the others know
        if self._group.size > 1:
            failures = self._group.gather_objects(failure and str(failure), "draw a weight")
            if failure is None and any(failures):
                raise RuntimeError(next(f"rank {rank}: {each}" for rank, each in enumerate(failures) if each))
        if failure is not None:
            raise failure
        if self._group.size > 1:
            self._group.broadcast(whole, "draw a weight")
        return whole.to(dtype)

    @recording.outside_graphs
    def forward(self, x: torch.Tensor, weight: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns (y, bias) for x [s, ..., H]: `bias` with skip_bias_add, else None, because y has it. Collective."""
        recording.refuse(f"sluice_torch.te.{type(self).__name__}", x)
        shared = ranks.shared_by(self._group, self.threads, self.timeout)
        with shared.refusing():
            given = self.weight if weight is None else weight
            weight, main_grad = self._weight(given)
            self._check(x, weight)
            bias = self.bias if self.shape.bias else None
            rows = as_stored(x.reshape(x.shape[:-1].numel(), x.shape[-1]).to(torch.bfloat16))
            tokens, lead = self._tokens(x), x.shape[1:-1]
            shape, fp8_group = self._encodings.apply(self.shape, self.training)
            amax = self._scales.of_weights({"weight": given})[0] if shape.encodings.facts.has_scales else None
        step = self._begin(shape, fp8_group, rows)
        layer = step.run_on(lambda each: self._layer(shared, each, rows, weight, bias, main_grad is not None), shape)
        operands = (rows, weight, bias, main_grad, tokens, lead.numel())
        y = torch.ops.sluice.linear(layer, *operands, amax, step.used, step.found)
        step.end(y)
        y = y.view(y.shape[0] // lead.numel(), *lead, y.shape[1]).to(x.dtype)
        return y, self.bias if self.skip_bias_add else None

    def _weight(self, weight: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The weight of a step, and the tensor that its gradient is added to, if any."""
        if weight is None:
            raise RuntimeError("weight is not given, and the layer has none (skip_weight_param_allocation): pass it to forward")
        if not torch.is_grad_enabled() or not getattr(self.config, "gradient_accumulation_fusion", False):
            return weight, None
        main_grad = main_grad_of("weight", weight)
        return (weight, None) if main_grad is None else (AddedToMainGrad.apply(weight), main_grad)

    def _check(self, x: torch.Tensor, weight: torch.Tensor):
        expected = (self.shape.outs_here, self.shape.ins_here)
        if tuple(weight.shape) != expected:
            raise ValueError(f"weight has shape {list(weight.shape)}, expected {list(expected)}")
        if weight.dtype not in _DTYPES:
            raise ValueError(f"weight is {weight.dtype}, expected torch.bfloat16 or torch.float32")
        if not isinstance(x, torch.Tensor) or x.dim() < 2 or x.shape[-1] != self.shape.ins_here:
            found = list(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
            raise ValueError(f"x has shape {found}, expected [s, ..., {self.shape.ins_here}]")
        if x.shape[1:-1].numel() == 0:
            raise ValueError(f"x has shape {list(x.shape)}, expected only its first dimension to be 0")
        if x.dtype not in _DTYPES:
            raise ValueError(f"x is {x.dtype}, expected torch.bfloat16 or torch.float32")

    def _tokens(self, x: torch.Tensor) -> int:
        """T of this rank."""
        tokens = x.shape[:-1].numel()
        if self._column or self.shape.tokens == "same":
            return tokens
        return len(dealt(x.shape[0], self.shape.tp, self._group.rank)) * x.shape[1:-1].numel()

    def _layer(self, shared: ranks.Shared, *program):
        """The layer of the library for _program(*program). Collective if it does not exist yet."""
        with shared.refusing():
            key, path = self._program(*program)
        if path is not None:
            shape, *tensors, accumulate = program
            asked = tuple(name for name, each in zip(("x", "weight", "bias"), tensors) if each is not None and each.requires_grad)
            more = {"keep": self.keep, "dtype": tensors[1].dtype, "main_grad": accumulate}
            more["requires_grad"] = asked if torch.is_grad_enabled() else ()
            self._layers[key] = shared.linear(path, described(f"te.{type(self).__name__}", shape, **more))
        return self._layers[key].op

    def _begin(self, shape: LinearShape, fp8_group, rows: torch.Tensor) -> scaling.Step:
        sharers, delayed = None, shape.encodings.delayed
        if delayed is not None:
            group = self._group if delayed.reduce and shape.tp > 1 else None
            sharers = scaling.Sharers(group, fp8_group, self._group.timeout, [0], 1)
        return self._scales.begin(shape.encodings, sharers, (rows,), self.training, is_in_backward)

    def _program(self, shape: LinearShape, x, weight, bias, accumulate: bool) -> tuple:
        """The program of `shape` for the needed gradients: its key in _layers, and its path if its layer does not exist yet."""
        asked = [("x", x), ("weight", weight), ("bias", bias)] if torch.is_grad_enabled() else []
        trainable = tuple(name for name, tensor in asked if tensor is not None and tensor.requires_grad)
        narrow = not accumulate and all(t.dtype == torch.bfloat16 for name, t in asked[1:] if name in trainable)
        key = (os.getpid(), shape, trainable, narrow, accumulate)
        if key in self._layers:
            return key, None
        options = {"grads": "BF16" if narrow else "F32", "accumulate": accumulate, "keep": self.keep} if trainable else {}
        graph = linear_graph(shape)
        return key, cache.compile_graph(graph, trainable=trainable, options=shape.encodings.options(bool(trainable)), **options)

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: tuple = (), metadata: dict | None = None) -> dict:
        """A description of this rank's part of each parameter. `sharded_offsets` are (axis, offset, count) of axes 0, 1,
        ... before the parameter's own, such as that of stacked layers."""
        del metadata
        axes = [axis for axis, _, _ in sharded_offsets]
        if axes != list(range(len(axes))):
            raise ValueError(f"sharded_offsets have axes {axes}, expected {list(range(len(axes)))}: before the parameter's own")
        tensors = {}
        for name, parameter in self.named_parameters(recurse=False):
            dimension = getattr(parameter, "partition_dim", None)
            shape, offset = list(parameter.shape), [0] * parameter.dim()
            if dimension is not None:
                offset[dimension] = shape[dimension] * self._group.rank
                shape[dimension] *= self.shape.tp
            for _, first, count in reversed(sharded_offsets):
                shape, offset = [count, *shape], [first, *offset]
            replica = 0 if dimension is not None else self._group.rank
            tensors[prefix + name] = ShardedTensor(prefix + name, parameter.detach(), tuple(shape), tuple(offset), replica)
        return tensors

    def get_extra_state(self):
        """uint8: the histories of amaxes with delayed scaling. None: there are none."""
        return self._scales.state()

    def set_extra_state(self, state):
        """Takes what get_extra_state() returned. Of anything else, such as the state of Transformer Engine's own layers in a
        checkpoint, it takes nothing and warns. ValueError: histories of another length."""
        own = self._encodings.own
        try:
            self._scales.load(state, own and own.delayed, 1)
        except scaling.NoHistories as error:
            warnings.warn(f"{error}: the layer's histories stay as they are", stacklevel=2)

    def __getstate__(self):
        return {**self.__dict__, "_layers": {}}  # the copy makes its own again

    def __prepare_scriptable__(self):
        recording.refuse_script(f"sluice_torch.te.{type(self).__name__}")

    def extra_repr(self) -> str:
        s = self.shape
        text = f"in={s.ins}, out={s.outs}, tp={s.tp}, bias={self.bias is not None}"
        return f"{text}, sequence_parallel={self.sequence_parallel}{self._encodings}"


def _mark(parameter: torch.nn.Parameter, dimension: int, allreduce: bool):
    """The attributes by which Megatron-style optimisers and checkpoints know a parameter that ranks share."""
    parameter.tensor_model_parallel, parameter.partition_dim, parameter.partition_stride = True, dimension, 1
    parameter.allreduce = allreduce


class ColumnParallelLinear(_ParallelLinear):
    """y = x W^T + b with the rows of W [output_size, input_size] shared by the ranks of tp_group. `encode` is
    that of sluice_torch.MoE; the weight is no code.

    Without tp_group it is that of pg_collection or of Megatron (megatron_groups.py). `name` has no effect.
    x [s, ..., input_size]: with sequence parallelism this rank's part of the first dimension (any length per rank,
    also 0), else the same at all ranks. y [sum of s, ..., output_size / ranks]. `keep`: "regather" gathers x again in
    the backward instead of keeping what was gathered. Making a layer is collective if it has a weight.
    ValueError: no group, but config.tensor_model_parallel_size above 1; gather_output, a stride other than 1, sizes that the ranks do not divide.
    """

    _column = True

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        config=None,
        init_method=None,
        gather_output: bool = False,
        bias: bool = True,
        skip_bias_add: bool = False,
        is_expert: bool = False,
        skip_weight_param_allocation: bool = False,
        tp_comm_buffer_name: str | None = None,
        stride: int = 1,
        keep_master_weight_for_test: bool = False,
        **options,
    ):
        del tp_comm_buffer_name  # buffers have no names here
        if gather_output:
            raise ValueError(f"gather_output is {gather_output!r}, expected False: each rank keeps its columns of y")
        super().__init__(
            input_size, output_size, config, init_method, bias, skip_bias_add, is_expert,
            not skip_weight_param_allocation, stride, keep_master_weight_for_test, options,
        )  # fmt: skip


class RowParallelLinear(_ParallelLinear):
    """y = x W^T + b with the columns of W [output_size, input_size] shared by the ranks of tp_group. `encode` is
    that of sluice_torch.MoE; the weight is no code.

    Without tp_group it is found as by ColumnParallelLinear.
    x [s, ..., input_size / ranks]. y [s, ..., output_size]: with sequence parallelism this rank's part of the first
    dimension, which is shared as evenly as possible (the first ranks have one more), else all of it at every rank. The
    gradient of the bias is then that of this rank's part. Making a layer is collective.
    ValueError: no group, but config.tensor_model_parallel_size above 1; input_is_parallel False, a stride other than 1, sizes that the ranks do not divide.
    """

    _column = False

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        config=None,
        init_method=None,
        bias: bool = True,
        input_is_parallel: bool = True,
        skip_bias_add: bool = False,
        is_expert: bool = False,
        tp_comm_buffer_name: str | None = None,
        stride: int = 1,
        keep_master_weight_for_test: bool = False,
        **options,
    ):
        del tp_comm_buffer_name
        if not input_is_parallel:
            raise ValueError(f"input_is_parallel is {input_is_parallel!r}, expected True: each rank has its columns of x")
        super().__init__(
            input_size, output_size, config, init_method, bias, skip_bias_add, is_expert, True, stride,
            keep_master_weight_for_test, options,
        )  # fmt: skip

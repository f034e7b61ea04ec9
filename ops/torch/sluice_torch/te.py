"""Column- and row-parallel linear layers that overlap communication with their products, with the interface that
Megatron-style models expect. They need no Megatron.

With config.sequence_parallel each rank has its part of the first dimension (the sequence) outside a pair of layers:
a column-parallel layer gathers it, a row-parallel one adds the terms of all ranks and scatters them. Without it all
ranks have the same tokens, and the terms are all-reduced. Products use bfloat16 with float32 sums; float32 inputs and
parameters are rounded in each step.
"""

import math
import os
import warnings

import torch

from . import cache
from .base import recording
from .base.integers import MAX_ROWS, whole_number
from .base.tensors import as_stored, empty_weight
from .base.writes import write
from .encodings import scaling
from .encodings.autocast import Chooser, is_in_backward
from .encodings.encodings import BF16, encodings_of, refuse_unknown
from .layers.delaying import Delays
from .layers.linear_graphs import LinearShape, linear_graph
from .layers.main_grad import AddedToMainGrad, main_grad_of
from .layers.reporting import Reports
from .ranks import ranks
from .ranks.described_calls import described
from .ranks.megatron_groups import checkpoint_classes, tp_group_of
from .ranks.parallel import Parallel
from .ranks.sharded_tensors import Cut, Part, describe

_DTYPES = (torch.bfloat16, torch.float32)


class _ParallelLinear(Delays, Reports, torch.nn.Module):
    """What both layers share. `_column` and the dimension of the weight that ranks share are theirs."""

    _column = True

    def __init__(self, ins, outs, config, init_method, bias, skip_bias_add, is_expert, allocate, stride, keep_master, options):
        super().__init__()
        known = {"tp_group": None, "pg_collection": None, "name": None, "threads": 0, "timeout": 30.0, "max_tokens": 65536, "keep": "all", "encode": None}
        refuse_unknown(type(self).__name__, {name: value for name, value in options.items() if name not in known}, known)
        options = {**known, **options}
        if options["keep"] not in ("all", "minimal", "regather"):
            raise ValueError(f"keep is {options['keep']!r}, expected 'all', 'minimal' or 'regather'")
        self.config, self.is_expert, self.skip_bias_add = config, is_expert, skip_bias_add
        self.threads, self.timeout, self.keep = options["threads"], options["timeout"], options["keep"]
        self.delay_wgrad_compute = bool(getattr(config, "delay_wgrad_compute", False))
        self.sequence_parallel = bool(getattr(config, "sequence_parallel", False)) and not is_expert
        group = tp_group_of(config, is_expert, options["tp_group"], options["pg_collection"])
        # the ranks that divide the weight, and those that compute together: an expert's part is a layer of its own
        self._part, self._parts = (0, 1) if group is None else ranks.place_in("tp_group", group)
        together = None if is_expert else group
        tokens = "own" if self.sequence_parallel or together is None else "same"
        self._group = ranks.Group(Parallel(tp_group=together, tokens=tokens, timeout=self.timeout))
        tp = self._group.tp
        for name, size in (("input_size", ins), ("output_size", outs)):
            whole_number(name, size, 1, MAX_ROWS)
        self._stride = whole_number("stride", stride, 1, MAX_ROWS)
        divided, name = (outs, "output_size") if self._column else (ins, "input_size")
        if divided % (self._parts * stride):
            of = f"the {self._parts} ranks of tp_group" + (f" times the stride, {stride}" if stride > 1 else "")
            raise ValueError(f"{name} is {divided}, expected a multiple of {of}")
        if is_expert and not self._column and self._parts > 1 and bias and not skip_bias_add:
            raise ValueError("bias is True, expected skip_bias_add with it: each of the ranks that share an expert would add it")
        self._whole = (outs, ins)
        if is_expert:
            outs, ins = (outs // self._parts, ins) if self._column else (outs, ins // self._parts)
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
                write(self.weight, self._part_of(whole))
                self.master_weight = whole if keep_master else None
            self._mark(self.weight, self._sharded)
        else:
            self.register_parameter("weight", None)
        if bias:
            self.bias = torch.nn.Parameter(torch.zeros(shape.outs_here, dtype=dtype))
            if self._column:
                self._mark(self.bias, 0)
            else:
                self.bias.allreduce = self._allreduce
                # its gradient is from this rank's tokens
                self.bias.sequence_parallel = self.sequence_parallel
        else:
            self.register_parameter("bias", None)

    def _initial(self, init_method, dtype) -> torch.Tensor:
        """A whole weight, of which this rank takes its part: nothing is sent. Ranks with equal random states draw the same one."""
        whole = torch.empty(self._whole, dtype=torch.float32)
        bound = 1 / math.sqrt(self._whole[1])
        init_method(whole) if init_method is not None else torch.nn.init.uniform_(whole, -bound, bound)
        return whole.to(dtype)

    def _part_of(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's part of the weight: its share of each of `stride` equal parts, such as gate and up."""
        return torch.cat(whole.chunk(self._stride * self._parts, self._sharded)[self._part :: self._parts], self._sharded)

    @property
    def _allreduce(self) -> bool:
        """Whether gradients are summed over all ranks, as gradients of dense parameters are: not where ranks have other experts."""
        return not (self.is_expert and (getattr(self.config, "expert_model_parallel_size", None) or 1) > 1)

    def _mark(self, parameter: torch.nn.Parameter, dimension: int):
        """The attributes by which Megatron-style optimisers and checkpoints know a parameter that ranks share."""
        parameter.tensor_model_parallel, parameter.partition_dim, parameter.partition_stride = True, dimension, self._stride
        parameter.allreduce = self._allreduce

    @recording.outside_graphs
    def forward(self, x: torch.Tensor, weight: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns (y, bias) for x [s, ..., H]: `bias` with skip_bias_add, else None, because y has it. Collective."""
        recording.refuse(f"sluice_torch.te.{type(self).__name__}", x)
        shared = self._shared()
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
        y = torch.ops.sluice.linear(layer, *operands, amax, step.used, step.found, self._queue())
        step.end(y)
        y = y.view(y.shape[0] // lead.numel(), *lead, y.shape[1]).to(x.dtype)
        return y, self.bias if self.skip_bias_add else None

    def _shared(self) -> ranks.Shared:
        return ranks.shared_by(self._group, self.threads, self.timeout)

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
        return len(ranks.dealt(x.shape[0], self.shape.tp, self._group.rank)) * x.shape[1:-1].numel()

    def _layer(self, shared: ranks.Shared, *program):
        """The layer of the library for _program(*program). Collective if it does not exist yet."""
        with shared.refusing():
            key, path = self._program(*program)
        if path is not None:
            shape, *tensors, accumulate = program
            asked = tuple(name for name, each in zip(("x", "weight", "bias"), tensors) if each is not None and each.requires_grad)
            more = {"keep": self.keep, "dtype": tensors[1].dtype, "main_grad": accumulate}
            more["delay_wgrad_compute"] = self.delay_wgrad_compute
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
        graph, delaying = linear_graph(shape), self._delaying([name != "x" for name in trainable])
        if delaying and "x" not in trainable:
            trainable = ("x", *trainable)  # a backward without gradients of parameters would compute nothing else
        return key, cache.compile_graph(graph, trainable=trainable, options=shape.encodings.options(bool(trainable)) + delaying, **options)

    def backward_dw(self):
        """With `delay_wgrad_compute` of the config as of sluice_torch.MoE, for the gradients of weight and bias. Without it there is no
        effect: the backward has computed them."""
        if self.delay_wgrad_compute:
            super().backward_dw()

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: tuple = (), metadata: dict | None = None) -> dict:
        """A description of this rank's part of each parameter (sharded_tensors.py). With a stride and Megatron the weight is one
        range, which Megatron's own factory for gated layers divides. `sharded_offsets` are (axis, offset, count) of axes 0, 1, ...
        before the parameter's own, such as the axis of stacked layers. metadata["dp_cp_group"]: the ranks that have copies.
        ValueError: other axes."""
        classes, group = checkpoint_classes(), (metadata or {}).get("dp_cp_group")
        data_rank = 0 if group is None else ranks.place_in("dp_cp_group", group)[0]
        found = {}
        for name, parameter in self.named_parameters(recurse=False):
            dimension, key = getattr(parameter, "partition_dim", None), prefix + name
            cut = None if dimension is None else Cut(dimension, self._part, self._parts, 1 if classes else self._stride)
            part = Part(cut, replica=self._part if cut is None else 0)
            found[key] = describe(classes, key, parameter, part, sharded_offsets, data_rank)
        return found

    def _load_from_state_dict(self, state_dict, prefix, *arguments):
        state_dict.setdefault(f"{prefix}_extra_state", self.get_extra_state())  # what others save may lack it
        super()._load_from_state_dict(state_dict, prefix, *arguments)

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
        return {**self.__dict__, "_layers": {}, "_delayed": None}  # the copy makes its own again

    def __prepare_scriptable__(self):
        recording.refuse_script(f"sluice_torch.te.{type(self).__name__}")

    def extra_repr(self) -> str:
        s = self.shape
        text = f"in={s.ins}, out={s.outs}, tp={s.tp}, bias={self.bias is not None}"
        return f"{text}, sequence_parallel={self.sequence_parallel}{self._encodings}"


def __getattr__(name: str):
    if name in ("ColumnParallelLinear", "RowParallelLinear"):
        raise AttributeError(f"{__name__}.{name} is now {__name__}.TE{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class TEColumnParallelLinear(_ParallelLinear):
    """y = x W^T + b with the rows of W [output_size, input_size] shared by the ranks of tp_group. `encode` is as for
    sluice_torch.MoE; the weight is no code.

    Without tp_group it is the group of pg_collection or of Megatron (megatron_groups.py). `name` has no effect.
    x [s, ..., input_size]: with sequence parallelism this rank's part of the first dimension (any length per rank,
    also 0), else the same at all ranks. y [sum of s, ..., output_size / ranks]. `keep`: "regather" gathers x again in
    the backward instead of keeping what was gathered. `stride`: output_size has so many equal parts, such as gate and up, and a rank has
    its share of each. A layer draws a whole weight by init_method and takes its part; nothing is sent. `is_expert`: the group has the
    ranks that share an expert, and the layer is a product of its own, of all rows that it is given, without communication.
    ValueError: no group, but config.tensor_model_parallel_size above 1; gather_output; sizes that the ranks and the stride do not divide.
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


class TERowParallelLinear(_ParallelLinear):
    """y = x W^T + b with the columns of W [output_size, input_size] shared by the ranks of tp_group. `encode` is as for
    sluice_torch.MoE; the weight is no code.

    Without tp_group it is found as by TEColumnParallelLinear.
    x [s, ..., input_size / ranks]. y [s, ..., output_size]: with sequence parallelism this rank's part of the first
    dimension, which is shared as evenly as possible (the first ranks have one more), else all of it at every rank. The gradient of the
    bias is then from this rank's part. `stride` and the first weight are as of TEColumnParallelLinear. `is_expert`: y
    is this rank's term, which the caller adds to the terms of the other ranks.
    ValueError: no group, but config.tensor_model_parallel_size above 1; input_is_parallel False; sizes that the ranks and the stride do not divide.
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

"""MoE: the experts of a mixture-of-experts layer as a module."""

import dataclasses
import functools
import inspect
import math
import os
import weakref

import torch

from .. import cache, graphs
from ..base import recording
from ..base.tensors import empty_weight, keep_freed_memory
from ..base.writes import write
from ..encodings import scaling
from ..encodings.amax import amax_of
from ..encodings.autocast import Chooser, is_in_backward
from ..encodings.encodings import BF16, encodings_of, refuse_unknown
from ..ranks import pairs, ranks, replicas
from ..ranks.described_calls import described_step
from ..ranks.parallel import Parallel
from . import activations, placement, rank_rows, sharding
from .delaying import Delays
from .main_grad import AddedToMainGrad, AddToMainGrad, main_grad_of
from .operands import DTYPES, operands_of
from .preparing import Preparable
from .reporting import Reports
from .steps import Steps
from .submitting import Submits, check_submitted

# Arguments of versions before -> how they are spelled now.
_MOVED = {
    each.name: f"{argument}=sluice_torch.{kind.__name__}({each.name}=...)"
    for argument, kind in (("parallel", Parallel), ("steps", Steps))
    for each in dataclasses.fields(kind)
} | {"limit": "activation='swiglu_oai:LIMIT'"}

# In the state of a layer whose experts have places: the expert at each of them.
PLACEMENT = "placement"


class MoE(Preparable, Submits, Delays, Reports, sharding.Marked, torch.nn.Module):
    """The experts of a layer: y = sum over k of expert_weights[t, k] * expert(expert_ids[t, k])(x[t]).

    An expert is down(activation(gate(x)) * up(x)); or down(activation(up(x))) with an activation of activations.UNGATED.
    Parameters, of this rank's experts:

        gate_up_weight  [E, 2 I, H]   rows of gate, then rows of up; without a gate [E, I, H], rows of up
        down_weight     [E, H, I]
        gate_up_bias    [E, 2 I]      with `bias`; without a gate [E, I]
        down_bias       [E, H]        with `bias`

    E are the experts of this rank: all of them, unless `parallel` says how ranks share experts. `num_experts` counts the experts of
    all ranks. Ranks must call their layers in the same order, each with its own tokens (possibly none), and must request the same
    gradients.

    Products use bfloat16 with float32 sums. Parameters (`dtype`) may be float32: they are rounded to bfloat16 in each
    step, and have float32 gradients. x may be float32: it is rounded to bfloat16, and so are y and the gradient of x
    before they are returned as float32. expert_weights are used as float32.

    Programs are compiled at first use, one per set of requested gradients, and kept on disk (sluice_torch.cache); a new
    token count or routing never compiles again. A parameter with requires_grad False has no gradient, at no cost. If a
    parameter, or one of an adapter, has a float32 tensor `main_grad`, its gradient is added to that without rounding,
    and autograd gets none; or, for a parameter that has `grad_added_to_main_grad`, a placeholder, and that becomes True, as
    Megatron's DistributedDataParallel expects it.

    activation   "swiglu" or another of activations.ACTIVATIONS; with a limit after a colon if it has one: "swiglu_oai:7"
    bias         True: both products add a bias, which is trained where the weight is
    parallel     sluice_torch.Parallel: how ranks share experts and tokens. None: this process owns all
    encode       what numbers are stored as, rounded to and sent as: an encoding, PLACE=ENCODING for some of the places weights,
                 weights.gate_up_weight, weights.down_weight, trained, rows, grads, kept and sent, joined by commas, or a recipe of sluice_torch.recipe. None: products
                 round as sluice_torch.fp8_autocast says, else all is bfloat16. docs/PRECISION.md lists them; for example
                 "int8"              frozen codes of 8 bits with a float32 scale per output channel (gate_up_weight_scale
                                     [E, 2 I, 1], down_weight_scale [E, H, 1]); rows stay bfloat16
                 "int4:g64,rows=int8"  codes of 4 bits, two per byte, and scales per group of 64 (..._scales, the last dimension
                                     by group); rows that they multiply become codes, too. "int4:g64z": zeros beside scales
                 "fp8e4m3:128x128"   E4M3 in uint8, with ..._scales [E, 2 I / 128, H / 128]
                 "mxfp4"             E2M1, two per byte, with powers of two per 32 in uint8 (..._scales [E, 2 I, H / 32])
                 "nvfp4"             E2M1, with E4M3 per 16 in uint8 (..._scales [E, 2 I, H / 16]) and ..._factor [E, 1]
                 "mxfp8,grads=mxfp8e5m2"   weights are trained, and products round their factors in blocks of 32
                 "fp8e4m3:delayed"   they round by scales of largest magnitudes of earlier steps, which the layer and its
                                     state_dict keep
    lora         sluice_torch.LoRAConfig: low-rank adapters, whose parameters are trained instead of the weights
    dtype        of parameters: torch.bfloat16 or torch.float32
    steps        sluice_torch.Steps: how steps run. None: by its defaults
    initialise   False: weights are undefined, for callers that set them at once
    """

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        num_experts: int,
        top_k: int,
        *,
        activation: str = "swiglu",
        bias: bool = False,
        parallel: Parallel | None = None,
        encode=None,
        lora=None,
        dtype: torch.dtype = torch.bfloat16,
        steps: Steps | None = None,
        initialise: bool = True,
        **unknown,
    ):
        super().__init__()
        if unknown:
            refuse_unknown("MoE", unknown, [name for name in inspect.signature(MoE).parameters if name != "unknown"], _MOVED)
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype}, expected torch.bfloat16 or torch.float32")
        parallel, steps = Parallel() if parallel is None else parallel, Steps() if steps is None else steps
        if not isinstance(steps, Steps):
            raise ValueError(f"steps is of type {type(steps).__name__}, expected sluice_torch.Steps, such as Steps(threads=4)")
        self._group = ranks.Group(parallel)
        sizes = (hidden, intermediate, num_experts, top_k, self._group.size, steps.max_tokens, *activations.parse(activation))
        own = encodings_of(encode)
        self._encodings, self._scales = Chooser(own), scaling.Scales()
        self.shape = graphs.LayerShape(*sizes, self._group.tp, parallel.tokens, parallel.rows_per, parallel.spare, own or BF16, bias)
        if steps.delay_wgrad_compute and parallel.rows_per != "expert":
            raise ValueError(f"rows_per={parallel.rows_per!r} does not go together with delay_wgrad_compute; expected rows_per='expert'")
        self._watch()
        self.places = None  # placement.Places, if experts can move
        if self.shape.spare is not None:
            self.set_places(placement.choose(self.shape, torch.ones(num_experts)))
            self._rows_seen = torch.zeros(num_experts, dtype=torch.int64)
        self.lora, self.steps, self.timeout = lora, steps, parallel.timeout
        self._layers, self.lora_dropout = {}, 0.0  # above 0: training is refused
        own, part = len(self.shape.places_of(self._group.rank)), self.shape.part
        self._add_weight("gate_up_weight", (own, self.shape.inputs * part, hidden), dtype)
        self._add_weight("down_weight", (own, hidden, part), dtype)
        if initialise:
            self.reset_parameters()
        if lora is not None:
            self._add_adapters(dtype)
        self._check_backward()

    def _add_weight(self, name: str, sizes: tuple, dtype: torch.dtype):
        stored = self.shape.stored(name)
        if self.shape.bias:
            bias = torch.nn.Parameter(empty_weight(sizes[:-1], dtype=dtype), requires_grad=not stored.has_codes)
            self.register_parameter(name.replace("weight", "bias"), bias)
        if not stored.has_codes:
            self.register_parameter(name, torch.nn.Parameter(empty_weight(sizes, dtype=dtype)))
            return
        *rows, length = sizes
        of_codes = torch.int8 if stored.element == "I8" else torch.uint8
        made = {name: empty_weight(*rows, length // stored.per_element, dtype=of_codes)}
        for each in stored.beside(name):
            made[each] = torch.empty(rows[0], *stored.sizes_beside(each, rows[1], length), dtype=stored.dtype_beside(each))
        for each, tensor in made.items():
            self.register_parameter(each, torch.nn.Parameter(tensor, requires_grad=False))

    def become(self, group: ranks.Group, shape: graphs.LayerShape, parameters: dict[str, torch.nn.Parameter]):
        """Makes this layer the layer of another rank or mesh, with these parameters."""
        self._group, self.shape, self._layers, self._scales = group, shape, {}, scaling.Scales()
        if self.places is not None:
            self.set_places(placement.Places(shape, self.places.expert_at))
        for name, parameter in parameters.items():
            setattr(self, name, parameter)
        self._watch()

    def by_copies(self, parameter: torch.nn.Parameter, grad: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
        """The gradient of a parameter of the layer in parts, each with the number of times that the ranks have it: tp for
        parameters that each shard has whole, times the places of an expert."""
        name = next(name for name, own in self.named_parameters(recurse=False) if own is parameter)
        shards = self.shape.tp if sharding.is_whole(name) else 1
        if self.places is None or not self.places.have_copies:
            return [(grad, shards)]
        copies = self.places.copies(self._group.rank // self.shape.tp)
        return [(grad[copies == number], number * shards) for number in copies.unique().tolist()]

    def set_places(self, places: placement.Places):
        self.places = places
        self.register_buffer(PLACEMENT, torch.tensor(places.expert_at, dtype=torch.int32))

    def place(self, expert_at, *optimizers: torch.optim.Optimizer):
        """Moves experts: place p gets expert expert_at[p], with its weights, gradients, main_grads and what the optimizers
        keep in the shape of its weights. Between steps; collective, with the same places at all ranks.

        ValueError: a layer without `spare`; an expert without a place; ranks that differ in what has to move.
        """
        self._check_settled("place")
        placement.move_experts(self, expert_at, optimizers)

    def mover(self) -> placement.Mover:
        return placement.Mover(self._group, self.shape, self.places)

    def take_rows_seen(self) -> torch.Tensor:
        """[num_experts] float64: the (token, k) pairs of all ranks for each expert since the last call, in forward steps.
        Only of a layer with `spare`. Collective."""
        rows = self._rows_seen.clone()
        self._rows_seen.zero_()
        self._group.all_reduce(rows, "count rows of experts")
        return rows.double()

    def _count(self, ids: torch.Tensor):
        if self.places is not None:
            own = ids[(ids >= 0) & (ids < self.shape.experts)].long()
            self._rows_seen += torch.bincount(own, minlength=self.shape.experts)

    def _watch(self):
        """For a layer that shares its experts: prevents code from treating them as copies of other ranks'
        (replicas)."""
        if self._group.size > 1:
            self._wrappers = weakref.WeakSet()  # DistributedDataParallel modules around the layer
            replicas.watch(self)

    def __setattr__(self, name: str, value):
        if "_wrappers" in self.__dict__:
            replicas.check_attribute(name, value)
        super().__setattr__(name, value)

    def _add_adapters(self, dtype: torch.dtype):
        from .. import lora

        self.shape.encodings.check_sizes(rank_of_adapters=self.lora.rank)
        for name in (*sharding.WEIGHTS, *self.shape.biases):
            getattr(self, name).requires_grad_(False)
        own, longest = self.gate_up_weight.shape[0], len(self.shape.places_of(0))
        lora.check_targets(self.lora, self.shape.activation)
        made = lora.make_parameters(self.lora, own, self.shape.hidden, self.shape.part, dtype, self.shape.tp)
        for name, parameter in made.items():
            self.register_parameter(name, parameter)
            if self.shape.tp > 1 and sharding.is_whole(name):  # must be the same at all shards
                write(parameter, self._group.gather_shards(parameter.detach(), longest, "make adapters equal")[0])
        placement.make_copies_equal(self)

    def reset_parameters(self):
        """Initialises weights uniformly, like torch.nn.Linear, and biases with zeros. With `spare`, collective."""
        hidden, part = self.shape.hidden, self.shape.part
        bounds = (1 / math.sqrt(hidden), 1 / math.sqrt(self.shape.intermediate))
        if self.shape.has_codes:
            for row in range(len(self.gate_up_weight)):
                before = [torch.empty(part, hidden).uniform_(-bounds[0], bounds[0]) for _ in range(self.shape.inputs)]
                down = torch.empty(hidden, part).uniform_(-bounds[1], bounds[1])
                for each, bound in (*((each, bounds[0]) for each in before), (down, bounds[1])):
                    each[:, 0], each[:, -1] = bound, -bound  # so scales are the same at all shards
                sharding.set_expert(self, row, *before, down, is_shard=True)
        else:
            for weight, bound in zip((self.gate_up_weight, self.down_weight), bounds):
                write(weight, functools.partial(torch.nn.init.uniform_, a=-bound, b=bound))
        for bias in self.shape.biases:
            write(getattr(self, bias), torch.nn.init.zeros_)
        placement.make_copies_equal(self)
        self.forget_amaxes()

    def forget_amaxes(self):
        """For callers that set other weights: histories of largest magnitudes ("fp8e4m3:delayed") begin again."""
        self._scales.forget()

    @property
    def delay_wgrad_compute(self) -> bool:
        return self.steps.delay_wgrad_compute

    @property
    def first_expert(self) -> int:
        """The number of this rank's first expert, counted over all ranks; with `spare`, of its first place."""
        return self.shape.places_of(self._group.rank).start

    @property
    def local_experts(self) -> list[int]:
        """The expert at each row of this rank's parameters."""
        own = self.shape.places_of(self._group.rank)
        return list(own) if self.places is None else [self.places.expert_at[place] for place in own]

    @property
    def shard(self) -> int:
        """The number of this rank's shard of its experts, 0 to tp - 1."""
        return self._group.shard

    @recording.outside_graphs
    def forward(self, x: torch.Tensor, expert_ids: torch.Tensor, expert_weights: torch.Tensor) -> torch.Tensor:
        """Returns y [..., H] for x [..., H], expert_ids [..., K] (int32 or int64; -1: none) and expert_weights [..., K].

        Tensors must be where the parameters are; those that are not contiguous are copied. ids and weights may have the tokens in one
        dimension. Collective.
        ValueError and RuntimeError: tensors of other types or shapes; ids that are no experts or are repeated in a
        token. A step that one rank refuses fails at all ranks, and their next steps match again.
        """
        recording.refuse("sluice_torch.MoE", x, expert_ids, expert_weights)
        self._shared()  # chooses a form if none is yet
        if self.shape.is_per_rank:
            return rank_rows.step(self, x, expert_ids, expert_weights)
        return self._step(self.shape, x, expert_ids, expert_weights)

    @recording.outside_graphs
    def forward_sorted(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Returns y [R, H] for rows [R, H] that are sorted by expert already: `counts` [num_experts] (int32 or int64) are
        the rows of this rank for each expert of all ranks. y[i] is what the expert of row i gives for it, unweighted.

        Collective; ranks may have different numbers of rows. ValueError and RuntimeError like forward(); counts of another
        shape or type, below 0, or whose sum is not R.
        """
        recording.refuse("sluice_torch.MoE", rows, counts)
        with self._shared().refusing():
            ids = pairs.ids_of_sorted(rows, counts, self.shape.experts)
        return self._step(self.shape.of_sorted_rows(), rows, ids, torch.ones(ids.shape, device=ids.device))

    def _step(self, shape: graphs.LayerShape, x, expert_ids, expert_weights) -> torch.Tensor:
        """A forward of this layer's experts with the top_k of `shape`."""
        y, step = self._request(shape, x, expert_ids, expert_weights)
        step.end(y)
        return y.to(x.dtype).view(x.shape)

    def _request(self, shape: graphs.LayerShape, x, expert_ids, expert_weights, submits: bool = False) -> tuple:
        """Runs a forward, or submits it: then without an effect on histories. Returns what the op returns, and the step's scales."""
        shared = self._shared()  # loads torch.ops.sluice if this is the first step
        with shared.refusing():
            shape, fp8_group, operands, weights, grads, needed, amaxes = self._arguments(shape, x, expert_ids, expert_weights)
            if submits:
                check_submitted(shape, *operands, *weights)
        return self._run(shared, shape, fp8_group, operands, weights, grads, needed, amaxes, submits)

    def _run(self, shared, shape, fp8_group, operands, weights, grads, needed, amaxes, submits: bool = False) -> tuple:
        """_request() with what _arguments() returned."""
        step = self._begin(shape, None if submits else fp8_group, operands, self.training and not submits)
        layer = step.run_on(lambda each: self._layer(shared, each, needed, weights, bool(grads)), shape)
        grads += [None] * len(amaxes) if grads else []
        run = torch.ops.sluice.submit_moe if submits else torch.ops.sluice.moe
        made = run(layer, *operands, weights + amaxes, grads, self._placement(), step.used, step.found, self._queue())
        self._count(operands[1])
        return made, step

    def _arguments(self, shape: graphs.LayerShape, x, expert_ids, expert_weights) -> tuple:
        """Returns a step's shape and fp8_group, operands, weights and main_grads, the needed gradients, and amaxes of weights."""
        shape, fp8_group = self._rounding(shape)
        operands = operands_of(shape, x, expert_ids, expert_weights, self.device)
        weights, grads = self._weights(), []
        if torch.is_grad_enabled():
            grads = self._main_grads()
            for place in (place for place, grad in enumerate(grads) if grad is not None):
                weights[place] = AddedToMainGrad.apply(weights[place])
            weights, grads = self._over_copies(weights, grads)
        needed, amaxes = self._needed(operands, weights), self._weight_amaxes(shape, weights)
        return shape, fp8_group, operands, weights, grads, needed, amaxes

    def order_pairs(self, expert_ids: torch.Tensor) -> pairs.Pairs:
        """The order in which a step with these ids sends its (token, k) pairs: `indices` into the flattened ids, by
        expert, then by token, without pairs of id -1; and `counts` of pairs by source rank and expert. Collective, but no
        step. RuntimeError: a layer with `spare`, which orders them by place."""
        if self.places is not None:
            raise RuntimeError("order_pairs orders pairs by expert, but this layer has places (spare)")
        self._shared()  # chooses a form if none is yet
        self.shape.refuse_per_rank("order_pairs")
        return pairs.order_pairs(self._group, expert_ids, self.shape.top_k, self.shape.experts)

    def refuse(self, why: str):
        """Replaces a forward or backward at a rank that cannot take part in it: the step fails at all other ranks with
        "rank N: WHY", and their next steps match again. Collective, like that step."""
        self._shared().refuse(why)

    def refusing(self):
        """A context manager for what a rank does before it calls the layer: an exception is also passed to refuse(). Do
        not use it around the call itself."""
        return self._shared().refusing()

    def _rounding(self, shape: graphs.LayerShape) -> tuple:
        """`shape` with the encodings of a step, and the step's fp8_group."""
        shape, fp8_group = self._encodings.apply(shape, self.training)
        if self.lora is not None:
            shape.encodings.check_sizes(rank_of_adapters=self.lora.rank)
        return shape, fp8_group

    def _weight_amaxes(self, shape: graphs.LayerShape, weights: list) -> list[torch.Tensor]:
        """What the program reads beside weights, if it scales them."""
        if not shape.encodings.facts.has_scales:
            return []
        own = self._scales.of_weights({name: getattr(self, name) for name in sharding.WEIGHTS})
        return own + [amax_of(adapter) for adapter in weights[len(own) : len(weights) - len(self.shape.biases)]]

    def _begin(self, shape: graphs.LayerShape, fp8_group, operands, training: bool) -> scaling.Step:
        sharers, delayed = None, shape.encodings.delayed
        if delayed is not None:
            shares = delayed.reduce and shape.ranks > 1 and (shape.tp > 1 or self.places is not None)
            group = self._group if shares else None
            sharers = scaling.Sharers(group, fp8_group, self._group.timeout, self.local_experts, self.shape.experts, self.places is not None)
        return self._scales.begin(shape.encodings, sharers, operands[:2], training, is_in_backward)

    def _weights(self) -> list[torch.Tensor]:
        """The program's weights, in the order of _weight_names()."""
        divisor = replicas.divisor_of(self) if self._group.size > 1 else 1
        scales = [getattr(self, name) for name in self._scale_names()]
        own = {name: getattr(self, name) for name in (*graphs.WEIGHTS, *self._adapter_names(), *self.shape.biases)}
        for name, weight in own.items():
            if replicas.is_distributed(weight):
                raise RuntimeError(f"{name} is a {type(weight).__name__}, expected a tensor that this process has whole")
            if divisor > 1 and torch.is_grad_enabled() and weight.is_floating_point():
                own[name] = replicas.Divided.apply(weight, divisor)
        weights = [own.pop("gate_up_weight"), own.pop("down_weight")]
        biases = [own.pop(name) for name in self.shape.biases]
        if self.lora is not None:
            from .. import lora

            lora.check_dropout(self)
            weights += self._summed(lora.adapter_weights(self.lora, *self._adapters(own), self.shape.inputs))
        return weights + biases + scales

    def _summed(self, adapters: list[torch.Tensor]) -> list[torch.Tensor]:
        """Adapters, with gradients that are summed over the shards if each shard has a term of them."""
        names = self._weight_names()[2:]
        places = [p for p, name in enumerate(names) if name in sharding.WHOLE_INPUTS and adapters[p].requires_grad]
        if self.shape.tp > 1 and places:
            longest = len(self.shape.places_of(0))
            gather = functools.partial(self._group.gather_shards, longest=longest, what="sum gradients of adapters")
            for place, each in zip(places, sharding.SumOverShards.apply(gather, *(adapters[p] for p in places))):
                adapters[place] = each
        return adapters

    def _over_copies(self, weights: list, grads: list) -> tuple[list, list]:
        """Weights and main_grads, such that gradients are summed over copies of experts if there are any."""
        if self.places is None or not self.places.have_copies:
            return weights, grads
        return placement.sum_over_copies(self.mover(), weights, grads)

    def _placement(self) -> torch.Tensor | None:
        return None if self.places is None else self.placement

    def _adapter_names(self) -> list[str]:
        return [] if self.lora is None else self.lora.names()

    def _adapters(self, parameters: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], torch.dtype]:
        """The adapters by name, and the type in which the op gets them: float32 if there is a main_grad, or if their
        gradients are summed over shards or copies."""
        dtype = next(iter(parameters.values())).dtype
        if not torch.is_grad_enabled():
            return parameters, dtype
        if sharding.sums_adapters(self.shape, self.places):
            dtype = torch.float32
        for name, parameter in list(parameters.items()):
            grad = main_grad_of(name, parameter)
            if grad is not None:
                parameters[name] = AddToMainGrad.apply(parameter, grad)
                dtype = torch.float32
        return parameters, dtype

    def _weight_names(self) -> list[str]:
        names = list(graphs.WEIGHTS)
        if self.lora is not None:
            from .. import lora

            names += lora.weight_names(self.lora)
        return [*names, *self.shape.biases, *self._scale_names()]

    def _scale_names(self) -> list[str]:
        return [beside for name in sharding.WEIGHTS for beside in self.shape.beside(name)]

    def _main_grads(self) -> list:
        """The tensors to which the op adds weight gradients; empty if there are none. The op has the adapters only in
        pairs, so autograd adds the gradients of adapters to their main_grad."""
        grads = {name: main_grad_of(name, getattr(self, name)) for name in (*graphs.WEIGHTS, *self.shape.biases)}
        if all(grad is None for grad in grads.values()):
            return []
        return [grads.get(name) for name in self._weight_names()]

    def _needed(self, operands, weights) -> tuple[bool, ...]:
        """For x, expert_weights and each weight, whether a gradient is requested. If none is, only a forward is
        needed."""
        if not torch.is_grad_enabled():
            return ()
        needed = (operands[0].requires_grad, operands[2].requires_grad, *(w.requires_grad for w in weights))
        return needed if any(needed) else ()

    @property
    def device(self) -> torch.device:
        """That of the parameters, where the tensors of a step must be, too."""
        return self.gate_up_weight.device

    def _shared(self) -> ranks.Shared:
        if self.device.type == "meta":
            raise ValueError("the layer's weights are on meta: sluice_torch.load_model() and load_experts() set them")
        shared = ranks.shared_by(self._group, self.steps.threads, self.timeout, str(self.device))
        if self.shape.rows_per == "auto" and self.shape.ranks > 1:
            self.shape = rank_rows.choose(self.shape, shared.spans_machines)
        return shared

    def _program(self, shape: graphs.LayerShape, needed: tuple[bool, ...], weights: list, accumulate: bool) -> tuple:
        """The program of `shape` for the needed gradients: its key in _layers, and its path if its layer does not exist yet."""
        precise = accumulate or any(
            asked and weight.dtype == torch.float32 for asked, weight in zip(needed[2:], weights)
        )
        key = (os.getpid(), shape, needed, precise, accumulate, self.device)
        if key in self._layers:
            return key, None
        if any(needed[2:]):
            keep_freed_memory()
        return key, self._compile(shape, needed, "F32" if precise else "BF16", accumulate)

    def _layer(self, shared: ranks.Shared, *program):
        """The layer of the library for _program(*program). Collective if it does not exist yet."""
        with shared.refusing():
            key, path = self._program(*program)
        if path is not None:
            names = self._weight_names()
            amaxes = [f"{name}_amax" for name in names if name not in graphs.BIASES] if key[1].encodings.facts.has_scales else []
            packs = self.steps.pack_frozen and key[1].encodings.facts.amax != "returned"  # a first step has no second
            self._layers[key] = shared.layer(path, names + amaxes, packs, described_step(self, names, *program))
        return self._layers[key].op

    def _compile(self, shape: graphs.LayerShape, needed: tuple[bool, ...], grads: str, accumulate: bool) -> str:
        names = self._weight_names()
        trainable = tuple(n for n, asked in zip(("x", "expert_weights", *names), needed) if asked)
        graph = graphs.forward_graph(shape)
        if self.lora is not None:
            from .. import lora

            graph = lora.adapted_graph(graph, self.lora)
        return cache.compile_graph(
            graph,
            trainable=trainable,
            grads=grads,
            accumulate=accumulate,
            keep=self.steps.keep,
            target="cpu" if self.device.type == "cpu" else "h200",
            options=shape.encodings.options(bool(trainable)) + self._delaying(needed[2:]),
        )

    def __prepare_scriptable__(self):
        recording.refuse_script("sluice_torch.MoE")

    def _experts_here(self) -> list[int]:
        """First expert or place, the end of the range, and the number of all; where ranks share experts also shard and
        tp."""
        places = self.shape.places_of(self._group.rank)
        own = [places.start, places.stop, self.shape.places]
        return own + [self.shard, self.shape.tp] if self.shape.tp > 1 else own

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: tuple = (), metadata: dict | None = None) -> dict:
        """A description of what this rank has of each tensor of all experts, [experts, ...] (sharded_tensors.py): with tp a shard of
        gate and up has two ranges. `sharded_offsets` are as in te. RuntimeError: a layer with `spare`, whose state is by place:
        take state.full(). ValueError: for Megatron, experts that ranks do not share evenly."""
        del metadata
        if self.places is not None:
            raise RuntimeError("the experts of a layer with places (spare) may be anywhere: sluice_torch.state.full() gives them in order")
        return sharding.describe_layer(self, prefix, sharded_offsets)

    def _save_to_state_dict(self, destination, prefix: str, keep_vars: bool):
        """Records the range of a rank's experts, because the parts have the same names and often the same sizes."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._group.size > 1:
            destination[prefix + sharding.EXPERT_RANGE] = torch.tensor(self._experts_here())
        if (histories := self._scales.state()) is not None:
            destination[prefix + scaling.EXTRA_STATE] = histories

    def _load_from_state_dict(self, state_dict, prefix: str, local_metadata, strict, missing, unexpected, errors):
        key = prefix + sharding.EXPERT_RANGE
        if key in state_dict:
            given, here = state_dict[key].tolist(), self._experts_here()
            if given != here:
                errors.append(
                    f"{prefix.rstrip('.') or 'the state'} has experts {sharding.describe_range(given)}, but this layer owns "
                    f"{sharding.describe_range(here)}: load what this rank saved, or call sluice_torch.state.reshard"
                )
                return
            state_dict = {name: value for name, value in state_dict.items() if name != key}
        key = prefix + scaling.EXTRA_STATE
        if key in state_dict or prefix + "gate_up_weight" in state_dict:  # a state without histories has begun none
            try:
                own = self._encodings.own
                experts = self.shape.experts if self.places is not None else len(self.local_experts)
                self._scales.load(state_dict.get(key), own and own.delayed, experts)
            except ValueError as error:
                errors.append(f"{key}: {error}")
                return
            state_dict = {name: value for name, value in state_dict.items() if name != key}
        given = state_dict.get(prefix + PLACEMENT)
        if self.places is not None and given is not None:
            try:
                self.set_places(placement.Places(self.shape, given.tolist()))
            except ValueError as error:
                errors.append(f"{prefix}{PLACEMENT}: {error}")
                return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)

    def __getstate__(self):
        state = {**self.__dict__, "_layers": {}, "_delayed": None}  # the copy makes its own again
        state.pop("_wrappers", None)  # no wrapper contains the copy
        return state

    def __setstate__(self, state: dict):
        if "steps" not in state:  # files of torch.save() from versions before have its fields as attributes
            moved = {name: state.pop(name) for name in ("threads", "keep", "pack_frozen")}
            state["steps"] = Steps(max_tokens=state["shape"].max_tokens, **moved)
        super().__setstate__(state)
        self._watch()

    def extra_repr(self) -> str:
        shape = self.shape
        text = f"hidden={shape.hidden}, intermediate={shape.intermediate}, num_experts={shape.experts}"
        text += f", top_k={shape.top_k}, activation={activations.spelled(shape.activation, shape.limit)!r}" + ", bias=True" * shape.bias
        if shape.ranks > 1:
            text += f", rank {self._group.rank} of {shape.ranks}"
        for name, usual in (("rows_per", "expert"), ("spare", None)):
            if getattr(shape, name) != usual:
                text += f", {name}={getattr(shape, name)!r}"
        text += str(self._encodings)
        if shape.tp > 1:
            text += f", tp={shape.tp}, tokens={shape.tokens!r}"
        return text if self.lora is None else f"{text}, lora={self.lora}"

"""Replaces the MoE blocks of a model by layers of Sluice.

Two kinds of blocks are recognised, by the names of a family (families.py) or else by the shapes of their parameters:

* a router and a list of experts of three matrices each (Qwen3-MoE, Mixtral, DeepSeek-V3), or two without a gate
  (Nemotron): the block becomes a ReplacedBlock, which keeps the router, the shared expert and its gate unchanged, under
  their names;
* a router and a module of stacked experts, gate_up [E, 2I, H] and down [E, H, I] or both transposed, with two biases or none, that is
  called with rows, ids and weights: only that module is replaced.

All blocks are recognised, and all layers made, before the first block is changed: an error leaves the model unchanged.
A block is recognised by trying a copy of it against a copy of its replacement (twin.py, trial.py). The copies take
twice the memory of the router and the shared expert, in float32, and that of experts with few intermediate columns.
Weights are moved expert by expert: there is never a second copy of more than one expert, or of one block if stacked
experts are transposed or shared by ranks. Those of a model on the meta device stay there until load_model() sets them.
"""

import dataclasses
import warnings

import torch

from ..base.writes import free, write
from ..graphs import BIASES, WEIGHTS
from ..layers.activations import spelled
from ..layers.sharding import set_expert
from . import families
from .experts import recognise_list, recognise_stack
from .lookalikes import CONTAINERS, find_lookalikes
from .replaced import ReplacedBlock, ReplacedExperts
from .routing import check_attributes, find_limit, find_router, recognise_routing
from .structure import Experts, Unsupported, find_experts
from .trial import Pair, Reference, call, inputs, try_experts, try_replacement
from .twin import DRAWS, Twin, has_hooks, make_twin, ordinary_modes, structure_of, tensors_of


class Replaced(list):
    """The names of the replaced blocks. `families` has the row of families.py that each was recognised by, None if it was by
    shapes and trials; `skipped` has the other blocks that look like MoE, each with the reason."""

    def __init__(self, found: list["_Found"], skipped: dict[str, str]):
        super().__init__(each.name for each in found)
        self.families = {each.name: each.family for each in found}
        self.skipped = skipped


class _Found:
    """A block that can be replaced."""

    def __init__(self, name: str, block: torch.nn.Module, tried: dict):
        """`tried`: the results for other blocks, by structure."""
        self.name = name
        self.block = block
        self.experts_name, module, count = find_experts(block)
        self.router_name, _, hidden = find_router(block, self.experts_name, count)
        self.in_list = isinstance(module, torch.nn.ModuleList)
        _check_hooks([block] * self.in_list + list(module.modules()))
        if self.in_list:
            check_attributes(block)
            _check_state(block, [name for name, part in block.named_children() if any(True for _ in part.parameters())])
            if not name:
                raise Unsupported("is the model itself, which has no place for another: put it into another module")
        structure = structure_of(block)
        if structure not in tried:
            tried[structure] = self._try_all(module, hidden)
        if isinstance(tried[structure], Unsupported):
            raise tried[structure]
        vars(self).update(tried[structure])
        self.experts = dataclasses.replace(self.experts, module=module)
        self.trains = _trains(self.experts)

    def _try_all(self, module: torch.nn.Module, hidden: int) -> dict | Unsupported:
        """The result for this block, which also holds for other blocks of its structure."""
        limit, rows = find_limit(self.block, module), families.find_rows(self.block, self.experts_name, self.router_name)
        names = ("family", "experts", "layout", "top_k", "routing" if self.in_list else "scattered")
        self.refuted = None  # what try_replacement() has refused last, because of `reason`
        for self.family in (*rows, None):
            try:
                if self.in_list:
                    self.experts = recognise_list(module, hidden, limit, self.family)
                else:
                    self.experts, self.scattered = recognise_stack(module, hidden, limit, self.family)
                self.layout = self.experts.layout(self.experts_name)
                self._recognise(small=True)
                return {name: getattr(self, name) for name in names}
            except Unsupported as error:
                self.reason = Unsupported(str(error))  # without the copies that the error's traceback holds
        return self.reason

    def _recognise(self, small: bool):
        try:
            if self.in_list:
                self._recognise_list(small)
            else:
                self.top_k = _called_top_k(self._twin(DRAWS[0], small))
            self._try(small)
        except Unsupported:
            if self.family or not small or self.experts.intermediate == self._twin(DRAWS[0], True).experts.intermediate:
                raise
            self._recognise(small=False)  # the block's code may depend on the intermediate size

    def _twin(self, draw, small: bool, own_dtype: bool = False) -> Twin:
        return make_twin(self.block, self.experts, draw, small, own_dtype)

    def _recognise_list(self, small: bool):
        twin = self._twin(DRAWS[0], small)
        if not self.family:
            try_experts(twin, self.experts.hidden, training=False)
        names = (self.layout, self.router_name, self.family)
        self.routing = recognise_routing(twin, *names, lambda routing: self._replace(self._twin(DRAWS[0], small), routing))
        self.top_k = self.routing.top_k
        _check_state(self.block, [self.experts_name, self.router_name, self.routing.shared, self.routing.shared_gate])

    def _try(self, small: bool):
        def make_pair(draw, own_dtype: bool) -> Pair:
            twin = self._twin(draw, small, own_dtype)
            return Pair(twin, self._replace(self._twin(draw, small, own_dtype)))

        hypothesis = (small, self.experts, self.top_k, self.routing if self.in_list else self.scattered)
        if hypothesis == self.refuted:  # the search has come to what the row said
            raise self.reason
        self.refuted = hypothesis
        types = {tensor.dtype for tensor in tensors_of(self.block).values() if tensor.is_floating_point()}
        try_replacement(make_pair, self.experts.hidden, rounds=types != {torch.float32})

    def _replace(self, twin: Twin, routing=None) -> Twin:
        """Replaces the experts' sum of a twin by what a layer computes."""
        layer = Reference(twin.experts, self.top_k if routing is None else routing.top_k)
        if not self.in_list:
            stand = ReplacedExperts(twin.experts.module, self.layout, self.scattered, layer)
            setattr(twin.module, self.experts_name, stand)
            return twin
        block = ReplacedBlock(twin.module, self.layout, self.router_name, routing or self.routing, layer)
        return Twin(block, twin.experts, twin.leaves)


def replace_moe(model: torch.nn.Module, *, strict: bool = True, layer=None, **options) -> Replaced:
    """Replaces the MoE blocks of a model in place and returns their names.

    `options` are passed to `layer`, by default sluice_torch.MoE: `parallel`, `encode`, `lora` and `steps`. With `parallel` each rank
    keeps its own experts, or its shard of them; every rank must pass the whole model. With `lora` the experts' weights are frozen and
    adapters added; where `encode` makes codes of weights they are frozen, too. Make the optimizer afterwards, because the experts'
    parameters are new. Other parts of the model, including the routers' parameters, stay the same.

    Unsupported (a ValueError) names all blocks that look like MoE but have something that a layer cannot keep; then
    nothing is replaced. With strict=False such blocks stay unchanged, with a warning, and are in `skipped` of the result.
    """
    if layer is None:
        from ..layers.moe import MoE as layer
    with ordinary_modes():
        found, skipped = _find(model, layer)
    if skipped and strict:
        raise Unsupported("\n".join(_describe(model, name, reason) for name, reason in skipped.items()))
    for name, reason in skipped.items():
        warnings.warn(_describe(model, name, reason) + ": it is left unchanged", stacklevel=2)
    if not found and not skipped:
        warnings.warn("replace_moe found no block that looks like MoE: the model is as it was", stacklevel=2)
    made = [_make_layer(each, layer, options) for each in found]
    for each, new in zip(found, made):
        _replace(model, each, new, is_frozen=options.get("lora") is not None)
    return Replaced(found, skipped)


def _find(model: torch.nn.Module, layer) -> tuple[list[_Found], dict[str, str]]:
    """The blocks that can be replaced, and the lookalikes with their reasons."""
    kinds = (ReplacedBlock, ReplacedExperts) + ((layer,) if isinstance(layer, type) else ())
    found, skipped, inside, tried = [], {}, [], {}
    for name, block in list(model.named_modules()):
        if any(name.startswith(outer) for outer in inside):
            continue
        if isinstance(block, kinds):
            inside.append(name + "." if name else "")
        elif _looks_like_moe(block):
            inside.append(name + "." if name else "")
            try:
                each = _Found(name, block, tried)
                _check_places(model, each)
                found.append(each)
            except Unsupported as error:
                skipped[name] = str(error)
    skipped.update(find_lookalikes(model, inside))
    return found, skipped


def _looks_like_moe(block: torch.nn.Module) -> bool:
    if isinstance(block, CONTAINERS):
        return False
    found = find_experts(block)
    return bool(found and find_router(block, found[0], found[2]))


def _describe(model: torch.nn.Module, name: str, reason: str) -> str:
    return f"block '{name}' ({type(model.get_submodule(name)).__name__}) {reason}"


def _make_layer(found: _Found, layer, options: dict) -> torch.nn.Module:
    """Makes a layer for a block. Its weights are not set yet, and take no memory until they are written."""
    experts = found.experts
    if experts.biases:
        options = dict(options, bias=True)
    dtype = experts.parameters()[0].dtype
    return layer(
        experts.hidden,
        experts.intermediate,
        experts.count,
        found.top_k,
        activation=spelled(experts.activation, experts.limit),
        dtype=dtype,
        initialise=False,
        **options,
    )


def _replace(model: torch.nn.Module, found: _Found, made: torch.nn.Module, is_frozen: bool):
    _move(found.experts, made, found.trains, is_frozen)
    if not found.in_list:
        stand = ReplacedExperts(found.experts.module, found.layout, found.scattered, made)
        setattr(found.block, found.experts_name, stand)
        return
    replaced = ReplacedBlock(found.block, found.layout, found.router_name, found.routing, made)
    for parent in list(model.modules()):  # a block may have several parents
        for name, child in list(parent._modules.items()):
            if child is found.block:
                setattr(parent, name, replaced)


@torch.no_grad()
def _move(experts: Experts, layer: torch.nn.Module, trains: list[bool], is_frozen: bool):
    """Moves the experts' weights to a layer, and empties the old parameters. If they are on meta, so are the layer's."""
    if experts.parameters()[0].is_meta:
        for name, parameter in list(layer.named_parameters(recurse=False)):
            if name.startswith((*WEIGHTS, *BIASES)):
                setattr(layer, name, torch.nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False))
    else:
        _move_numbers(experts, layer)
    for name, trained in zip((*WEIGHTS, *BIASES), trains):
        has_codes = not getattr(layer, name.replace("bias", "weight")).is_floating_point()
        getattr(layer, name).requires_grad_(trained and not is_frozen and not has_codes)


def _move_numbers(experts: Experts, layer: torch.nn.Module):
    local, part = getattr(layer, "local_experts", list(range(experts.count))), layer.gate_up_weight.shape[1] // experts.inputs
    columns = slice(getattr(layer, "shard", 0) * part, (getattr(layer, "shard", 0) + 1) * part)
    own = dict(experts.module.named_parameters()) if experts.stacked else {}
    whole = local == [*range(experts.count)] and part == experts.intermediate
    plain = layer.gate_up_weight.is_floating_point() and layer.down_weight.is_floating_point()
    if experts.stacked and not experts.transposed and not experts.in_turn and whole and plain:
        for name, original in zip((*WEIGHTS, *BIASES), (experts.gate, experts.down, *experts.biases)):
            setattr(layer, name, torch.nn.Parameter(own[original].detach()))
    else:
        for expert in range(experts.count):
            for row in [row for row, own in enumerate(local) if own == expert]:
                *before, down = experts.matrices(expert)
                if plain:
                    before, down = [matrix[columns] for matrix in before], down[:, columns]
                set_expert(layer, row, *before, down, is_shard=plain)
                if experts.biases:
                    *before, after = experts.biases_of(expert)
                    write(layer.gate_up_bias[row], torch.cat([bias[columns] for bias in before]))
                    write(layer.down_bias[row], after)
            if not experts.stacked:
                _empty(experts.module[expert].parameters())
        _empty(own.values())


def _empty(parameters):
    for parameter in parameters:
        free(parameter)


def _trains(experts: Experts) -> list[bool]:
    """Whether gate and up, and down, are trained, and biases, if there are some; must be the same in all experts."""
    if experts.stacked:
        own = dict(experts.module.named_parameters())
        return [own[name].requires_grad for name in (experts.gate, experts.down, *experts.biases)]
    flags = [{}, {}]
    for member in experts.module:
        for name, parameter in member.named_parameters():
            flags[name == experts.down].setdefault(parameter.requires_grad, name)
    for kinds in flags:
        if len(kinds) > 1:
            raise Unsupported(f"trains some of its experts' {' and '.join(kinds.values())} only, expected all or none")
    return [next(iter(each)) for each in flags]


def _called_top_k(twin: Twin) -> int:
    """The number of experts per token in the ids that a block passes to its stacked experts."""
    seen, forward = [], twin.experts.module.forward

    def look(*arguments, **named):
        tensors = [part for part in (*arguments, *named.values()) if isinstance(part, torch.Tensor)]
        seen.extend(part.shape[-1] for part in tensors if not part.is_floating_point())
        return forward(*arguments, **named)

    twin.experts.module.forward = look
    _, x = next(inputs(twin.experts.hidden, DRAWS[0]))
    with torch.no_grad():
        call(twin, x, 1)
    if len(seen) != 1:
        raise Unsupported(f"gives its experts ids {len(seen)} times, expected once")
    return seen[0]


def _check_hooks(modules: list[torch.nn.Module]):
    for module in modules:
        if has_hooks(module):
            raise Unsupported(
                f"has hooks ({type(module).__name__}), parametrizations or its own forward, which would be lost"
            )


def _check_state(block: torch.nn.Module, used: list[str]):
    """Unsupported: a block has state that is in none of the parts that its replacement uses."""
    for name, tensor in tensors_of(block).items():
        if name.split(".")[0].split("[")[0] not in used:
            raise Unsupported(f"has {name} {list(tensor.shape)}, which its replacement would not use")


def _check_places(model: torch.nn.Module, found: _Found):
    """Unsupported: experts or their parameters are also elsewhere in the model, where moving would empty them."""
    own = list(found.experts.module.modules())
    parameters = {id(parameter) for parameter in found.experts.parameters()}
    parts, seen = {id(part) for part in own if any(True for _ in part.parameters())}, set()
    for path, module in model.named_modules():
        for name, child in module._modules.items():
            allowed = module is found.block or id(module) in parts
            if id(child) in parts and (not allowed or id(child) in seen):
                raise Unsupported(f"shares experts with another place of the model ({path}.{name})")
            seen.update([id(child)] if id(child) in parts else [])
        for name, parameter in module._parameters.items():
            if id(parameter) in parameters and (id(module) not in parts or id(parameter) in seen):
                raise Unsupported(f"shares weights of experts with another place of the model ({path}.{name})")
            seen.update([id(parameter)] if id(parameter) in parameters else [])

"""Replacing the MoE blocks of a model by layers of Sluice.

Two kinds of blocks are found, by the shapes of their parameters:

* a router and a list of experts of three matrices each (Qwen3-MoE, Mixtral, DeepSeek-V3): the block becomes a
  ReplacedBlock, which keeps router, shared expert and its gate as they are, under their names;
* a router and a module of stacked experts, gate_up [E, 2I, H] and down [E, H, I] or both transposed, that is called
  with rows, ids and weights: only that module is replaced.

All blocks are recognised before the first is changed, each by comparing what it computes, in evaluation mode, on a
few random rows: an error leaves the model as it was. Weights are moved, expert by expert: at no time is there a
second copy of more than one expert, or of one block where stacked experts are transposed or shared by ranks.
"""

import warnings

import torch

from .routing import Routing, find_limit, find_router, recognise_routing
from .structure import Experts, Layout, Unsupported, at_rest, find_experts, recognise_list, recognise_stack


class ReplacedBlock(torch.nn.Module):
    """A block whose list of experts is a layer of Sluice; all else is the block's own."""

    def __init__(self, block: torch.nn.Module, layout: Layout, router: str, routing: Routing, layer: torch.nn.Module):
        super().__init__()
        self.layout = layout
        self.routing = routing
        experts = layout.experts
        self._names = (experts, router)
        for name, child in block.named_children():
            self.add_module(name, layer if name == experts else child)
        self.train(block.training)

    def forward(self, hidden_states: torch.Tensor):
        """The experts' sum for hidden_states [..., H]; with the router's logits [T, E] where the block gave them."""
        experts, router = (getattr(self, name) for name in self._names)
        ids, weights, logits = self.routing.route(router, hidden_states)
        y = experts(hidden_states.reshape(-1, hidden_states.shape[-1]), ids, weights).view(hidden_states.shape)
        y = self.routing.around(lambda name: getattr(self, name), hidden_states, y)
        return (y, logits) if self.routing.returns_logits else y


class ReplacedExperts(torch.nn.Module):
    """A layer of Sluice that is called as the stacked experts were: with rows, ids and weights in either order."""

    def __init__(self, layer: torch.nn.Module, layout: Layout, scattered: bool):
        super().__init__()
        self.layer = layer
        self.layout = layout
        self._scattered = scattered

    def forward(self, hidden_states: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        ids, weights = (second, first) if first.is_floating_point() else (first, second)
        ids = ids.reshape(-1, ids.shape[-1])
        weights = weights.reshape(-1, weights.shape[-1])
        weights = weights.gather(1, ids) if self._scattered else weights
        rows = hidden_states.reshape(-1, hidden_states.shape[-1])
        return self.layer(rows, ids, weights.float()).view(hidden_states.shape)


class _Found:
    """A block that can be replaced."""

    def __init__(self, name: str, block: torch.nn.Module):
        self.name = name
        self.block = block
        self.experts_name, module, count = find_experts(block)
        self.router_name, _, hidden = find_router(block, self.experts_name, count)
        _check_hooks(block, module)
        limit = find_limit(block, module)
        with at_rest(block):
            if isinstance(module, torch.nn.ModuleList):
                self.experts = recognise_list(module, hidden, limit)
                self.routing = recognise_routing(block, self.experts_name, self.router_name, self.experts)
                self.top_k = self.routing.top_k
            else:
                self.experts, self.scattered = recognise_stack(module, hidden, limit)
                self.top_k = _called_top_k(block, module, hidden, self.experts)
        self.trains = _trains(self.experts)


def replace_moe(
    model: torch.nn.Module, *, ep_group=None, lora=None, strict: bool = True, layer=None, **options
) -> list[str]:
    """Replaces the MoE blocks of a model, in place, and gives their names.

    With `ep_group` each rank keeps its own experts of a model that all ranks hold whole. With `lora` the experts'
    weights are frozen and adapters added. `options` go to `layer`, by default sluice_torch.MoE. Make the optimizer afterwards:
    the experts' parameters are new ones. Other parts of the model, the routers' parameters too, stay what they are.

    Unsupported (a ValueError) names a block that looks like MoE but has something that a layer cannot keep: nothing
    is replaced then. With strict=False such blocks stay as they are, with a warning.
    """
    if layer is None:
        from .moe import MoE as layer
    found, inside = [], []
    for name, block in list(model.named_modules()):
        if any(name.startswith(outer) for outer in inside) or not _looks_like_moe(block):
            continue
        inside.append(name + "." if name else "")
        try:
            found.append(_Found(name, block))
        except Unsupported as error:
            message = f"block '{name}' ({type(block).__name__}) {error}"
            if strict:
                raise Unsupported(message) from error
            warnings.warn(message + ": it is left as it is", stacklevel=2)
    for each in found:
        _replace(model, each, layer, dict(options, ep_group=ep_group, lora=lora))
    return [each.name for each in found]


def _looks_like_moe(block: torch.nn.Module) -> bool:
    found = find_experts(block)
    return bool(found and find_router(block, found[0], found[2]))


def _replace(model: torch.nn.Module, found: _Found, layer, options: dict):
    experts = found.experts
    if not found.name and not hasattr(found, "scattered"):
        raise Unsupported("the model itself is a MoE block: put it into another module")
    if experts.activation == "swiglu_clamp":
        options["limit"] = experts.limit
    dtype = experts.parameters()[0].dtype
    made = layer(
        experts.hidden,
        experts.intermediate,
        experts.count,
        found.top_k,
        activation=experts.activation,
        dtype=dtype,
        initialise=False,
        **options,
    )
    _move(experts, made, found.trains, frozen=options["lora"] is not None, group=options["ep_group"])
    if hasattr(found, "scattered"):
        made = ReplacedExperts(made, experts.layout(found.experts_name), found.scattered)
        setattr(found.block, found.experts_name, made.train(found.block.training))
        return
    replaced = ReplacedBlock(
        found.block, experts.layout(found.experts_name), found.router_name, found.routing, made
    )
    for parent in list(model.modules()):  # a block may have several places
        for name, child in list(parent.named_children()):
            if child is found.block:
                setattr(parent, name, replaced)


@torch.no_grad()
def _move(experts: Experts, layer: torch.nn.Module, trains: tuple[bool, bool], frozen: bool, group):
    """Gives the experts' weights to a layer, and leaves the old parameters empty."""
    first, count = _own_experts(experts.count, group)
    dtype = experts.parameters()[0].dtype
    own = dict(experts.module.named_parameters()) if experts.stacked else {}
    if experts.stacked and not experts.transposed and count == experts.count:
        gate_up, down = own[experts.gate].detach(), own[experts.down].detach()
    else:
        layer.gate_up_weight = layer.down_weight = None  # its memory goes before the next is taken
        gate_up = torch.empty(count, 2 * experts.intermediate, experts.hidden, dtype=dtype)
        down = torch.empty(count, experts.hidden, experts.intermediate, dtype=dtype)
        for expert in range(experts.count):
            if first <= expert < first + count:
                gate, up, out = experts.matrices(expert)
                gate_up[expert - first, : experts.intermediate] = gate
                gate_up[expert - first, experts.intermediate :] = up
                down[expert - first] = out
            if not experts.stacked:
                _empty(experts.module[expert].parameters())
        _empty(own.values())
    layer.gate_up_weight = torch.nn.Parameter(gate_up, requires_grad=trains[0] and not frozen)
    layer.down_weight = torch.nn.Parameter(down, requires_grad=trains[1] and not frozen)


def _empty(parameters):
    for parameter in parameters:
        parameter.data = torch.empty(0, dtype=parameter.dtype)
        parameter.grad = None


def _own_experts(count: int, group) -> tuple[int, int]:
    """First and number of this rank's experts: the first ranks own one more where ranks do not divide them."""
    if group is None:
        return 0, count
    ranks, rank = torch.distributed.get_world_size(group), torch.distributed.get_rank(group)
    return rank * (count // ranks) + min(rank, count % ranks), count // ranks + (rank < count % ranks)


def _trains(experts: Experts) -> tuple[bool, bool]:
    """Whether gate and up, and down, are trained: alike in all experts."""
    if experts.stacked:
        own = dict(experts.module.named_parameters())
        return own[experts.gate].requires_grad, own[experts.down].requires_grad
    flags = [{}, {}]
    for member in experts.module:
        for name, parameter in member.named_parameters():
            flags[name == experts.down].setdefault(parameter.requires_grad, name)
    for kinds in flags:
        if len(kinds) > 1:
            raise Unsupported(f"trains some of its experts' {' and '.join(kinds.values())} only, expected all or none")
    return next(iter(flags[0])), next(iter(flags[1]))


def _called_top_k(block: torch.nn.Module, module: torch.nn.Module, hidden: int, experts: Experts) -> int:
    """How many experts a token takes in the ids that a block gives its stacked experts."""
    seen = []

    def look(_, arguments):
        tensors = [part for part in arguments if isinstance(part, torch.Tensor)]
        seen.extend(part.shape[-1] for part in tensors if not part.is_floating_point())

    handle = module.register_forward_pre_hook(look)
    try:
        block(torch.randn(1, 4, hidden).to(experts.parameters()[0].dtype))
    except Exception as error:
        raise Unsupported(f"cannot be called with an input of shape [1, 4, {hidden}]: {error}") from error
    finally:
        handle.remove()
    if len(seen) != 1:
        raise Unsupported(f"gives its experts ids {len(seen)} times, expected once, and not by keyword")
    return seen[0]


def _check_hooks(block: torch.nn.Module, experts: torch.nn.Module):
    for module in (block, *experts.modules()):
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            raise Unsupported(f"has hooks ({type(module).__name__}), which would be lost")

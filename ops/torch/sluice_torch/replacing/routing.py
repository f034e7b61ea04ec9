"""Finds out how a block chooses experts and what it adds to them, by computing the same result."""

import dataclasses
import itertools

import torch

from .families import Family
from .structure import Layout, Unsupported, is_close
from .surroundings import surroundings_kept
from .trial import call, further_arguments, inputs
from .twin import DRAWS, Twin, random_state, tensors_of

_TOP_K = ("top_k", "num_experts_per_tok", "num_selected_experts", "topk", "k")
_FACTOR = ("routed_scaling_factor",)
_SCORES = ("softmax", "sigmoid")
_TOLERANCE = 3e-4


@dataclasses.dataclass(frozen=True)
class Routing:
    """Turns a router's result into ids and weights, and adds what surrounds the experts."""

    scores: str  # "given": the router returns ids and weights; else the function that turns its logits into scores
    top_k: int
    normalise: bool  # the weights of a token add up to 1
    factor: float  # multiplies the experts' sum
    flat: bool  # the router takes [T, H] instead of the block's input
    shared: str  # the child whose result is added for every token, or empty
    shared_gate: str  # its gate, or empty
    returns_logits: bool  # the block returns the sum and the router's logits
    flat_logits: bool  # logits are [T, E], not in the shape of the block's input

    def route(self, router: torch.nn.Module, x: torch.Tensor):
        """ids [T, K], weights [T, K] in float32, and the router's logits or None, for x [..., H]."""
        result = router(x.reshape(-1, x.shape[-1]) if self.flat else x)
        if self.scores == "given":
            ids, weights = split_result(result)
            return ids, weights.float(), None
        logits = result.reshape(-1, result.shape[-1])
        scores = torch.softmax(logits, -1, dtype=torch.float) if self.scores == "softmax" else logits.float().sigmoid()
        weights, ids = torch.topk(scores, self.top_k, dim=-1)
        if self.normalise:
            weights = weights / weights.sum(-1, keepdim=True)
        return ids, weights, logits if self.flat_logits else logits.view(*x.shape[:-1], -1)

    def beside(self, children, x: torch.Tensor) -> torch.Tensor | None:
        """What is added for every token of x; `children` has the block's parts by name."""
        if not self.shared:
            return None
        added = children(self.shared)(x)
        return torch.sigmoid(children(self.shared_gate)(x)) * added if self.shared_gate else added

    def around(self, y: torch.Tensor, beside: torch.Tensor | None) -> torch.Tensor:
        """The block's result, from the sum y of its experts and what is beside it."""
        y = y * self.factor if self.factor != 1 else y
        return y if beside is None else y + beside


def split_result(result) -> tuple[torch.Tensor, torch.Tensor]:
    """Finds ids and weights, both [T, K], in the result of a router."""
    parts = [part for part in result if isinstance(part, torch.Tensor)]
    ids = [part for part in parts if not part.is_floating_point() and part.dim() >= 2]
    if len(ids) != 1:
        raise Unsupported(f"router gives {len(ids)} tensors of ids, expected one")
    top_k = ids[0].shape[-1]
    weights = [part for part in parts if part.is_floating_point() and part.numel() == ids[0].numel()]
    losses = [part for part in parts if part.dim() == 0 and part.requires_grad]
    if losses:
        raise Unsupported("router gives a loss of its own, which would be lost")
    if len(weights) != 1 or weights[0].shape[-1] != top_k:
        raise Unsupported(f"router gives {len(weights)} tensors of {top_k} weights per token, expected one")
    return ids[0].reshape(-1, top_k), weights[0].reshape(-1, top_k)


def find_router(block: torch.nn.Module, experts: str, count: int) -> tuple[str, torch.nn.Module, int] | None:
    """Name, module and hidden size of the child that has a matrix with one row per expert."""
    sizes = {size for parameter in block._modules[experts].parameters() for size in parameter.shape}
    for name, child in block.named_children():
        if name != experts:
            for parameter in child.parameters():
                if parameter.dim() == 2 and parameter.shape[0] == count and parameter.shape[1] in sizes:
                    return name, child, parameter.shape[1]
    return None


def recognise_routing(twin: Twin, layout: Layout, router_name: str, family: Family | None, replace) -> Routing:
    """Finds out how a block with a list of experts computes its result; what `family` says is not tried here. `twin` is a twin
    of the block; replace(routing) makes one of its replacement. Unsupported: no known way gives that result."""
    _, x = next(inputs(layout.hidden, DRAWS[0]))
    with torch.no_grad(), random_state(1), surroundings_kept(twin.module):
        seen = []  # dimensions of the router's input

        def look(_, arguments):
            seen.extend(each.dim() for each in arguments[:1] if isinstance(each, torch.Tensor))

        handle = getattr(twin.module, router_name).register_forward_pre_hook(look)
        found = call(twin, x, 1)
        handle.remove()
        if found[0].shape != x.shape or len(found) > 2:
            said = ", ".join(str(list(part.shape)) for part in found)
            raise Unsupported(
                f"gives {said} for an input {list(x.shape)}, expected a tensor of its shape, or this and the router's logits"
            )
        for routing in _candidates(twin.module, layout.experts, router_name, x, found, seen, family):
            if family:
                return routing
            expected = call(replace(routing), x, 1)
            if len(found) == len(expected) and all(map(is_close, found, expected, [_TOLERANCE] * 2)):
                return routing
        if not is_close(found[0], call(twin, x, 2)[0]):
            raise Unsupported("gives another result each time in evaluation mode, which would be left out")
    own = [name for name in tensors_of(twin.module) if not name.startswith(layout.experts + ".")]
    raise Unsupported(
        f"with {', '.join(own)} computes something else than top-k of softmax or sigmoid scores, or of what its router "
        "gives, the experts' sum and a shared expert"
    )


def _candidates(block, experts_name: str, router_name: str, x: torch.Tensor, found: list, seen: list, family: Family | None):
    """The routing of a family, or those to try, in the order that the block's attributes suggest."""
    router = getattr(block, router_name)
    try:
        flat, result = _call_router(router, x, seen)
    except Exception as error:
        raise Unsupported(f"router cannot be called with rows alone: {error}") from error
    pairs = [(family.shared, family.shared_gate)] if family else _shared_parts(block, experts_name, router_name, x)
    normalise = _attribute(block, ("norm_topk_prob",), bool)
    own_factor = _attribute(block, _FACTOR, (float, int)) or _attribute(router, _FACTOR, (float, int))
    factors = [1.0] + ([own_factor] if own_factor not in (None, 1.0) else [])
    if not isinstance(result, torch.Tensor):
        ids, _ = split_result(result)
        kinds = [("given", ids.shape[-1], False)]
    else:
        top_k = _attribute(block, _TOP_K, int) or _attribute(router, _TOP_K, int)
        if not top_k:
            raise Unsupported(f"does not specify the number of experts per token (none of {', '.join(_TOP_K)})")
        order = (True, False) if normalise is not False else (False, True)
        kinds = [(scores, top_k, norm) for scores in _SCORES for norm in order]
    if family:
        kinds, factors = [(family.scores, kinds[0][1], family.normalise and normalise is not False)], [1.0]
    for (scores, top_k, norm), factor, (shared, gate) in itertools.product(kinds, factors, pairs):
        yield Routing(scores, top_k, norm, factor, flat, shared, gate, len(found) > 1, found[-1].dim() == 2)


def _call_router(router: torch.nn.Module, x: torch.Tensor, seen: list[int]):
    """Whether it takes [T, H], and its result. `seen`: the dimensions of what the block passed to it."""
    flat = bool(seen) and seen[0] == 2
    try:
        return flat, router(x.view(-1, x.shape[-1]) if flat else x)
    except Exception:  # any exception means that it does not take three dimensions
        if flat:
            raise
    return True, router(x.view(-1, x.shape[-1]))


def _shared_parts(block, experts_name: str, router_name: str, x: torch.Tensor) -> list[tuple[str, str]]:
    """The shared expert and its gate among the other children, or two empty names."""
    shared, gates = [], []
    for name, child in block.named_children():
        if name in (experts_name, router_name):
            continue
        if isinstance(child, torch.nn.Dropout) and child.p > 0:
            raise Unsupported(f"has dropout {child.p} ({name}), which would be left out")
        if not any(True for _ in child.parameters()):
            continue
        try:
            shape = child(x).shape
        except Exception as error:
            raise Unsupported(f"has a part {name} that cannot be called with its input: {error}") from error
        if shape == x.shape:
            shared.append(name)
        elif shape == (*x.shape[:-1], 1):
            gates.append(name)
        else:
            raise Unsupported(f"has a part {name} that gives shape {list(shape)}")
    if len(shared) > 1 or len(gates) > len(shared):
        raise Unsupported(f"has parts {', '.join(shared + gates)}, expected a shared expert and a gate of it at most")
    return [(shared[0] if shared else "", gates[0] if gates else "")]


def check_attributes(block: torch.nn.Module):
    """Unsupported: attributes of a block whose effect a trial may not show."""
    more = further_arguments(block)
    if more:
        raise Unsupported(f"is called with {', '.join(more)} too, expected its input alone")
    for name, value in vars(block).items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if "jitter" in name and number and value != 0:
            raise Unsupported(f"has noise of its input in training ({name} {value}), which would be left out")
        if "capacity" in name and number and value > 0:
            raise Unsupported(f"has a capacity ({name} {value}), beyond which rows are dropped, which would be left out")


def _attribute(module: torch.nn.Module, names: tuple, kind: type):
    """The first of these attributes that a module, or its config, has as a `kind`."""
    for owner in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(owner, name, None)
            if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
                return value
    return None


def find_limit(block: torch.nn.Module, experts: torch.nn.Module) -> float | None:
    """The limit of a clamped activation, if the block or an expert has one."""
    first = experts[0] if isinstance(experts, torch.nn.ModuleList) else experts
    for owner in (first, experts, block):
        value = _attribute(owner, ("limit", "swiglu_limit", "clamp_limit"), (float, int))
        if value:
            return float(value)
    return None

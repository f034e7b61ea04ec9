"""How a block chooses experts and what it adds to them, found by computing what the block computes."""

import dataclasses
import itertools

import torch

from .structure import PROBE_ROWS, Experts, Unsupported, apply_experts, is_close

_TOP_K = ("top_k", "num_experts_per_tok", "num_selected_experts", "topk", "k")
_SCORES = ("softmax", "sigmoid")
_TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 4e-2}


@dataclasses.dataclass(frozen=True)
class Routing:
    """From a router's result to ids and weights, and what surrounds the experts."""

    scores: str  # "given": the router gives ids and weights; else of its logits
    top_k: int
    normalise: bool  # the weights of a token add up to 1
    factor: float  # of the experts' sum
    flat: bool  # the router takes [T, H], not the block's input
    shared: str  # the child that is added for every token, or empty
    shared_gate: str  # its gate, or empty
    returns_logits: bool  # the block returns the sum and the router's logits

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
        return ids, weights, logits

    def around(self, children, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The block's sum, from that of its experts y; `children` gives its parts by name."""
        y = y * self.factor if self.factor != 1 else y
        if not self.shared:
            return y
        added = children(self.shared)(x)
        return y + (torch.sigmoid(children(self.shared_gate)(x)) * added if self.shared_gate else added)


def split_result(result) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and weights, both [T, K], among what a router gives."""
    parts = [part for part in result if isinstance(part, torch.Tensor)]
    ids = [part for part in parts if not part.is_floating_point() and part.dim() >= 2]
    if len(ids) != 1:
        raise Unsupported(f"router gives {len(ids)} tensors of ids, expected one")
    top_k = ids[0].shape[-1]
    weights = [part for part in parts if part.is_floating_point() and part.numel() == ids[0].numel()]
    losses = [part for part in parts if part.dim() == 0 and part.requires_grad]
    if losses:
        raise Unsupported("router gives a loss of its own, which nothing would take")
    if len(weights) != 1 or weights[0].shape[-1] != top_k:
        raise Unsupported(f"router gives {len(weights)} tensors of {top_k} weights a token, expected one")
    return ids[0].reshape(-1, top_k), weights[0].reshape(-1, top_k)


def find_router(block: torch.nn.Module, experts: str, count: int) -> tuple[str, torch.nn.Module, int] | None:
    """Name, module and hidden size of the child with a matrix of a row for each expert."""
    for name, child in block.named_children():
        if name != experts:
            for parameter in child.parameters():
                if parameter.dim() == 2 and parameter.shape[0] == count:
                    return name, child, parameter.shape[1]
    return None


def recognise_routing(block: torch.nn.Module, experts_name: str, router_name: str, experts: Experts) -> Routing:
    """How a block with a list of experts comes to its result. The block is at rest (at_rest()). Unsupported: no
    known way gives that result."""
    _check_attributes(block)
    dtype = experts.parameters()[0].dtype
    x = torch.randn(1, PROBE_ROWS, experts.hidden).to(dtype)
    try:
        result = block(x)
    except Exception as error:
        raise Unsupported(f"cannot be called with an input of shape {list(x.shape)}: {error}") from error
    expected, returned_logits = _split_block_result(result)
    if expected.shape != x.shape:
        raise Unsupported(f"gives shape {list(expected.shape)} for an input of shape {list(x.shape)}")
    router = getattr(block, router_name)
    for routing in _candidates(block, experts_name, router_name, x, returned_logits is not None):
        ids, weights, logits = routing.route(router, x)
        if routing.returns_logits and (logits is None or not is_close(logits, returned_logits.view_as(logits), 1e-2)):
            continue
        y = apply_experts(experts, x.view(-1, experts.hidden), ids, weights).view(x.shape)
        if is_close(routing.around(lambda name: getattr(block, name), x, y), expected, _TOLERANCE[dtype]):
            return routing
    raise Unsupported(
        "computes something else than top-k of softmax or sigmoid scores, or of what its router gives, the experts' "
        "sum and a shared expert"
    )


def _split_block_result(result) -> tuple[torch.Tensor, torch.Tensor | None]:
    if isinstance(result, torch.Tensor):
        return result, None
    if isinstance(result, tuple) and len(result) == 2 and all(isinstance(part, torch.Tensor) for part in result):
        return result
    raise Unsupported(f"gives a {type(result).__name__}, expected a tensor, or a tensor and the router's logits")


def _candidates(block, experts_name: str, router_name: str, x: torch.Tensor, returns_logits: bool):
    """What to try, in the order of what the block says of itself: where its weights are zero, the first is taken."""
    router = getattr(block, router_name)
    flat, result = _call_router(router, x)
    pairs = _shared_parts(block, experts_name, router_name, x)
    own_factor = _attribute(block, ("routed_scaling_factor",), float)
    factors = [1.0] + ([own_factor] if own_factor not in (None, 1.0) else [])
    if not isinstance(result, torch.Tensor):
        ids, _ = split_result(result)
        kinds = [("given", ids.shape[-1], False)]
    else:
        top_k = _attribute(block, _TOP_K, int) or _attribute(router, _TOP_K, int)
        if not top_k:
            raise Unsupported(f"does not say how many experts a token takes (none of {', '.join(_TOP_K)})")
        normalise = _attribute(block, ("norm_topk_prob",), bool)
        order = (True, False) if normalise is not False else (False, True)
        kinds = [(scores, top_k, norm) for scores in _SCORES for norm in order]
    for (scores, top_k, norm), factor, (shared, gate) in itertools.product(kinds, factors, pairs):
        yield Routing(scores, top_k, norm, factor, flat, shared, gate, returns_logits)


def _call_router(router: torch.nn.Module, x: torch.Tensor):
    """Whether it takes [T, H], and what it gives."""
    try:
        return False, router(x)
    except Exception:  # whatever it raises: it does not take three dimensions
        pass
    try:
        return True, router(x.view(-1, x.shape[-1]))
    except Exception as error:
        raise Unsupported(f"router cannot be called with rows alone: {error}") from error


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


def _check_attributes(block: torch.nn.Module):
    for name, value in vars(block).items():
        if "jitter" in name and isinstance(value, float) and value != 0:
            raise Unsupported(f"has noise of its input in training ({name} {value}), which would be left out")


def _attribute(module: torch.nn.Module, names: tuple, kind: type):
    """The first of these attributes of a module, or of its config, that is a `kind`."""
    for owner in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(owner, name, None)
            if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
                return value
    return None


def find_limit(block: torch.nn.Module, experts: torch.nn.Module) -> float | None:
    """The limit of a clamped activation, where the block or an expert says one."""
    first = experts[0] if isinstance(experts, torch.nn.ModuleList) else experts
    for owner in (first, experts, block):
        value = _attribute(owner, ("limit", "swiglu_limit", "clamp_limit"), (float, int))
        if value:
            return float(value)
    return None

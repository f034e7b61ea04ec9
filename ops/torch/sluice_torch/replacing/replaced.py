"""The modules that replace MoE blocks, or their stacked experts, in a model."""

import contextlib
import functools

import torch

from ..layers.moe import MoE
from .routing import Routing
from .structure import Layout, Unsupported
from .twin import attributes


class _Stand(torch.nn.Module):
    """Has the attributes of the block that it replaces. They are read-only, because a change would not take effect."""

    def _keep_attributes(self, old: torch.nn.Module):
        own = attributes(old)
        for name in own:
            if hasattr(self, name):
                raise Unsupported(f"has an attribute {name}, which is what its replacement calls something else")
        for name, value in own.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_recognised_by", frozenset(own))

    def __setattr__(self, name: str, value):
        if name in vars(self).get("_recognised_by", ()):
            raise AttributeError(f"{name} is what the replaced block was recognised by: set it before replace_moe()")
        super().__setattr__(name, value)


def _before_step(layer: torch.nn.Module):
    """For code before the layer's step: if ranks share the experts, its exception fails the step at all of them."""
    shared = isinstance(layer, MoE) and layer.shape.ranks > 1
    return layer.refusing() if shared else contextlib.nullcontext()


def _rows_travel(layer: torch.nn.Module) -> bool:
    """Whether a step of the layer waits for rows of other machines, and can be submitted with gradients."""
    if not isinstance(layer, MoE) or layer.shape.ranks == 1 or not layer.spans_machines:
        return False
    return not layer.shape.is_per_rank and not layer.step_encodings.facts.has_scales


class ReplacedBlock(_Stand):
    """A block whose list of experts is a layer of Sluice; everything else belongs to the original block."""

    def __init__(self, block: torch.nn.Module, layout: Layout, router: str, routing: Routing, layer: torch.nn.Module):
        super().__init__()
        self.layout = layout
        self.routing = routing
        self._names = (layout.experts, router)
        for name, child in block._modules.items():
            self.add_module(name, layer if name == layout.experts else child)
        self._keep_attributes(block)
        self.training = block.training
        layer.train(block.training)

    def forward(self, hidden_states: torch.Tensor):
        """The experts' sum for hidden_states [..., H], with the router's logits if the block returned them."""
        experts, router = (getattr(self, name) for name in self._names)
        with _before_step(experts):
            ids, weights, logits = self.routing.route(router, hidden_states)
            rows = hidden_states.reshape(-1, hidden_states.shape[-1])
        run_beside = functools.partial(self.routing.beside, functools.partial(getattr, self), hidden_states)
        if self.routing.shared and _rows_travel(experts):
            step = experts.submit_forward(rows, ids, weights)
            beside, y = run_beside(), step.wait()
        else:
            y, beside = experts(rows, ids, weights), run_beside()
        y = self.routing.around(y.view(hidden_states.shape), beside)
        return (y, logits) if self.routing.returns_logits else y


class ReplacedExperts(_Stand):
    """A layer of Sluice that is called like the stacked experts: with rows, and with ids and weights in either order, by any names."""

    def __init__(self, experts: torch.nn.Module, layout: Layout, scattered: bool, layer: torch.nn.Module):
        super().__init__()
        self.layer = layer
        self.layout = layout
        self._scattered = scattered
        self._keep_attributes(experts)
        self.train(experts.training)

    def forward(self, hidden_states: torch.Tensor, *given: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        with _before_step(self.layer):
            first, second = *given, *named.values()
            ids, weights = (second, first) if first.is_floating_point() else (first, second)
            ids = ids.reshape(-1, ids.shape[-1])
            weights = weights.reshape(-1, weights.shape[-1])
            weights = weights.gather(1, ids) if self._scattered else weights
            rows = hidden_states.reshape(-1, hidden_states.shape[-1])
            weights = weights.float()
        return self.layer(rows, ids, weights).view(hidden_states.shape)

"""Low-rank adapters of a layer: W + alpha / rank B A per expert, with frozen weights W.

An expert has up to six matrices, in the layout of its weights, [out, in]:

    gate_lora_a [E, rank, H]    up_lora_a [E, rank, H]    down_lora_a [E, rank, I]
    gate_lora_b [E, I, rank]    up_lora_b [E, I, rank]    down_lora_b [E, H, rank]

A layer computes gate and up in one product, so their adapters are one pair, too: the two A stacked, and the two B on
the diagonal of a block matrix. adapter_weights() makes both with differentiable operations.
"""

import copy
import dataclasses
import math

import torch

from .base.integers import MAX_SIZE, whole_number
from .base.writes import write
from .layers.activations import inputs_of

TARGETS = ("gate", "up", "down")


@dataclasses.dataclass(frozen=True)
class LoRAConfig:
    """Adapters of rank `rank`, scaled by alpha / rank, at `targets`."""

    rank: int
    alpha: float = 0.0  # 0: equal to the rank, so that the scaling is 1
    targets: tuple[str, ...] = TARGETS

    def __post_init__(self):
        whole_number("rank of adapters", self.rank, 1, MAX_SIZE)
        object.__setattr__(self, "targets", tuple(self.targets))
        if not self.targets or len(set(self.targets)) < len(self.targets) or set(self.targets) - set(TARGETS):
            raise ValueError(f"targets of adapters are {self.targets!r}, expected some of {', '.join(TARGETS)}")
        alpha = float(self.alpha)
        if not math.isfinite(alpha) or alpha < 0:
            raise ValueError(f"alpha of adapters is {self.alpha!r}, expected a positive number, or 0 for the rank")
        object.__setattr__(self, "alpha", alpha or float(self.rank))

    @property
    def scaling(self) -> float:
        return self.alpha / self.rank

    def names(self) -> list[str]:
        """The names of the parameters, in order."""
        return [f"{target}_lora_{side}" for target in TARGETS if target in self.targets for side in "ab"]

    def upward(self) -> list[str]:
        return [target for target in TARGETS[:2] if target in self.targets]


def check_targets(config: LoRAConfig, activation: str):
    """ValueError: an adapter of a gate that experts with this activation do not have."""
    if inputs_of(activation) == 1 and "gate" in config.targets:
        expected = ", ".join(TARGETS[1:])
        raise ValueError(f"targets of adapters are {config.targets!r}, but {activation} has no gate, expected some of {expected}")


def check_dropout(layer):
    """RuntimeError: a forward in training mode, whose dropout of adapters is not implemented."""
    if layer.training and layer.lora_dropout:
        raise RuntimeError(
            f"lora_dropout is {layer.lora_dropout}, which a layer in training mode does not apply: call eval(), or set the layer's "
            f"lora_dropout to 0 to train without"
        )


def make_parameters(
    config: LoRAConfig, experts: int, hidden: int, intermediate: int, dtype: torch.dtype, tp: int = 1
) -> dict:
    """The parameters of a rank's experts, by name: A is random, B is zero, so that the layer's result is unchanged.
    `intermediate` counts the columns of this rank, one of `tp` that share its experts."""
    outs = {"gate": intermediate, "up": intermediate, "down": hidden}
    ins = {"gate": hidden, "up": hidden, "down": intermediate}
    made = {}
    for target in TARGETS:
        if target in config.targets:
            a = torch.empty(experts, config.rank, ins[target], dtype=dtype)
            bound = 1 / math.sqrt(ins[target] * (tp if target == "down" else 1))
            made[f"{target}_lora_a"] = torch.nn.Parameter(a.uniform_(-bound, bound))
            b = torch.zeros(experts, outs[target], config.rank, dtype=dtype)
            made[f"{target}_lora_b"] = torch.nn.Parameter(b)
    return made


def weight_names(config: LoRAConfig) -> list[str]:
    """The inputs of adapted_graph() besides the weights, in the order of adapter_weights()."""
    names = ["gate_up_lora_a", "gate_up_lora_b"] if config.upward() else []
    return names + (["down_lora_a", "down_lora_b"] if "down" in config.targets else [])


def adapter_weights(
    config: LoRAConfig, parameters: dict, dtype: torch.dtype = torch.bfloat16, inputs: int = 2
) -> list[torch.Tensor]:
    """The tensors of weight_names() in `dtype`, contiguous, for a layer with `inputs` matrices before its activation.
    Gradients flow to `parameters`."""
    made = []
    upward = config.upward()
    if upward:
        made.append(torch.cat([parameters[f"{target}_lora_a"].to(dtype) for target in upward], dim=1))
        sides = [parameters[f"{target}_lora_b"].to(dtype) for target in upward]
        made.append(_block_diagonal(config, sides) if inputs == 2 else sides[0])
    if "down" in config.targets:
        made += [parameters["down_lora_a"].to(dtype), parameters["down_lora_b"].to(dtype)]
    return [tensor.contiguous() for tensor in made]


def _block_diagonal(config: LoRAConfig, sides: list[torch.Tensor]) -> torch.Tensor:
    """[E, 2I, columns]: a target's B in its rows and columns, zeros elsewhere."""
    pad = torch.nn.functional.pad
    if len(sides) == 2:
        return torch.cat([pad(sides[0], (0, config.rank)), pad(sides[1], (config.rank, 0))], dim=1)
    zeros = torch.zeros_like(sides[0])
    return torch.cat([sides[0], zeros] if config.upward() == ["gate"] else [zeros, sides[0]], dim=1)


def adapted_graph(graph: dict, config: LoRAConfig) -> dict:
    """The graph of graphs.forward_graph() with adapters added to its products."""
    graph = copy.deepcopy(graph)
    entry = graph["entries"][0]
    _, hidden, intermediate = graph["tensors"]["down_weight"]["shape"]  # this rank's sizes
    if graph["tensors"]["down_weight"]["type"] == "U8":
        intermediate *= 2  # two codes per byte
    _, before, _ = graph["tensors"]["gate_up_weight"]["shape"]
    if config.upward():
        rank = config.rank * len(config.upward())
        _adapt(graph, "up_proj", "gate_up", rank, config.scaling, hidden, before)
    if "down" in config.targets:
        _adapt(graph, "down_proj", "down", config.rank, config.scaling, intermediate, hidden)
    entry["inputs"] += weight_names(config)
    graph["name"] = graph["name"] + "_lora"
    return graph


def _adapt(graph: dict, product: str, name: str, rank: int, scaling: float, ins: int, outs: int):
    """product' = product + scaling (rows A^T) B^T; readers of the product read the sum instead."""
    nodes = graph["entries"][0]["nodes"]
    base = next(node for node in nodes if node["name"] == product)
    result = base["outputs"]["product"]
    base["outputs"] = {"product": f"{name}_base"}
    for tensor, shape in (
        (f"{name}_lora_a", ["E", rank, ins]),
        (f"{name}_lora_b", ["E", outs, rank]),
        (f"{name}_base", ["R", outs]),
        (f"{name}_low", ["R", rank]),
        (f"{name}_lora", ["R", outs]),
    ):
        graph["tensors"][tensor] = {"type": "BF16", "shape": shape}
    if "parallel" in graph["tensors"]["down_weight"]:  # B of gate and up, and A of down, like the weight itself
        side = "b" if name == "gate_up" else "a"
        graph["tensors"][f"{name}_lora_{side}"]["parallel"] = graph["tensors"][f"{name}_weight"]["parallel"]

    def factor(node: str, rows: str, weight: str, to: str) -> dict:
        inputs = {"rows": rows, "weight": weight}
        return {"name": node, "op": "gmm", "transpose": True, "inputs": inputs, "outputs": {"product": to}}

    low = factor(f"{product}_a", base["inputs"]["rows"], f"{name}_lora_a", f"{name}_low")
    high = factor(f"{product}_b", f"{name}_low", f"{name}_lora_b", f"{name}_lora")
    if scaling != 1:
        high["alpha"] = scaling
    summed = {"a": f"{name}_base", "b": f"{name}_lora"}
    total = {"name": f"{product}_sum", "op": "add", "inputs": summed, "outputs": {"sum": result}}
    nodes[nodes.index(base) + 1 : nodes.index(base) + 1] = [low, high, total]


@torch.no_grad()
def merge_adapters(config: LoRAConfig, parameters: dict, gate_up: torch.Tensor, down: torch.Tensor, sign: int = 1):
    """Adds the adapters to the weights [E, 2I, H], or [E, I, H] without a gate, and [E, H, I], in place. sign -1 subtracts them again (up to
    rounding)."""
    columns = down.shape[2]
    places = {"gate": gate_up[:, :columns], "up": gate_up[:, -columns:], "down": down}
    for target in config.targets:
        a, b = (parameters[f"{target}_lora_{side}"].float() for side in "ab")
        for expert in range(a.shape[0]):  # one at a time: no second copy of all weights
            change = (b[expert] @ a[expert]).mul_(sign * config.scaling)
            write(places[target][expert], places[target][expert].float().add_(change))

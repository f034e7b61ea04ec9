"""The activations of experts, in eager PyTorch. A model's own activation is recognised by comparison with them."""

import torch


def _scaled_silu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


# Keys are the names of the graph format. Activations of LIMITED have a limit, activations of UNGATED have no gate.
ACTIVATIONS = {
    "swiglu": lambda gate, up, limit: torch.nn.functional.silu(gate) * up,
    "geglu": lambda gate, up, limit: torch.nn.functional.gelu(gate, approximate="tanh") * up,
    "reglu": lambda gate, up, limit: torch.relu(gate) * up,
    "squared_reglu": lambda gate, up, limit: torch.relu(gate).square() * up,
    "swiglu_clamp": lambda gate, up, limit: torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit),
    "swiglu_oai": lambda gate, up, limit: _scaled_silu(gate.clamp(max=limit)) * (up.clamp(-limit, limit) + 1),
    "silu": lambda x, limit: torch.nn.functional.silu(x),
    "relu2": lambda x, limit: torch.relu(x).square(),
}
LIMITED = ("swiglu_clamp", "swiglu_oai")
UNGATED = ("silu", "relu2")


def inputs_of(activation: str) -> int:
    """The number of matrices before an activation: gate and up, or up alone."""
    return 1 if activation in UNGATED else 2

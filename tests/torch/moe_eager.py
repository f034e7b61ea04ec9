"""The layer in plain PyTorch, in float32, as a loop over experts: tests compare sluice_torch.MoE with it."""

import torch

# Relative error, in the norm, of a layer whose products are of bfloat16.
BOUND = 1.2e-2


def activate(gate, up, kind, limit=None):
    """Without a gate both are the same rows."""
    if kind == "silu":
        return torch.nn.functional.silu(up)
    if kind == "relu2":
        return torch.relu(up) ** 2
    if kind in ("swiglu_clamp", "swiglu_oai"):
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    if kind == "swiglu_oai":
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)
    if kind == "geglu":
        return torch.nn.functional.gelu(gate, approximate="tanh") * up
    if kind == "squared_reglu":
        return torch.relu(gate).square() * up
    return (torch.relu(gate) if kind == "reglu" else torch.nn.functional.silu(gate)) * up


def eager(x, ids, expert_weights, gate_up, down, kind="swiglu", limit=None, biases=None):
    """y [T, H] in float32. `biases`: of both products, [E, columns] each."""
    y = torch.zeros(x.shape)
    for expert in range(gate_up.shape[0]):
        token, k = (ids == expert).nonzero(as_tuple=True)
        before, after = (each[expert].float() for each in biases) if biases else (0, 0)
        product = x[token].float() @ gate_up[expert].float().T + before
        if limit:  # rounded like in the layer, so that both clamp the same elements
            product = product.bfloat16().float()
        parts = product.split(down.shape[2], dim=1)
        rows = activate(parts[0], parts[-1], kind, limit) @ down[expert].float().T + after
        y = y.index_add(0, token, rows * expert_weights[token, k][:, None])
    return y


def route(tokens, experts, top_k, seed, among=None):
    """ids [T, K], distinct within a token and among the first `among` experts, and weights [T, K]."""
    made = torch.Generator().manual_seed(seed)
    among = among or experts
    chosen = [torch.randperm(among, generator=made)[:top_k] for _ in range(tokens)]
    ids = torch.stack(chosen) if tokens else torch.zeros(0, top_k, dtype=torch.long)
    return ids, torch.rand(tokens, top_k, generator=made)


def error(found, expected) -> float:
    """Returns the relative error of the whole tensor, in the norm."""
    return ((found.float() - expected.float()).norm() / expected.float().norm().clamp(min=1e-20)).item()

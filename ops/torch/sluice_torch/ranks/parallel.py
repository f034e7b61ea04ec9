"""Parallel: how ranks share the experts and the tokens of a layer."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Parallel:
    """A value: how ranks share the experts and the tokens of a layer. A layer that is made of it checks it.

    ep_group     a torch.distributed group, whose ranks share all experts: each rank owns num_experts / ranks of them, in order (the
                 first ranks own one more if the experts do not divide evenly). None: this process owns all
    tp           above 1: tp ranks share each expert. Rank r has shard r % tp of the experts of group r // tp, with I / tp instead of
                 I columns (sharding.py)
    tp_group     the ranks that share this rank's experts; `ep_group` then has the ranks with its shard. Either may be absent
    mesh         a DeviceMesh with dimensions "ep", "tp" or both, instead of both groups
    tokens       "own": each rank has other tokens. "same": the ranks that share experts pass the same tokens, ids, weights
                 and gradients of y, and all get the same results; gradients of weights count each token once
    rows_per     "expert": a token is sent once for each of its experts, and each result returns. "rank": it is sent once to each rank that
                 has some of them, and their sum returns. "auto": "rank" if ranks are on several machines, it sends at most 0.8 of
                 the rows, and the layer's other options allow it; the first step finds out
    spare        places for copies of experts. 0: experts can move, but have one place each. None: rank r has the r-th
                 range of experts
    timeout      seconds to wait for other ranks

    With "expert", y is the sum over k in float32, rounded once. With "rank" each rank's part of it, and of the gradient of x, is that; the
    parts are rounded to bfloat16 and then added in float32, in the order of ranks, rounded once more. All other gradients have the
    same bits in both forms, and so have tokens whose experts are all at one rank.

    With `spare`, a number, experts are not bound to ranks: there are num_experts + spare places, dealt like experts, E are
    a rank's places, and MoE.local_experts says which experts are there. sluice_torch.balance() moves experts to other
    places, and gives those with the most rows several (balancing.py). Making such a layer is collective, and so is making a layer
    with adapters where ranks share an expert.
    """

    ep_group: object = None
    tp_group: object = None
    mesh: object = None
    tp: int = 1
    tokens: str = "own"
    rows_per: str = "expert"
    spare: int | None = None
    timeout: float = 30.0

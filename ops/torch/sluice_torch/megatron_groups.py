"""The process group whose ranks share a linear layer, found where Megatron-style models keep it."""

import torch.distributed as dist


def tp_group_of(config, is_expert: bool, tp_group, pg_collection):
    """`tp_group`; else that of `pg_collection` (tp; for experts expt_tp); else that of megatron.core.parallel_state, if it can be
    imported and has one. None: the layer is whole at this rank.

    ValueError: config.tensor_model_parallel_size is above 1, and there is no group. For experts, which are whole at each
    rank: their group has several ranks, or config.expert_tensor_parallel_size is above 1.
    """
    if is_expert:
        _check_expert(config, tp_group, pg_collection)
        return None
    if tp_group is not None:
        return tp_group
    found = getattr(pg_collection, "tp", None)
    if found is None:
        found = _of_megatron("get_tensor_model_parallel_group")
    size = getattr(config, "tensor_model_parallel_size", None) or 1
    if found is None and size > 1:
        raise ValueError(
            f"config.tensor_model_parallel_size is {size}, but there is no group of these ranks: expected tp_group, "
            f"pg_collection.tp, or that of megatron.core.parallel_state"
        )
    return found


def _check_expert(config, tp_group, pg_collection):
    sizes = {"config.expert_tensor_parallel_size": getattr(config, "expert_tensor_parallel_size", None) or 1}
    if tp_group is None:
        group = getattr(pg_collection, "expt_tp", None)
        name = "the size of pg_collection.expt_tp"
        if group is None:
            group, name = _of_megatron("get_expert_tensor_parallel_group"), "the size of Megatron's expert_tensor_parallel_group"
        sizes[name] = 1 if group is None else dist.get_world_size(group)
    for name, size in sizes.items():
        if size > 1:
            raise ValueError(f"{name} is {size}, expected 1: with is_expert each rank has the whole layer")


def _of_megatron(function: str):
    """What a function of megatron.core.parallel_state returns; None where it is missing or has nothing to return."""
    try:
        from megatron.core import parallel_state
    except ImportError:
        return None
    try:
        get = getattr(parallel_state, function, None)
        return None if get is None else get()
    except AssertionError:  # it is not initialized
        return None

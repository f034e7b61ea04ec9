"""What layers find in Megatron: the process group that divides it, and the classes that describe its part."""

# Where the group is that divides a layer: the attribute of config with its size, the attribute of pg_collection, and Megatron's
# function.
_DENSE = ("tensor_model_parallel_size", "tp", "get_tensor_model_parallel_group")
_EXPERT = ("expert_tensor_parallel_size", "expt_tp", "get_expert_tensor_parallel_group")


def tp_group_of(config, is_expert: bool, tp_group, pg_collection):
    """`tp_group`; else the group of `pg_collection` (tp; for experts expt_tp); else the group of megatron.core.parallel_state, if
    it can be imported and has one. None: the layer is whole at this rank.

    ValueError: config.tensor_model_parallel_size, for experts expert_tensor_parallel_size, is above 1, and there is no group.
    """
    if tp_group is not None:
        return tp_group
    size_name, name, function = _EXPERT if is_expert else _DENSE
    found = getattr(pg_collection, name, None)
    if found is None:
        found = _of_megatron(function)
    size = getattr(config, size_name, None) or 1
    if found is None and size > 1:
        raise ValueError(
            f"config.{size_name} is {size}, but there is no group of these ranks: expected tp_group, "
            f"pg_collection.{name}, or that of megatron.core.parallel_state"
        )
    return found


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


def checkpoint_classes():
    """The module with the classes by which Megatron's checkpoints describe parts; None where it cannot be imported."""
    try:
        from megatron.core.dist_checkpointing import mapping
    except ImportError:
        return None
    return mapping


def expert_data_rank() -> int:
    """This rank's number among those with the same experts; 0 where Megatron does not say."""
    return _of_megatron("get_expert_data_parallel_rank") or 0

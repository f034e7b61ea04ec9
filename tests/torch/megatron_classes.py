"""Stand-ins for the classes of megatron.core.dist_checkpointing.mapping, as far as layers call them: Megatron needs a newer PyTorch
than Debian 12 has."""

import contextlib
import sys
import types


class ShardedTensor:
    @classmethod
    def from_rank_offsets(cls, key, data, *rank_offsets, replica_id=0, prepend_axis_num=0):
        made = cls()
        made.key, made.data, made.rank_offsets, made.replica_id, made.prepended = key, data, rank_offsets, replica_id, prepend_axis_num
        # as the original: an axis of a tensor has as many equal fragments as ranks
        shape, offset = [1] * prepend_axis_num + list(data.shape), [0] * (prepend_axis_num + data.dim())
        for axis, number, count in rank_offsets:
            offset[axis] = number * shape[axis]
            shape[axis] *= count
        made.global_shape, made.global_offset = tuple(shape), tuple(offset)
        return made


class ShardedTensorFactory:
    def __init__(self, key, data, build_fn, merge_fn, replica_id=0):
        self.key, self.data, self.build_fn, self.merge_fn, self.replica_id = key, data, build_fn, merge_fn, replica_id

    def build(self):
        return self.build_fn(self.key, self.data, self.replica_id, None)


@contextlib.contextmanager
def installed():
    """Within it megatron.core.dist_checkpointing.mapping can be imported."""
    names = [".".join(("megatron", "core", "dist_checkpointing", "mapping")[:count]) for count in range(1, 5)]
    modules = {name: types.ModuleType(name) for name in names}
    mapping = modules[names[-1]]
    mapping.ShardedTensor, mapping.ShardedTensorFactory = ShardedTensor, ShardedTensorFactory
    modules[names[-2]].mapping = mapping
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]

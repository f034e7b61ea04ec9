"""Attributes of parameters by which Megatron-style code knows how many ranks have the same numbers (docs/RANKS_IN_PYTORCH.md)."""

from . import sharding


class Marked:
    """A layer whose parameters are marked whenever and however they come into it. It has `shape`, a graphs.LayerShape.

    allreduce              False: a gradient is complete when the layer's backward has ended, and other ranks of the group that
                           shares dense parameters have other experts or shards. So it is summed over replicas of the layer only.
    tensor_model_parallel  True: each of the tp ranks has a shard, which a norm counts; False: they have the same numbers
    """

    def register_parameter(self, name: str, param):
        super().register_parameter(name, param)
        self._mark()

    def _apply(self, *arguments, **options):
        super()._apply(*arguments, **options)
        self._mark()  # conversions may make other parameters
        return self

    def __setstate__(self, state: dict):
        super().__setstate__(state)
        self._mark()  # copies of parameters lose their attributes

    def _mark(self):
        shape = self.shape
        # shards that get the same tokens are no members of the group that shares dense parameters
        is_alone = shape.ranks == 1 or shape.ep == 1 and shape.tokens == "same"
        for name, parameter in self.named_parameters(recurse=False):
            parameter.allreduce = is_alone
            parameter.tensor_model_parallel = shape.tp > 1 and not sharding.is_whole(name)

"""The ranks that run layers together, and what they exchange.

    buffers          programs and memory of an exchange
    clipping         the norm of the gradients of all ranks
    collectives      collective calls that end
    described_calls  texts of what callers gave, for messages at other ranks
    megatron_groups  groups and classes of Megatron
    pairs            the order of a step's rows
    parallel         how ranks share experts and tokens
    ranks            a process's place among the ranks
    replicas         guards against code that makes ranks equal
    sharded_tensors  descriptions of a rank's part of a parameter
"""

# Files of torch.save() name it so.
from .ranks import Group  # noqa: F401

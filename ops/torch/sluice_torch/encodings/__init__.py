"""What numbers are stored as, rounded to and sent as.

    amax       largest magnitudes of weights
    autocast   the context fp8_autocast
    codes      codes of weights, and their numbers
    encodings  the argument `encode` of a layer
    scaling    scales of FP8, and histories of amaxes
    stored     the memory of one encoded weight
"""

# Files of torch.save() name them so.
from .encodings import Delayed, Encodings  # noqa: F401

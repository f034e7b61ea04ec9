"""Python imports this when it starts: eager PyTorch then computes without oneDNN."""

try:
    import torch

    torch.backends.mkldnn.set_flags(False)
except ImportError:
    pass  # a Python of its own, which a test makes without PyTorch

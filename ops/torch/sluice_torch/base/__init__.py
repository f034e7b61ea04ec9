"""What all rooms need, and that knows of no layer.

    integers   limits of whole numbers that callers give
    library    the op's library
    recording  guards against code that records a model
    tensors    the memory of tensors
    writes     all writes to parameters
"""

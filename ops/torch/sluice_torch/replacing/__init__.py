"""The replacement of a model's MoE blocks by layers.

    experts       recognition of experts
    families      families of models
    lookalikes    modules that only look like MoE
    replace       replace_moe()
    replaced      the modules that replace blocks
    routing       recognition of a block's routing
    structure     the parts of a block
    surroundings  variables outside a block
    trial         comparison of a block and its replacement
    twin          copies of a block to try
"""

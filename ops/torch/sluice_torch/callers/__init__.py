"""What the modules for code that calls other libraries (kt, hyper_parallel) are made of.

    finetune        forward and backward by hand
    grouped_experts modules whose steps Sluice's program computes
    hyper_graph     the graphs of hyper_parallel
    hyper_platform  the platform of hyper_parallel
    kt_state        gradients and outputs that kt keeps
    styles          layers that were made whole, divided
"""

"""Layers: their graphs, their parameters and their steps.

    activations    activations in eager PyTorch
    balancing      even rows for ranks, by moves of experts
    builder        a graph in the making
    delaying       weight gradients after the backward
    linear_graphs  graphs of linear layers
    main_grad      gradients that are added to main_grad
    moe            the layer MoE
    operands       a step's tensors from the caller
    placement      places of experts that can move
    preparing      preparation of steps to come
    rank_rows      steps with a row per token and rank
    reporting      reports and traces
    sharding       shards of experts
    steps          how steps run
    submitting     steps in flight
"""

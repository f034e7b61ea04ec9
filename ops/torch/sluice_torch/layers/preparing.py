"""What a layer does ahead of its first step, so that this costs no more than later ones."""

import torch

from ..base import recording
from ..encodings.encodings import BF16
from . import sharding


class Preparable:
    """Part of sluice_torch.MoE.

    prepare() makes ready what steps under torch.no_grad() need, prepare_backward() what a forward with gradients and its
    backward need; they have other programs, each with packed weights of its own. Both compile the program unless it is
    on disk, start the workers, and run steps of zeros that reach each expert: these pack the frozen weights that stay packed
    between steps (pack_frozen), and take the memory of a step. Trained weights, and all without pack_frozen, are packed in
    each step as ever. No parameter, gradient or `main_grad` changes, and balance() counts no rows.

    tokens           of this rank in the largest step to come, 0 to max_tokens: memory is taken for as many. 0: for as
                     few as reach each expert
    x, expert_weights   whether steps to come require their gradients; parameters say so themselves

    Collective, with the same calls at all ranks; each has its own `tokens`, those that pass the same tokens the same.
    submit_prepare() and submit_prepare_backward() begin the steps in the order of all submitted ones, and return at once
    after compiling; do not change the parameters before their wait().
    ValueError and RuntimeError: as forward(); tokens out of range; no gradient is required; "fp8e4m3", whose steps
    have scales of their own.
    """

    def _check_backward(self):
        """Compiles the backward of a layer that has adapters or encodings, because the compiler alone knows which of them
        go together. RuntimeError: what it says."""
        if self.lora is None and self.shape.encodings == BF16:
            return
        own = dict(self.named_parameters(recurse=False))  # inputs that are made of adapters have other names
        needed = (True, True, *(name not in own or own[name].requires_grad for name in self._weight_names()))
        is_float32 = any(each.dtype == torch.float32 for each in self.parameters(recurse=False) if each.requires_grad)
        precise = is_float32 or self.lora is not None and sharding.sums_adapters(self.shape, self.places)
        shape = self.shape.of_rows(self._group.rank) if self.shape.is_per_rank else self.shape
        self._compile(shape, needed, "F32" if precise else "BF16", False)

    def prepare(self, tokens: int = 0):
        """Makes ready what steps under torch.no_grad() need, and waits for it."""
        self.submit_prepare(tokens).wait()

    def prepare_backward(self, tokens: int = 0, x: bool = True, expert_weights: bool = True):
        """Makes ready what a forward with gradients and its backward need, and waits for it."""
        self.submit_prepare_backward(tokens, x, expert_weights).wait()

    @recording.outside_graphs
    def submit_prepare(self, tokens: int = 0) -> "PendingPreparation":
        """Begins prepare()."""
        with torch.no_grad():
            return _submit(self, tokens, False, False)

    @recording.outside_graphs
    def submit_prepare_backward(
        self, tokens: int = 0, x: bool = True, expert_weights: bool = True
    ) -> "PendingPreparation":
        """Begins prepare_backward()."""
        with torch.enable_grad():
            return _submit(self, tokens, x, expert_weights)


class PendingPreparation:
    """Submitted steps of a preparation; destroying it waits for them."""

    def __init__(self, steps: list):
        self._steps = steps

    def wait(self):
        """RuntimeError: a step failed or was cancelled."""
        for step in self._steps:
            step.wait()

    def done(self) -> bool:
        return all(step.done() for step in self._steps)

    def cancel(self):
        """As PendingForward.cancel()."""
        for step in self._steps:
            step.cancel()


def _submit(layer, tokens: int, x: bool, expert_weights: bool) -> PendingPreparation:
    trains = torch.is_grad_enabled()
    shared, shape = layer._shared(), layer.shape
    with shared.refusing():
        shape.refuse_per_rank("prepare")
        if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens <= shape.max_tokens:
            raise ValueError(f"tokens is {tokens!r}, expected a number from 0 to max_tokens, which is {shape.max_tokens}")
    steps = []
    for ids in _ids(layer, tokens):
        with shared.refusing():
            ids = ids.to(layer.device)
            rows = torch.zeros(len(ids), shape.hidden, dtype=torch.bfloat16, device=ids.device).requires_grad_(x)
            scales = torch.zeros(ids.shape, device=ids.device).requires_grad_(expert_weights)
            given, _, operands, weights, grads, needed, _ = layer._arguments(shape, rows, ids, scales)
            if given.encodings.facts.has_scales:
                raise RuntimeError(
                    f"prepare with {given.encodings}, whose steps have scales of their own: expected other encodings"
                )
            if trains and not any(each.requires_grad for each in (rows, scales, *weights)):
                raise RuntimeError("prepare_backward without a required gradient: of x, expert_weights or a parameter")
        program = layer._layer(shared, given, needed, weights, bool(grads))
        if trains:
            steps += torch.ops.sluice.submit_training(program, *operands, weights, layer._placement())
        else:
            steps.append(torch.ops.sluice.submit_moe(program, *operands, weights, grads, layer._placement())[1])
    return PendingPreparation(steps)


def _ids(layer, tokens: int) -> list[torch.Tensor]:
    """The expert_ids [T, K] of this rank for each step: the ids of the first rank, or of the first ranks that have the same
    tokens, reach each place of each expert."""
    shape = layer.shape
    copies = 1 if layer.places is None else max(map(len, layer.places.of))  # rows of an expert are dealt to its places in turn
    least = -(-shape.experts * copies // shape.top_k)
    steps = max(1, -(-least // shape.max_tokens))
    is_first = layer._group.rank < (shape.tp if shape.tokens == "same" else 1)
    counts = [max(tokens, min(shape.max_tokens, least - n * shape.max_tokens) if is_first else 0) for n in range(steps)]
    every = torch.arange(sum(counts) * shape.top_k, dtype=torch.int32) % shape.experts
    return list(every.view(-1, shape.top_k).split(counts))

"""FineTuning: forward and backward of a layer by hand, for engines without an autograd graph."""

import concurrent.futures
import contextlib
import os

import torch

from ..base.integers import MAX_ROWS, whole_number
from ..encodings.autocast import carry
from ..layers.moe import MoE
from ..layers.sharding import WEIGHTS, set_expert
from ..lora import LoRAConfig
from ..weights.loading import load_experts

# All submitted steps run in one thread, in order, so that all ranks run theirs in the same order.
_workers: dict[int, concurrent.futures.ThreadPoolExecutor] = {}  # by process: a forked child has its own


def _worker() -> concurrent.futures.ThreadPoolExecutor:
    if os.getpid() not in _workers:
        _workers[os.getpid()] = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sluice-steps")
    return _workers[os.getpid()]


class FineTuning:
    """A layer with frozen weights, with or without adapters, and a stack of the tensors that its forwards keep.

    forward(..., save=True) puts what a backward needs on the stack, which has room for `depth` forwards; backward(dy)
    takes the last one off. submit_forward() and submit_backward() return at once, and wait() returns the result of the
    earliest step that was not waited for. One thread calls it. RuntimeError: steps in an impossible order; ValueError:
    tensors that do not fit. `options` are as for MoE.
    """

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        num_experts: int,
        top_k: int,
        lora: LoRAConfig | None = None,
        depth: int = 1,
        **options,
    ):
        whole_number("depth", depth, 1, MAX_ROWS)
        self.layer = MoE(hidden, intermediate, num_experts, top_k, lora=lora, **options)
        for name in (*WEIGHTS, *self.layer.shape.biases):
            getattr(self.layer, name).requires_grad_(False)
        self.depth = depth
        self._loaded = False
        self._saved = []  # (x, expert_weights, y) with gradients
        self._saves = 0  # the height of the stack after all submitted steps
        self._pending = []

    @torch.no_grad()
    def load_weights(self, gate: torch.Tensor | None, up: torch.Tensor, down: torch.Tensor):
        """Sets the weights of this rank's experts (its shard of them): gate and up [E, I, H], down [E, H, I]. They are
        copied. gate is None if the activation has none."""
        shape, sizes = self.layer.shape, self.sizes
        if shape.bias:
            raise ValueError("load_weights sets no biases, and the layer has some: expected load_experts")
        if (gate is None) != (shape.inputs == 1):
            said, has = ("None", "a") if gate is None else ("given", "no")
            raise ValueError(f"gate is {said}, but {shape.activation} has {has} gate")
        given = {name: each for name, each in (("gate", gate), ("up", up), ("down", down)) if each is not None}
        for name, each in given.items():
            if not isinstance(each, torch.Tensor) or list(each.shape) != sizes[name]:
                found = f"has shape {list(each.shape)}" if isinstance(each, torch.Tensor) else f"is of type {type(each).__name__}"
                raise ValueError(f"{name} {found}, expected {sizes[name]}")
        for row in range(sizes["up"][0]):
            set_expert(self.layer, row, *(each[row] for each in given.values()), is_shard=True)
        self.layer.forget_amaxes()
        self._loaded = True

    def load_experts(self, path, prefix: str, **options):
        """Sets the weights from a checkpoint, by sluice_torch.load_experts()."""
        load_experts(path, self.layer, prefix, **options)
        self._loaded = True

    @property
    def sizes(self) -> dict[str, list[int]]:
        """The shapes of this rank's matrices; parameters have these shapes only without codes."""
        shape, experts = self.layer.shape, len(self.layer.gate_up_weight)
        up, down = [experts, shape.part, shape.hidden], [experts, shape.hidden, shape.part]
        return {"gate": up, "up": up, "down": down}

    def prepare(self, tokens: int = 0):
        """Makes ready what forward(..., save=False) needs: MoE.prepare()."""
        self._check_nothing_pending("prepare")
        self.submit_prepare(tokens)
        self.wait()

    def prepare_backward(self, tokens: int = 0):
        """Makes ready what forward(..., save=True) and backward() need: MoE.prepare_backward()."""
        self._check_nothing_pending("prepare_backward")
        self.submit_prepare_backward(tokens)
        self.wait()

    def submit_prepare(self, tokens: int = 0):
        """Begins prepare(), as a step whose result in wait() is None."""
        self._submit_preparation(self.layer.prepare, tokens)

    def submit_prepare_backward(self, tokens: int = 0):
        """Begins prepare_backward(), as a step whose result in wait() is None."""
        self._submit_preparation(self.layer.prepare_backward, tokens)

    def _submit_preparation(self, prepare, tokens: int):
        with self._refusing():
            self._check_loaded()
        self._pending.append(_worker().submit(carry(prepare), tokens))

    @property
    def saved(self) -> int:
        """The number of forwards on the stack."""
        return len(self._saved)

    def forward(self, x, expert_ids, expert_weights, save: bool = True) -> torch.Tensor:
        """Returns y [T, H] for x [T, H], expert_ids [T, K] and expert_weights [T, K]."""
        self._check_nothing_pending("forward")
        self.submit_forward(x, expert_ids, expert_weights, save)
        return self.wait()

    def backward(self, dy: torch.Tensor) -> dict[str, torch.Tensor]:
        """Gradients for dy [T, H] of the last saved forward, by name: "x", "expert_weights", and the names of the adapters.
        They are returned, not added to `.grad`. Gradients of adapters that have a `main_grad` are added there instead."""
        self._check_nothing_pending("backward")
        self.submit_backward(dy)
        return self.wait()

    def submit_forward(self, x, expert_ids, expert_weights, save: bool = True):
        """Begins a forward. Do not change the tensors before wait()."""
        with self._refusing():
            self._check_forward(x, save)
        self._saves += save
        self._pending.append(_worker().submit(carry(self._run_forward), x, expert_ids, expert_weights, save))

    def submit_backward(self, dy: torch.Tensor):
        """Begins the backward of the last saved forward."""
        with self._refusing():
            if self._saves == 0:
                raise RuntimeError(f"backward without a saved forward: 0 of at most {self.depth} are saved")
        self._saves -= 1
        self._pending.append(_worker().submit(self._run_backward, dy))

    def wait(self):
        """Returns the result, or raises the error, of the earliest submitted step that was not waited for."""
        if not self._pending:
            raise RuntimeError("wait without a submitted step: 0 are pending")
        step = self._pending.pop(0)
        try:
            return step.result()
        finally:
            if not self._pending:
                self._saves = len(self._saved)  # fewer, if a forward failed

    @contextlib.contextmanager
    def _refusing(self):
        """A context manager: an exception of its body refuses the step at all ranks, in its turn among the submitted
        steps."""
        try:
            yield
        except Exception as error:
            if self.layer.shape.ranks > 1:
                _worker().submit(self.layer.refuse, str(error))
            raise

    def _check_nothing_pending(self, call: str):
        with self._refusing():
            if self._pending:
                raise RuntimeError(f"{call} while {len(self._pending)} submitted steps are pending: call wait first")

    def _check_loaded(self):
        if not self._loaded:
            sizes = self.sizes
            raise RuntimeError(
                f"weights of {sizes['up'][0]} experts are not loaded: call load_weights(gate, up, down) with gate and up "
                f"{sizes['up']} and down {sizes['down']}"
            )

    def _check_forward(self, x, save: bool):
        self._check_loaded()
        if not isinstance(x, torch.Tensor):
            raise ValueError(f"x is of type {type(x).__name__}, expected a tensor")
        most = self.layer.shape.max_tokens
        if x.dim() != 2:
            raise ValueError(f"x has shape {list(x.shape)}, expected [T, {self.layer.shape.hidden}]")
        if x.shape[0] > most:
            raise ValueError(f"x has {x.shape[0]} tokens, expected at most max_tokens, which is {most}")
        if save and self._saves == self.depth:
            raise RuntimeError(f"{self.depth} forwards are saved, as many as depth allows: call backward first")

    def _run_forward(self, x, expert_ids, expert_weights, save: bool) -> torch.Tensor:
        if not save:
            with torch.no_grad():
                return self.layer(x, expert_ids, expert_weights)
        with self.layer.refusing():
            if not isinstance(expert_weights, torch.Tensor):
                raise ValueError(f"expert_weights is of type {type(expert_weights).__name__}, expected a tensor")
            x = x.detach().requires_grad_()
            expert_weights = expert_weights.detach().requires_grad_()
        with torch.enable_grad():  # overrides the mode of the caller's thread
            y = self.layer(x, expert_ids, expert_weights)
        self._saved.append((x, expert_weights, y))
        return y.detach()

    def _run_backward(self, dy: torch.Tensor) -> dict[str, torch.Tensor]:
        with self.layer.refusing():
            if not self._saved:
                raise RuntimeError(f"backward without a saved forward: 0 of at most {self.depth} are saved")
            x, expert_weights, y = self._saved[-1]
            if not isinstance(dy, torch.Tensor):
                raise ValueError(f"dy is of type {type(dy).__name__}, expected a tensor")
            if dy.shape != y.shape:
                raise ValueError(f"dy has shape {list(dy.shape)}, expected {list(y.shape)} of the forward it belongs to")
        trained = {name: each for name, each in self.layer.named_parameters() if each.requires_grad}
        leaves = {"x": x, "expert_weights": expert_weights, **trained}
        found = torch.autograd.grad(y, list(leaves.values()), dy.to(y.dtype), allow_unused=True)
        self._saved.pop()  # stays if a rank refused the step, so that it can be tried again
        return {name: grad for name, grad in zip(leaves, found) if grad is not None}

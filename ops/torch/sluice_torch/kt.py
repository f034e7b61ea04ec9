"""The calling code of kt-kernel's fine-tuning of experts on a CPU, over sluice_torch.FineTuning (docs/KT.md)."""

import math

import torch

from .callers.finetune import FineTuning
from .callers.kt_state import CheckpointOutput, Gradients
from .encodings.encodings import Encodings
from .layers.activations import spelled
from .layers.steps import Steps
from .lora import LoRAConfig

_SKIP = "_SkipLoRA"
ADAPTERS = tuple(f"{target}_lora_{side}" for target in ("gate", "up", "down") for side in "ab")
BASES = ("gate_proj", "up_proj", "down_proj")
# The factor of the sigmoid of gpt-oss's activation, the only one that has such a factor.
_OAI_ALPHA = 1.702


def _encode_of(method: str, group_size: int, zero_point: bool) -> str:
    """The encoding of weights that a method names. ValueError: another method."""
    zeros = "z" if zero_point else ""
    known = {"AMXBF16_SFT": "bf16", "AMXINT8_SFT": "int8", "INT8_SFT": "int8", "AMXINT4_SFT": f"int4:g{group_size}{zeros}"}
    if (base := method.removesuffix(_SKIP)) not in known:
        raise ValueError(f"method is {method!r}, expected one of {', '.join(known)}, or one of these with {_SKIP}")
    return known[base]


def _activation_of(limit: float, alpha: float) -> str:
    if not limit and not alpha:
        return "swiglu"
    if alpha not in (0, _OAI_ALPHA):
        raise ValueError(f"swiglu_alpha is {alpha!r}, expected 0 or {_OAI_ALPHA}, that of gpt-oss")
    if limit <= 0:
        raise ValueError(f"swiglu_limit is {limit!r}, expected a positive number with swiglu_alpha={alpha}")
    return spelled("swiglu_oai" if alpha else "swiglu_clamp", limit)


def _refuse(**found):
    """ValueError: one of these arguments asks for what runs nowhere in Sluice."""
    expected = {
        "mode": ("sft", "'sft': inference is sluice_torch.MoE"),
        "cpu_save": (False, "False: sluice_torch.state saves weights"),
        "lora_dropout": (0, "0: adapters have no dropout"),
        "num_gpu_experts": (0, "0: all experts are computed on the CPU"),
    }
    for name, value in found.items():
        if value != expected[name][0]:
            raise ValueError(f"{name} is {value!r}, expected {expected[name][1]}")


def _check(name: str, tensor, sizes: list[int]):
    """ValueError: no bfloat16 tensor of these sizes."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} is of type {type(tensor).__name__}, expected a tensor")
    if list(tensor.shape) != sizes or tensor.dtype != torch.bfloat16 or tensor.device.type != "cpu":
        found = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
        raise ValueError(f"{name} is {found}, expected torch.bfloat16 {sizes} on the CPU")


class KTMoEWrapper:
    """The experts of a layer, frozen, with adapters or without, computed on the CPU: kt-kernel's class of this name, mode "sft".

    hidden_states [T, H], expert_ids [T, K] and weights [T, K] may be on any device; they are copied. y is bfloat16. docs/KT.md lists
    every argument, those without effect and those that are refused. ValueError: an argument or tensor that does not fit.
    RuntimeError: calls in an impossible order.
    """

    def __init__(
        self,
        layer_idx: int,
        num_experts: int,
        num_experts_per_tok: int,
        hidden_size: int,
        moe_intermediate_size: int,
        gpu_experts_mask,
        cpuinfer_threads: int,
        threadpool_count: int,
        weight_path,
        chunked_prefill_size: int,
        cpu_save: bool = False,
        max_deferred_experts_per_token: int | None = None,
        method: str = "AMXINT4",
        numa_nodes=None,
        mode: str = "inference",
        num_gpu_experts: int = 0,
        lora_rank: int = 16,
        lora_alpha: float = 32.0,
        lora_dropout: float = 0.0,
        max_cache_depth: int = 1,
        group_size: int = 128,
        zero_point: bool = True,
        full_weight_grad: bool = False,
        swiglu_limit: float = 0.0,
        swiglu_alpha: float = 0.0,
    ):
        _refuse(mode=mode, cpu_save=cpu_save, lora_dropout=lora_dropout, num_gpu_experts=num_gpu_experts)
        if gpu_experts_mask is not None and torch.as_tensor(gpu_experts_mask).any():
            chosen = torch.as_tensor(gpu_experts_mask).nonzero().flatten().tolist()
            raise ValueError(f"gpu_experts_mask has experts {chosen}, expected none: all are computed on the CPU")
        encode = _encode_of(method, group_size, zero_point)
        has_adapters = not method.endswith(_SKIP)
        if has_adapters and not lora_alpha > 0:
            raise ValueError(f"lora_alpha is {lora_alpha!r}, expected a positive number")
        if full_weight_grad and Encodings(encode).has_codes:
            raise ValueError(f"full_weight_grad with method {method!r}, whose weights are codes: expected AMXBF16_SFT")
        self._steps = FineTuning(
            hidden_size,
            moe_intermediate_size,
            num_experts,
            num_experts_per_tok,
            lora=LoRAConfig(lora_rank, lora_alpha) if has_adapters else None,
            depth=max_cache_depth,
            encode=encode,
            activation=_activation_of(swiglu_limit, swiglu_alpha),
            steps=Steps(threads=cpuinfer_threads, max_tokens=chunked_prefill_size),
            initialise=False,
        )
        self.layer_idx, self.weight_path = layer_idx, weight_path
        self.gate_proj = self.up_proj = self.down_proj = None  # what load_weights() takes instead of weight_path
        self._weights_loaded = self._base_weights_dirty = False
        self._lora_initialized, self._full_weight_grad = False, full_weight_grad
        self._grads = Gradients()
        self._running = None  # the step that was submitted, with what its end needs
        self._checkpoint = CheckpointOutput(layer_idx)

    @staticmethod
    def clear_sft_buffer_cache():
        """Has no effect: no buffer outlives the layers that use it."""

    @property
    def layer(self):
        """The sluice_torch.MoE that computes."""
        return self._steps.layer

    # --- Weights ------------------------------------------------------------------------------------------------------------

    def load_weights(self, physical_to_logical_map_cpu=None):
        """Reads `model.layers.{layer_idx}.mlp.experts.{e}.{gate,up,down}_proj.weight` of weight_path, where expert e of the layer is
        number map[e] of the file. Or takes the tensors that were assigned to gate_proj, up_proj and down_proj."""
        given = [getattr(self, name) for name in BASES]
        if all(each is not None for each in given):
            self.load_weights_from_tensors(*given, physical_to_logical_map_cpu)
            return
        if self.weight_path is None:
            raise ValueError("weight_path is None, and gate_proj, up_proj and down_proj are not set: there are no weights to load")
        prefix = f"model.layers.{self.layer_idx}.mlp.experts"
        self._steps.load_experts(self.weight_path, prefix, physical_to_logical_map=physical_to_logical_map_cpu)
        self._weights_loaded = True

    def load_weights_from_tensors(self, gate_proj, up_proj, down_proj, physical_to_logical_map_cpu=None):
        """Takes gate_proj and up_proj [E, I, H] and down_proj [E, H, I], where expert e of the layer is number map[e] of these."""
        given = [gate_proj, up_proj, down_proj]
        if physical_to_logical_map_cpu is not None:
            order, experts = torch.as_tensor(physical_to_logical_map_cpu).flatten().tolist(), self.layer.shape.experts
            if len(order) != experts or any(not isinstance(e, int) or not 0 <= e < experts for e in order):
                raise ValueError(f"physical_to_logical_map_cpu is {order}, expected {experts} numbers of experts")
            if order != list(range(experts)):
                given = [each[order] for each in given]
        self._steps.load_weights(*(each.detach().to("cpu") for each in given))
        self._weights_loaded = True

    def init_lora_weights(
        self,
        gate_lora_a,
        gate_lora_b,
        up_lora_a,
        up_lora_b,
        down_lora_a,
        down_lora_b,
        grad_gate_lora_a,
        grad_gate_lora_b,
        grad_up_lora_a,
        grad_up_lora_b,
        grad_down_lora_a,
        grad_down_lora_b,
    ):
        """Keeps these twelve tensors of bfloat16, A [E, r, in], B [E, out, r] and their gradients: each step reads the adapters as they
        are then, and each backward writes all six gradients anew."""
        if self.layer.lora is None:
            raise RuntimeError(f"init_lora_weights of a layer without adapters: its method ends with {_SKIP}")
        given = dict(zip(ADAPTERS, (gate_lora_a, gate_lora_b, up_lora_a, up_lora_b, down_lora_a, down_lora_b)))
        grads = (grad_gate_lora_a, grad_gate_lora_b, grad_up_lora_a, grad_up_lora_b, grad_down_lora_a, grad_down_lora_b)
        for (name, tensor), grad in zip(given.items(), grads):
            sizes = list(getattr(self.layer, name).shape)
            _check(name, tensor, sizes)
            _check(f"grad_{name}", grad, sizes)
        for (name, tensor), grad in zip(given.items(), grads):
            setattr(self.layer, name, torch.nn.Parameter(tensor.detach()))
            self._grads.tensors[name] = grad
        self._lora_initialized = True

    def update_lora_weights(self):
        """Has no effect but a check: each step reads the adapters that init_lora_weights() was given."""
        self._check_lora()

    def init_full_weight_grad_buffers(self, gate_proj, up_proj, down_proj):
        """Makes gate_proj_buf, up_proj_buf and down_proj_buf, Parameters with these weights for an optimizer, and grad_..._buf, where
        each backward writes their gradients in bfloat16. update_base_weights() makes changes of the Parameters count."""
        if not self._full_weight_grad:
            raise RuntimeError("init_full_weight_grad_buffers of a layer that was made without full_weight_grad=True")
        given = dict(zip(BASES, (gate_proj, up_proj, down_proj)))
        for (name, tensor), sizes in zip(given.items(), self._steps.sizes.values()):
            _check(name, tensor, sizes)
        for name, tensor in given.items():
            setattr(self, f"{name}_buf", torch.nn.Parameter(tensor.detach().contiguous()))
            self._grads.tensors[name] = torch.zeros_like(tensor, memory_format=torch.contiguous_format)
            setattr(self, f"grad_{name}_buf", self._grads.tensors[name])
        for weight in (self.layer.gate_up_weight, self.layer.down_weight):
            weight.requires_grad_(True)

    def update_base_weights(self):
        """Takes what gate_proj_buf, up_proj_buf and down_proj_buf have now; nothing that was made of other weights is used again."""
        if not hasattr(self, "down_proj_buf"):
            raise RuntimeError("update_base_weights without init_full_weight_grad_buffers")
        self.load_weights_from_tensors(*(getattr(self, f"{name}_buf") for name in BASES))
        self._base_weights_dirty = False

    # --- Steps --------------------------------------------------------------------------------------------------------------

    def forward(self, hidden_states, expert_ids, weights, save_for_backward=True, output_device=None):
        """Returns y [T, H], on `output_device` if there is one; with save_for_backward a backward may follow."""
        self.submit_forward(hidden_states, expert_ids, weights, save_for_backward)
        return self.sync_forward(output_device)

    def submit_forward(self, hidden_states, expert_ids, weights, save_for_backward=True):
        """Begins a forward and returns at once. The tensors may be changed then."""
        self._check_idle("submit_forward")
        self._check_lora()
        if self._base_weights_dirty:
            self.update_base_weights()
        for name, each in (("hidden_states", hidden_states), ("expert_ids", expert_ids), ("weights", weights)):
            if not isinstance(each, torch.Tensor):
                raise ValueError(f"{name} is of type {type(each).__name__}, expected a tensor")
        x = hidden_states.detach().to("cpu", torch.bfloat16, copy=True)
        ids, given = expert_ids.detach().to("cpu", copy=True), weights.detach().to("cpu", torch.float32, copy=True)
        self._steps.submit_forward(x, ids, given, bool(save_for_backward))
        self._running = ("forward",)

    def sync_forward(self, output_device=None):
        """Returns y of the forward that was submitted."""
        self._take("forward")
        y = self._steps.wait()
        return y if output_device is None else y.to(output_device)

    def backward(self, grad_output, output_device=None, optimizer_grad_scale=1.0):
        """Returns the gradients of hidden_states, bfloat16, and of weights, float32, of the last forward that was saved, and writes
        the gradients of adapters and weights, times optimizer_grad_scale."""
        self.submit_backward_async(grad_output, output_device, optimizer_grad_scale)
        return self.sync_backward()

    def submit_backward_async(self, grad_output, output_device=None, optimizer_grad_scale=1.0):
        """Begins a backward and returns at once. grad_output may be changed then."""
        self._check_idle("submit_backward_async")
        is_number = isinstance(optimizer_grad_scale, (int, float)) and not isinstance(optimizer_grad_scale, bool)
        if not is_number or not math.isfinite(optimizer_grad_scale):
            raise ValueError(f"optimizer_grad_scale is {optimizer_grad_scale!r}, expected a finite number")
        if not isinstance(grad_output, torch.Tensor):
            raise ValueError(f"grad_output is of type {type(grad_output).__name__}, expected a tensor")
        self._grads.state()
        self._steps.submit_backward(grad_output.detach().to("cpu", torch.bfloat16, copy=True))
        self._running = ("backward", output_device, float(optimizer_grad_scale))

    def sync_backward(self):
        """Returns the gradients of the backward that was submitted."""
        _, device, scale = self._take("backward")
        found = self._steps.wait()
        if (gate_up := found.pop("gate_up_weight", None)) is not None:
            found |= dict(zip(BASES, (*gate_up.chunk(2, 1), found.pop("down_weight"))))
        self._grads.deliver(found, scale)
        grads = found["x"].bfloat16(), found["expert_weights"].float()
        return grads if device is None else tuple(each.to(device) for each in grads)

    def submit_backward_repack(self):
        """Has no effect: a backward reads the weights of its forward."""

    def wait_backward_repack(self):
        """Has no effect, as submit_backward_repack()."""

    def _check_idle(self, call: str):
        if self._running is not None:
            raise RuntimeError(f"{call} while a {self._running[0]} is running: call sync_{self._running[0]} first")

    def _check_lora(self):
        if self.layer.lora is not None and not self._lora_initialized:
            raise RuntimeError(f"the adapters of layer {self.layer_idx} are not initialised: call init_lora_weights first")

    def _take(self, step: str) -> tuple:
        if self._running is None or self._running[0] != step:
            found = "nothing" if self._running is None else f"a {self._running[0]}"
            raise RuntimeError(f"sync_{step} while {found} is running, expected a {step} that was submitted")
        running, self._running = self._running, None
        return running

    # --- Gradients that an optimizer owns -----------------------------------------------------------------------------------

    @property
    def _uses_authoritative_optimizer_grads(self) -> bool:
        return bool(self._grads.views)

    def register_authoritative_optimizer_grad(self, name: str, parameter: torch.Tensor, grad_view: torch.Tensor):
        """From now on the gradient `name` goes to `grad_view`, which becomes parameter.grad: the first backward of a window overwrites
        it, later ones add to it, until release_authoritative_optimizer_grads() ends the window."""
        self._grads.register(name, parameter, grad_view)

    def validate_authoritative_optimizer_grad_state(self) -> str:
        """Returns "empty" if nothing is registered, "open" if the views have gradients, else "closed". RuntimeError: the .grad of a
        parameter is something else."""
        return self._grads.state()

    def release_authoritative_optimizer_grads(self):
        """Ends the window: the next backward overwrites the views. parameter.grad is None until then."""
        self._grads.release()

    # --- An output for a checkpoint -----------------------------------------------------------------------------------------

    def validate_checkpoint_cache_empty(self):
        self._checkpoint.check(None)

    def validate_checkpoint_output(self, qlen: int):
        self._checkpoint.check(qlen)

    def cache_checkpoint_output(self, output_cpu: torch.Tensor, qlen: int):
        """Keeps a copy of the first `qlen` rows of an output until clear_checkpoint_output()."""
        self._checkpoint.keep(output_cpu, qlen)

    def get_checkpoint_output(self, qlen: int, output_device=None) -> torch.Tensor:
        self._checkpoint.check(qlen)
        return self._checkpoint.y if output_device is None else self._checkpoint.y.to(output_device)

    def clear_checkpoint_output(self):
        self._checkpoint = CheckpointOutput(self.layer_idx)

    def poison_checkpoint_output(self, error):
        """Makes each later use of the output an error, until clear_checkpoint_output()."""
        self._checkpoint.error = error

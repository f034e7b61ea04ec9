"""What a MoE block of a model consists of, told by shapes of parameters and by trying it, not by names of classes.

Experts are either a list of modules of three matrices, or one module of two stacked tensors. What is done with
the matrices (which is gate, which up, which activation) is found by calling an expert with small random weights
instead of its own and comparing with what is known: an activation, an order or a scale that is not known is not
taken for another.
"""

import contextlib
import dataclasses
import itertools

import torch

PROBE_ROWS = 8
# float32 sums in other orders differ by less; the forms of gelu differ by more.
_TOLERANCE = 1e-4
_FILLED = 16  # columns of a weight that are not zero when an expert is tried: large ones cost no memory


class Unsupported(ValueError):
    """A block that looks like MoE but differs in something a layer of Sluice cannot keep."""


ACTIVATIONS = {
    "swiglu": lambda gate, up, limit: torch.nn.functional.silu(gate) * up,
    "geglu": lambda gate, up, limit: torch.nn.functional.gelu(gate, approximate="tanh") * up,
    "reglu": lambda gate, up, limit: torch.relu(gate) * up,
    "swiglu_clamp": lambda gate, up, limit: torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit),
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a block had its experts' weights: what its state_dict() called them, and in which form.

    Of a list: `experts`.NUMBER.`gate`, .`up` [I, H] and .`down` [H, I], below the block. Stacked: `gate` [E, 2I, H],
    rows of the gate first, and `down` [E, H, I], below the module of experts; transposed: [E, H, 2I] and [E, I, H].
    """

    experts: str  # the list; empty where stacked
    gate: str
    up: str  # empty where stacked
    down: str
    stacked: bool
    transposed: bool
    count: int  # of all ranks
    hidden: int
    intermediate: int


@dataclasses.dataclass
class Experts:
    """The experts of a block."""

    module: torch.nn.Module  # the list, or the module that holds the stacked tensors
    hidden: int
    intermediate: int
    count: int
    activation: str
    limit: float | None
    gate: str  # parameters of one expert of a list; of the module, where up is empty
    up: str
    down: str
    transposed: bool = False  # stacked as [E, in, out]

    @property
    def stacked(self) -> bool:
        return not self.up

    def layout(self, name: str) -> Layout:
        """`name`: of the list, below its block."""
        sizes = (self.count, self.hidden, self.intermediate)
        return Layout("" if self.stacked else name, self.gate, self.up, self.down, self.stacked, self.transposed, *sizes)

    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self.module.parameters())

    def matrices(self, expert: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Gate, up [I, H] and down [H, I] of an expert: views of the model's parameters."""
        if not self.stacked:
            own = dict(self.module[expert].named_parameters())
            return own[self.gate], own[self.up], own[self.down]
        own = dict(self.module.named_parameters())
        gate_up, down = own[self.gate][expert], own[self.down][expert]
        if self.transposed:
            gate_up, down = gate_up.t(), down.t()
        return gate_up[: self.intermediate], gate_up[self.intermediate :], down


def apply_experts(experts: Experts, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What the layer is to compute, for x [T, H], in float32."""
    y = torch.zeros(x.shape, dtype=torch.float32)
    for expert in ids.unique().tolist():
        token, place = torch.where(ids == expert)
        gate, up, down = (matrix.float() for matrix in experts.matrices(expert))
        rows = x[token].float()
        act = ACTIVATIONS[experts.activation](rows @ gate.t(), rows @ up.t(), experts.limit)
        y.index_add_(0, token, (act @ down.t()) * weights[token, place].float()[:, None])
    return y


def is_close(found, expected: torch.Tensor, tolerance: float = _TOLERANCE) -> bool:
    """Whether each row is within `tolerance` of the expected one, relative to its largest number."""
    if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
        return False
    found, expected = found.float(), expected.float()
    scale = expected.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30)
    return bool(((found - expected).abs() / scale <= tolerance).all())


def call_with(module: torch.nn.Module, state: dict, *arguments):
    """The module's result with other parameters; None where it cannot be called so."""
    try:
        from torch.func import functional_call
    except ImportError:  # before torch 2.0
        from torch.nn.utils.stateless import functional_call
    try:
        return functional_call(module, state, arguments)
    except Exception:  # whatever a model raises: it is not called so
        return None


@contextlib.contextmanager
def at_rest(module: torch.nn.Module):
    """In evaluation mode, without gradients, and with the random state as it was afterwards."""
    modes = {part: part.training for part in module.modules()}
    try:
        module.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def probe_input(hidden: int) -> torch.Tensor:
    """Rows of ordinary size, and of a size at which limits cut."""
    return torch.randn(PROBE_ROWS, hidden) * torch.tensor([1.0, 30.0]).repeat(PROBE_ROWS // 2)[:, None]


def find_experts(block: torch.nn.Module) -> tuple[str, torch.nn.Module, int] | None:
    """Name, module and number of what may be the experts among the children of a block."""
    for name, child in block.named_children():
        if isinstance(child, torch.nn.ModuleList) and len(child) > 1 and _is_expert_list(child):
            return name, child, len(child)
        own = [parameter for _, parameter in child.named_parameters(recurse=False)]
        stacks = [parameter for parameter in own if parameter.dim() == 3]
        if len(stacks) >= 2 and len({parameter.shape[0] for parameter in stacks}) == 1 and stacks[0].shape[0] > 1:
            return name, child, stacks[0].shape[0]
    return None


def _is_expert_list(members: torch.nn.ModuleList) -> bool:
    """Equal members of two or three matrices and nothing larger."""
    shapes = [[tuple(parameter.shape) for parameter in member.parameters()] for member in members]
    matrices = [shape for shape in shapes[0] if len(shape) == 2]
    return 2 <= len(matrices) <= 3 and all(other == shapes[0] for other in shapes)


def recognise_list(members: torch.nn.ModuleList, hidden: int, limit: float | None) -> Experts:
    """Experts that are modules of three matrices each. Unsupported: what differs, in words."""
    first = members[0]
    shapes = {name: tuple(parameter.shape) for name, parameter in first.named_parameters()}
    for name, shape in shapes.items():
        if len(shape) != 2:
            raise Unsupported(f"experts have {name} of shape {list(shape)}, expected nothing but three matrices")
    if len(shapes) != 3:
        raise Unsupported(f"experts have {len(shapes)} matrices ({', '.join(shapes)}), expected gate, up and down")
    _check_floats(members)
    others = [size for shape in shapes.values() for size in shape if size != hidden]
    intermediate = others[0] if others else hidden
    x = probe_input(hidden)
    state = {name: _random(shape, hidden, intermediate) for name, shape in shapes.items()}
    found = call_with(first, state, x)
    for gate, up, down in itertools.permutations(shapes):
        if shapes[gate] != (intermediate, hidden) or shapes[up] != shapes[gate]:
            continue
        if shapes[down] != (hidden, intermediate):
            continue
        for activation in _activations(limit):
            act = ACTIVATIONS[activation](x @ state[gate].t(), x @ state[up].t(), limit)
            if is_close(found, act @ state[down].t()):
                own_limit = limit if activation == "swiglu_clamp" else None
                parts = (hidden, intermediate, len(members), activation, own_limit, gate, up, down)
                return Experts(members, *parts)
    raise Unsupported(
        f"experts of {', '.join(f'{name} {list(shape)}' for name, shape in shapes.items())}{_says(first)} compute none "
        f"of {', '.join(ACTIVATIONS)}: expected down(act(gate(x)) * up(x))"
    )


def recognise_stack(module: torch.nn.Module, hidden: int, limit: float | None) -> tuple[Experts, bool]:
    """Experts of two stacked tensors, called with rows, ids and weights in whatever order. True: the weights are
    given for all experts, [T, E]. Unsupported: what differs, in words."""
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    for name, shape in shapes.items():
        if len(shape) != 3:
            raise Unsupported(f"experts have {name} of shape {list(shape)}, expected nothing but two stacked tensors")
    if len(shapes) != 2:
        raise Unsupported(f"experts have {len(shapes)} stacked tensors ({', '.join(shapes)}), expected gate_up and down")
    _check_floats(module)
    x = probe_input(hidden)
    for (gate_up, down), transposed in itertools.product(itertools.permutations(shapes), (False, True)):
        intermediate = shapes[down][1 if transposed else 2]
        expected = [(2 * intermediate, hidden), (hidden, intermediate)]
        if transposed:
            expected = [size[::-1] for size in expected]
        if [shapes[gate_up][1:], shapes[down][1:]] != expected:
            continue
        for activation in _activations(limit):
            own_limit = limit if activation == "swiglu_clamp" else None
            parts = (hidden, intermediate, shapes[down][0], activation, own_limit, gate_up, "", down, transposed)
            experts = Experts(module, *parts)
            for scattered in (False, True):
                if _stack_agrees(experts, x, scattered):
                    return experts, scattered
    raise Unsupported(
        f"experts of {', '.join(f'{name} {list(shape)}' for name, shape in shapes.items())}{_says(module)} called with "
        f"rows, ids and weights compute none of {', '.join(ACTIVATIONS)} with the gate before up"
    )


def _stack_agrees(experts: Experts, x: torch.Tensor, scattered: bool) -> bool:
    shape = (experts.count, 2 * experts.intermediate, experts.hidden)
    down_shape = (experts.count, experts.hidden, experts.intermediate)
    gate_up, down = torch.zeros(shape), torch.zeros(down_shape)
    gate_up[:2, :, :_FILLED] = torch.randn(2, shape[1], min(_FILLED, shape[2])) / 2
    down[:2, :_FILLED] = torch.randn(2, min(_FILLED, down_shape[1]), down_shape[2]) / experts.intermediate**0.5
    own = {experts.gate: gate_up, experts.down: down}
    if experts.transposed:
        own = {name: tensor.transpose(1, 2).contiguous() for name, tensor in own.items()}
    ids = torch.tensor([[0, 1], [1, 0]]).repeat(PROBE_ROWS // 2, 1)
    weights = torch.rand(PROBE_ROWS, 2) + 0.5
    expected = torch.zeros(PROBE_ROWS, experts.hidden)
    for place in range(2):
        for row in range(PROBE_ROWS):
            gate, up = (gate_up[ids[row, place]] @ x[row]).chunk(2)
            act = ACTIVATIONS[experts.activation](gate, up, experts.limit)
            expected[row] += weights[row, place] * (down[ids[row, place]] @ act)
    given = torch.zeros(PROBE_ROWS, experts.count).scatter_(1, ids, weights) if scattered else weights
    for rows in (x, x[None]):
        for arguments in ((rows, ids, given), (rows, given, ids)):
            found = call_with(experts.module, own, *arguments)
            if isinstance(found, torch.Tensor) and found.shape == rows.shape and is_close(found.view_as(x), expected):
                return True
    return False


def _activations(limit: float | None) -> list[str]:
    return [name for name in ACTIVATIONS if limit is not None or name != "swiglu_clamp"]


def _random(shape: tuple, hidden: int, intermediate: int) -> torch.Tensor:
    """A weight whose products with probe_input() are of the size of one."""
    weight = torch.zeros(shape)
    if shape == (hidden, intermediate) and hidden != intermediate:
        weight[:_FILLED] = torch.randn(min(_FILLED, hidden), intermediate) / intermediate**0.5
    elif hidden != intermediate:
        weight[:, :_FILLED] = torch.randn(shape[0], min(_FILLED, shape[1])) / 2
    else:
        weight.normal_(std=2 / hidden**0.5)
    return weight


def _check_floats(module: torch.nn.Module):
    kinds = {(parameter.dtype, parameter.device.type, parameter.requires_grad) for parameter in module.parameters()}
    types = {dtype for dtype, _, _ in kinds}
    if len(types) != 1 or not types <= {torch.float32, torch.bfloat16}:
        raise Unsupported(f"experts have weights of {_list(types)}, expected all float32 or all bfloat16")
    if {device for _, device, _ in kinds} != {"cpu"}:
        raise Unsupported(f"experts have weights on {_list(device for _, device, _ in kinds)}, expected cpu")


def _list(things) -> str:
    return ", ".join(sorted({str(thing) for thing in things}))


def _says(module: torch.nn.Module) -> str:
    """The activation a module says it has, for messages."""
    for name in ("act_fn", "activation", "act", "activation_fn"):
        if (activation := getattr(module, name, None)) is not None:
            return f" ({name} {getattr(activation, '__name__', None) or activation})"
    return ""

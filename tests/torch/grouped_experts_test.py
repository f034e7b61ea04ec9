"""Modules of grouped experts under a style of hyper_parallel: Sluice's program computes those that are proven to be its function, and only
those. Results are compared with the whole module in eager PyTorch."""

import copy
import io
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from hyper_parallel_test import EXPERTS, HIDDEN, INTER, Experts, Mesh, batch, experts_of
from moe_eager import BOUND, error
from sluice_torch.callers.grouped_experts import find_difference
from sluice_torch.hyper_parallel import ExpertParallel, ExpertTensorParallel, TensorParallel
from torch.nn import functional

calls = 0


class Swiglu(Experts):
    """As torchtitan's GroupedExperts, which takes rows beyond the counts, too."""

    def __init__(self, dtype=torch.bfloat16, experts=EXPERTS):
        super().__init__(dtype)
        for name, each in list(self.named_parameters()):
            setattr(self, name, torch.nn.Parameter(each.detach()[:experts].clone()))

    def act(self, gate):
        return functional.silu(gate)

    def expert(self, x, number):
        w1, w2, w3 = (weight[number].T.to(x.dtype) for weight in (self.w1, self.w2, self.w3))
        return (self.act(x @ w1) * (x @ w3)) @ w2

    def forward(self, routed_input, num_tokens_per_expert, scores=None):
        counts = num_tokens_per_expert.tolist()
        parts = routed_input[: sum(counts)].split(counts)
        y = torch.cat([self.expert(rows, number) for number, rows in enumerate(parts)])
        y = torch.vstack((y, y.new_zeros(len(routed_input) - len(y), y.shape[1])))
        return y if scores is None else y * scores


class Spelled(Swiglu):
    """The same function otherwise: by a part, by rows, and for no score but None."""

    def __init__(self):
        super().__init__()
        self.gate_act = torch.nn.SiLU()

    def forward(self, rows, counts, scores=None):
        ids = torch.arange(len(counts)).repeat_interleave(counts)
        gate, up = (torch.bmm(each[ids], rows.unsqueeze(2)) for each in (self.w1, self.w3))
        return torch.bmm(self.w2[ids], self.gate_act(gate) * up).squeeze(2)


class Gelu(Swiglu):
    def act(self, gate):
        return functional.gelu(gate)


class Swapped(Swiglu):
    def expert(self, x, number):
        h = functional.silu(x @ self.w3[number].T)
        return (h * (x @ self.w1[number].T)) @ self.w2[number].T


class Clamped(Swiglu):
    """Other for large rows only."""

    def act(self, gate):
        return functional.silu(gate.clamp(max=1000))


class Added(Swiglu):
    """Other for small rows only."""

    def expert(self, x, number):
        return super().expert(x, number) + 1e-6


class Rounds(Swiglu):
    """Other in the module's type only."""

    def act(self, gate):
        return functional.silu(gate) if gate.dtype == torch.float32 else functional.silu(gate).clamp(max=1)


class Detached(Swiglu):
    """Another gradient."""

    def act(self, gate):
        y = functional.silu(gate)
        return y.detach() + 0.5 * (y - y.detach())


class DetachedRounded(Detached):
    """Another gradient in the module's type only."""

    def act(self, gate):
        return functional.silu(gate) if gate.dtype == torch.float32 else super().act(gate)


class AddsToGradient(Swiglu):
    """The same sums, and in the backward a loss of its own."""

    def expert(self, x, number):
        return AuxiliaryLoss.apply(super().expert(x, number), self.w1[number])


class AuxiliaryLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, weight):
        ctx.shape = weight.shape
        return y.view_as(y)

    @staticmethod
    def backward(ctx, grad):
        return grad, grad.new_ones(ctx.shape)


class Biased(Swiglu):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.zeros(HIDDEN))

    def expert(self, x, number):
        return super().expert(x, number) + self.bias.to(x.dtype)


class Hidden(Swiglu):
    """Further numbers that state_dict() does not know."""

    def __init__(self):
        super().__init__()
        self.bias = torch.zeros(HIDDEN)


class DropsOut(Swiglu):
    def act(self, gate):
        return functional.dropout(functional.silu(gate), 0.5, self.training)


class Trains(Swiglu):
    """Other in training only."""

    def act(self, gate):
        return functional.silu(gate) * (1.01 if self.training else 1)


class Hooked(Swiglu):
    def __init__(self):
        super().__init__()
        self.register_forward_hook(lambda module, given, y: y * 2)


class PartHooked(Spelled):
    def __init__(self):
        super().__init__()
        self.gate_act.register_forward_hook(lambda module, given, y: y * 2)


class Scored(Swiglu):
    def forward(self, routed_input, num_tokens_per_expert, scores):
        return super().forward(routed_input, num_tokens_per_expert, scores)


class Summed(Swiglu):
    """A row gets what all experts make of it."""

    def forward(self, routed_input, num_tokens_per_expert, scores=None):
        y = sum(self.expert(routed_input, number) for number in range(len(self.w1)))
        return y if scores is None else y * scores


class MixesRows(Swiglu):
    """The rows of an expert see each other."""

    def expert(self, x, number):
        return super().expert(x - x.mean(0, keepdim=True) if len(x) else x, number)


class LastIsOther(Swiglu):
    def expert(self, x, number):
        return x if number == len(self.w1) - 1 else super().expert(x, number)


class NeedsRows(Swiglu):
    def forward(self, routed_input, num_tokens_per_expert, scores=None):
        factor = 1 if routed_input.amax().isfinite() else 0
        return super().forward(routed_input, num_tokens_per_expert, scores) * factor


class Counts(Swiglu):
    """Leaves something in the module."""

    seen = 0

    def act(self, gate):
        self.seen += 1
        return functional.silu(gate)


class CountsOutside(Swiglu):
    def act(self, gate):
        global calls
        calls += 1
        return functional.silu(gate)


class Other(Swiglu):
    """A parameter more."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(EXPERTS))


class Transposed(Swiglu):
    def __init__(self):
        super().__init__()
        self.w2 = torch.nn.Parameter(self.w2.detach().transpose(1, 2).contiguous())

    def expert(self, x, number):
        return (functional.silu(x @ self.w1[number].T) * (x @ self.w3[number].T)) @ self.w2[number]


class Many(Swiglu):
    """An expert that only a trial of all of them reaches."""

    def __init__(self):
        super().__init__()
        for name, each in list(self.named_parameters()):
            setattr(self, name, torch.nn.Parameter(each.detach().repeat(3, 1, 1)))

    def expert(self, x, number):
        return super().expert(x, number) * (2 if number == 13 else 1)


class InPlace(Swiglu):
    """Its backward is an error."""

    def act(self, gate):
        return gate.sigmoid().mul_(gate)


class Float32(Swiglu):
    def __init__(self):
        super().__init__(torch.float32)


# What differs from the program in one respect, and what the reason says.
DIFFERENT = (
    (Gelu, "Gelu computes something else than its replacement"),
    (Swapped, "computes something else"),
    (Clamped, "computes something else"),
    (Added, "computes something else"),
    (Rounds, "computes something else in torch.bfloat16"),
    (Detached, "another gradient of its input"),
    (DetachedRounded, "another gradient of its input"),
    (AddsToGradient, "another gradient of experts' w1"),
    (Biased, r"experts have bias \[16\], which is not a parameter"),
    (Hidden, r"experts have bias \[16\], which is not a parameter"),
    (DropsOut, "another result each time in training mode"),
    (Trains, "something else in training mode than in evaluation mode"),
    (Hooked, r"has hooks, parametrizations or its own forward \(Hooked\)"),
    (PartHooked, r"has hooks, parametrizations or its own forward \(gate_act\)"),
    (Scored, r"cannot be called with rows \[0, 16\] and counts alone: .*scores"),
    (Summed, "computes something else"),
    (MixesRows, "computes something else"),
    (LastIsOther, "computes something else"),
    (NeedsRows, r"cannot be called with rows \[0, 16\] and counts alone"),
    (Counts, "changes experts.seen when it is called"),
    (CountsOutside, "leaves something in .*calls"),
    (Other, r"has .*scale \[6\], expected w1 and w3 \[E, I, H\]"),
    (Transposed, r"w2 \[6, 24, 16\], expected w1 and w3"),
    (Many, "computes something else"),
    (Float32, "has weights of torch.float32 on cpu, expected torch.bfloat16"),
)


class GroupedExpertsTest(unittest.TestCase):
    def test_a_trial_finds_what_differs_in_one_respect(self):
        for kind, said in DIFFERENT:
            with self.subTest(kind.__name__):
                self.assertRegex(find_difference(kind()) or "no difference", said)
        self.assertRegex(find_difference(InPlace()), "InPlace cannot be tried: one of the variables needed for gradient computation")

    def test_a_trial_proves_the_function_however_it_is_spelled(self):
        for module in (Swiglu(), Spelled(), Swiglu(experts=1), Swiglu().eval(), Swiglu().requires_grad_(False)):
            with torch.no_grad():
                self.assertIsNone(find_difference(module))

    def test_a_trial_changes_nothing(self):
        for kind in (Swiglu, Counts, CountsOutside, DropsOut, Hooked):
            module, before = kind(), kind().state_dict()
            random, own = torch.get_rng_state(), {**vars(module)}
            find_difference(module)
            self.assertTrue(torch.equal(torch.get_rng_state(), random))
            self.assertEqual(({**vars(module)}, calls, torch.get_default_dtype()), (own, 0, torch.float32))
            self.assertTrue(all(torch.equal(module.state_dict()[name], each) for name, each in before.items()))
            self.assertTrue(all(each.grad is None and each.requires_grad for each in module.parameters()))

    def test_ranks(self):
        for size in (2, 4):
            core_jobs.run_ranks(self, "ranks", size)

    def test_look_alikes_keep_their_forward(self):
        core_jobs.run_ranks(self, "look_alikes", 2)


class Today(ExpertParallel):
    """A style whose modules all have their own forward."""

    def _token_dispatch(self, module, inputs, device_mesh):
        return super()._token_dispatch(module, inputs, device_mesh)


def divide(style, module, **groups):
    """The module, divided, and the list of calls of its own forward."""
    module, own = style.apply(module, Mesh(**groups)), []
    forward = module._parallel_forward
    module._parallel_forward = lambda *given: own.append(given) or forward(*given)
    return module, own


def by_rows(module, rows, counts, dy, *scores):
    """y and gradients of rows, w1, w2 and w3."""
    leaf = rows.clone().requires_grad_()
    y = module(leaf, counts, *scores)
    return [y.detach(), *torch.autograd.grad(y, [leaf, *(getattr(module, name) for name in ("w1", "w2", "w3"))], dy)]


def batch_of(source, counts=None):
    rows, counts, _, dy = batch(source, torch.bfloat16, counts)
    return rows, counts, dy


def expected(whole, batches, source, own=slice(None), part=slice(None)):
    """What the source gets, by the whole module in float32; gradients of weights are sums over all sources."""
    whole = copy.deepcopy(whole).float()
    every = [by_rows(whole, rows.float(), counts, dy.float()) for rows, counts, dy in batches]
    w1, w2, w3 = (sum(each[number] for each in every)[own] for number in (2, 3, 4))
    return [*every[source][:2], w1[:, part], w2[:, :, part], w3[:, part]]


def check(found, given):
    for number, (a, b) in enumerate(zip(found, given, strict=True)):
        assert a.dtype == torch.bfloat16 and a.shape == b.shape, (number, a.dtype, a.shape, b.shape)
        assert error(a, b) < BOUND or not b.norm(), (number, error(a, b))


def check_steps(rank, size):
    for module in (Swiglu(), Spelled()):
        whole = copy.deepcopy(module)
        module, own = divide(ExpertParallel(), module, ep=dist.group.WORLD)
        part = slice(experts_of(rank, size).start, experts_of(rank, size).stop)
        assert module.own_forward_reason is None and [name for name, _ in module.named_parameters()] == ["w1", "w2", "w3"]
        for counts in ([None] * size, [[0, 9, 0, 0, 1, 0]] * size, [[0] * EXPERTS, *[[5, 0, 40, 0, 3, 1]] * (size - 1)], [[0] * EXPERTS] * size):
            batches = [batch_of(source, each) for source, each in enumerate(counts)]
            check(by_rows(module, *batches[rank]), expected(whole, batches, rank, part))
            check(by_rows(module.eval(), *batches[rank], *[None] * isinstance(module, Spelled)), expected(whole, batches, rank, part))
        assert not own
    with torch.no_grad():
        rows, counts, _ = batch_of(rank, [70000, 0, 0, 1, 0, 0])  # more than the limit of a layer
        check([module(rows, counts)], [whole.float()(rows.float(), counts)])
    few = ExpertParallel().apply(Swiglu(experts=3), Mesh(ep=dist.group.WORLD))  # with four ranks one has none
    batches, part = [batch_of(source, [2, 0, 5]) for source in range(size)], sluice_torch.graphs.dealt(3, size, rank)
    check(by_rows(few, *batches[rank]), expected(Swiglu(experts=3), batches, rank, slice(part.start, part.stop)))


def check_shards(rank, size):
    module, own = divide(TensorParallel(), Swiglu(), tp=dist.group.WORLD)
    part, (rows, counts, dy) = slice(rank * INTER // size, (rank + 1) * INTER // size), batch_of(0)
    check(by_rows(module, rows, counts, dy), expected(Swiglu(), [(rows, counts, dy)], 0, part=part))
    assert module.own_forward_reason is None and not own
    y = module(torch.cat([rows, rows[:2]]), counts)  # the module takes rows of no expert
    check([y[: len(rows)]], expected(Swiglu(), [(rows, counts, dy)], 0)[:1])
    assert len(own) == 1 and not y[len(rows) :].any()
    if size == 4:
        ep = [dist.new_group(each) for each in ([0, 2], [1, 3])][rank % 2]
        tp = [dist.new_group(each) for each in ([0, 1], [2, 3])][rank // 2]
        module, own = divide(ExpertTensorParallel(), Swiglu(), ep=ep, tp=tp)
        experts, part = slice(rank // 2 * 3, rank // 2 * 3 + 3), slice(rank % 2 * 12, rank % 2 * 12 + 12)
        batches = [batch_of(0), batch_of(1)]
        check(by_rows(module, *batches[rank // 2]), expected(Swiglu(), batches, rank // 2, experts, part))
        assert module.own_forward_reason is None and not own


def check_training(rank, size):
    """Three steps of SGD, as the whole module takes them; then its state."""
    whole, part = Swiglu(), slice(experts_of(rank, size).start, experts_of(rank, size).stop)
    module, own = divide(ExpertParallel(), Swiglu(), ep=dist.group.WORLD)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.02, momentum=0.9) for each in (module, whole)]
    for number in range(3):
        batches = [batch_of(10 * number + source) for source in range(size)]
        for each, own_batches in ((module, [batches[rank]]), (whole, batches)):
            each.zero_grad()
            for rows, counts, dy in own_batches:
                each(rows, counts).backward(dy)
        for optimizer in optimizers:
            optimizer.step()
    for name, before in Swiglu().named_parameters():
        moved, other = (getattr(each, name).detach().float() for each in (module, whole))
        assert error(moved - before[part].float(), other[part] - before[part].float()) < 5e-2 and not torch.equal(moved, before[part].float()), name
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    assert file.tell() < sum(each.numel() * 2 for each in module.parameters()) + 4096
    file.seek(0)
    loaded = ExpertParallel().apply(Swiglu(), Mesh(ep=dist.group.WORLD))
    loaded.load_state_dict(torch.load(file))
    assert torch.equal(loaded(*batches[rank][:2]), module(*batches[rank][:2])) and not own


def check_changes(rank, size):
    """Changes of a divided module take effect in its next step; those of its function by its own forward."""
    whole, (rows, counts, _) = Swiglu(), batch_of(rank)
    part, group = slice(experts_of(rank, size).start, experts_of(rank, size).stop), dist.group.WORLD

    def check_y(module):
        with torch.no_grad():
            check([module(rows, counts)], [copy.deepcopy(whole).float()(rows.float(), counts)])

    module, own = divide(ExpertParallel(), Swiglu(), ep=group)
    module.requires_grad_(False)
    check_y(module)
    copied = copy.deepcopy(module)
    for each in (module.w1, whole.w1):
        each.data.mul_(-2)
    check_y(module)
    whole.w3.data = torch.flip(whole.w3.data, [1])
    module.w3.data = whole.w3.data[part]
    check_y(module)
    whole.w2 = torch.nn.Parameter(whole.w2.detach() * 3)
    module.w2 = torch.nn.Parameter(whole.w2.detach()[part].clone(), requires_grad=False)
    check_y(module)
    assert not own
    whole = Swiglu()
    check_y(copied)
    module.load_state_dict(copied.state_dict())
    with sluice_torch.fp8_autocast():
        check_y(module)
    assert not own and not hasattr(module.w1, "allreduce")  # a mark of the layers of sluice_torch
    module.act, whole = functional.gelu, Gelu()
    check_y(module)
    assert len(own) == 1
    hooked, own = divide(ExpertParallel(), Spelled(), ep=group)
    hooked.gate_act.register_forward_hook(lambda module, given, y: y * 2)
    whole = PartHooked()
    check_y(hooked)
    assert len(own) == 1


def check_calls(rank, size):
    """Calls that the trial does not know go to the module's own forward, and so do other types."""
    module, own = divide(ExpertParallel(), Swiglu(), ep=dist.group.WORLD)
    (rows, counts, _), whole = batch_of(rank), Swiglu()
    scores = torch.rand(len(rows), 1).bfloat16()
    check([module(rows, counts, scores)], [whole(rows, counts, scores)])
    check([module(rows, num_tokens_per_expert=counts)], [whole(rows, counts)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check([module(rows, counts)], [whole(rows, counts)])
    assert error(module(rows.float(), counts), whole.float()(rows.float(), counts)) < 1e-5
    module.float()
    assert error(module(rows.float(), counts), whole(rows.float(), counts)) < 1e-5 and len(own) == 5
    module.bfloat16()
    try:
        module(rows, counts + (rank == 0))
        raise AssertionError("counts that do not fit are accepted")
    except (ValueError, RuntimeError) as refused:
        assert "counts sum to" in str(refused) and (rank == 0) == isinstance(refused, ValueError), refused
    check([module(rows, counts)], [whole(rows.float(), counts)])
    assert len(own) == 5


def check_agreement(rank, size):
    """All ranks have their own forward if one has another module."""
    module, own = divide(ExpertParallel(), Gelu() if rank == 1 else Swiglu(), ep=dist.group.WORLD)
    said = "Gelu computes something else than its replacement"
    assert module.own_forward_reason == (said if rank == 1 else f"rank 1: {said}"), module.own_forward_reason
    module(*batch_of(rank)[:2])
    assert len(own) == 1
    assert Today().apply(Swiglu(), Mesh(ep=dist.group.WORLD)).own_forward_reason == "Today has its own _token_dispatch"
    module = ExpertParallel().apply(Swiglu(), Mesh(ep=dist.group.WORLD))
    if rank == 1:
        module.act = functional.gelu  # at one rank, which is an error and no hang
    try:
        module(*batch_of(rank)[:2])
        raise AssertionError("ranks with other programs are accepted")
    except RuntimeError as refused:
        assert "rank 1 is about to dispatch tokens, but rank 0 runs entry 'forward'" in str(refused), refused


def look_alikes(rank, size):
    for kind, _ in DIFFERENT:
        modules = [divide(style, kind(), ep=dist.group.WORLD) for style in (ExpertParallel(), Today())]
        rows, counts, dy = batch_of(rank, [3] * len(kind().w1))
        rows, dy = (rows.float(), dy.float()) if kind is Float32 else (rows, dy)
        scores = [torch.ones(len(rows), 1).bfloat16()] if kind is Scored else []
        found = []
        for module, own in modules:
            torch.manual_seed(rank)
            found.append(by_rows(module, rows, counts, dy, *scores))
            assert module.own_forward_reason and len(own) == 1, kind
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True)), kind
        if kind in (Gelu, Swapped, Clamped, Biased, Other):
            check(found[0], expected(kind(), [batch_of(source, [3] * EXPERTS) for source in range(size)], rank, slice(3 * rank, 3 * rank + 3)))


def ranks(rank, size):
    for each in (check_steps, check_shards, check_training, check_changes, check_calls, check_agreement):
        each(rank, size)


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()

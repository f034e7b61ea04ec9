"""sluice_torch.te: column- and row-parallel linear layers of 1 to 4 ranks against whole linear layers in float32."""

import contextlib
import copy
import inspect
import itertools
import sys
import types
import unittest

import core_jobs
import megatron_classes
import page_tables
import torch
import torch.distributed as dist
from moe_eager import BOUND, error
from sluice_torch.te import TEColumnParallelLinear, TERowParallelLinear

INS, OUTS, MIDDLE = 36, 48, 3
OPTIONS = {"threads": 1, "timeout": 20}
MORE = ["tp_group", "name", "pg_collection"]  # arguments of Megatron's that are in the layers' **options


def config_of(sequence_parallel=True, **more):
    return types.SimpleNamespace(sequence_parallel=sequence_parallel, **more)


def group():
    return dist.group.WORLD if dist.is_initialized() else None


def make(column, *, sequence_parallel=True, dtype=torch.bfloat16, fused=False, **options):
    config = config_of(sequence_parallel, params_dtype=dtype, gradient_accumulation_fusion=fused)
    layer = (TEColumnParallelLinear if column else TERowParallelLinear)(
        INS, OUTS, config=config, tp_group=group(), **OPTIONS, **options
    )
    with torch.no_grad():
        weight, bias = whole_parameters()
        rank, tp = layer._group.rank, layer.shape.tp
        if layer.weight is not None:
            layer.weight.copy_(weight.chunk(tp, 0 if column else 1)[rank])
        if layer.bias is not None:
            layer.bias.copy_(bias.chunk(tp)[rank] if column else bias)
    return layer


def whole_parameters():
    made = torch.Generator().manual_seed(3)
    return tuple((0.2 * torch.randn(shape, generator=made)).bfloat16().float() for shape in ((OUTS, INS), (OUTS,)))


def data(lengths, seed):
    """x and dy of all tokens, in which rank r has lengths[r] of the first dimension."""
    made = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(sum(lengths), MIDDLE, size, generator=made).bfloat16() for size in (INS, OUTS))


def check_close(found, expected, name):
    assert found.shape == expected.shape, (name, found.shape, expected.shape)
    assert error(found.float(), expected.float()) < BOUND, (name, error(found.float(), expected.float()))


class Expected:
    """The whole layer in float32: y, dx and gradients."""

    def __init__(self, x, dy, bias):
        weight, all_bias = (each.requires_grad_() for each in whole_parameters())
        x = x.float().requires_grad_()
        self.y = torch.nn.functional.linear(x, weight, all_bias if bias else None)
        self.dx, self.weight = torch.autograd.grad(self.y, [x, weight], dy.float())
        self.y = self.y.detach()


def check_step(layer, column, rank, lengths, seed, bias):
    """One step of this rank, which has lengths[rank] of the sequence where it is shared."""
    tp, own = layer.shape.tp, layer.shape.tokens == "own"
    if not own:
        lengths = [max(lengths)]
    elif not column:  # rows are shared evenly
        lengths = [sum(lengths) // tp + (r < sum(lengths) % tp) for r in range(tp)]
    x, dy = data(lengths, seed)
    want = Expected(x, dy, bias)
    first = sum(lengths[:rank]) if own else 0
    part = slice(first, first + lengths[rank if own else 0])

    def columns(tensor):
        return tensor.chunk(tp, -1)[rank]

    given = (x[part] if column else columns(x)).clone().requires_grad_()
    dy_here = columns(dy) if column else dy[part]
    y, returned = layer(given)
    assert (returned is layer.bias) == layer.skip_bias_add or layer.bias is None
    check_close(y, columns(want.y) if column else want.y[part], "y")
    y.backward(dy_here)
    check_close(given.grad, want.dx[part] if column else columns(want.dx), "dx")
    check_close(layer.weight.grad, want.weight.chunk(tp, 0 if column else 1)[rank], "weight")
    assert layer.weight.grad.dtype == layer.weight.dtype
    if bias:
        check_close(layer.bias.grad, dy_here.float().sum((0, 1)), "bias")
    layer.zero_grad()


def steps(rank, size):
    for column, sequence_parallel in itertools.product((True, False), (True, False)):
        for number, options in enumerate(
            ({}, {"bias": False}, {"skip_bias_add": True}, {"keep": "regather"}, {"dtype": torch.float32})
        ):
            layer = make(column, sequence_parallel=sequence_parallel, **options)
            bias = options.get("bias", True) and not options.get("skip_bias_add", False)
            check_step(layer, column, rank, [0] * size, 9, bias)
            for seed in range(3):
                lengths = [(5, 0, 7, 2)[(seed + number + r) % 4] for r in range(size)]
                check_step(layer, column, rank, lengths, seed, bias)


def same_bits(rank, size):
    """Without sequence parallelism all ranks get the same y and dx, bit for bit, with and without gradients."""
    layer = make(False, sequence_parallel=False)
    x = data([6], 1)[0].chunk(size, -1)[rank]
    with torch.no_grad():
        y = layer(x)[0]
    found = [None] * size
    dist.all_gather_object(found, y)
    assert all(torch.equal(y, each) for each in found) and torch.equal(layer(x.clone().requires_grad_())[0], y)


def main_grads(rank, size):
    for column in (True, False):
        layer = make(column, fused=True)
        x, dy = data([4] * size, 2)
        plain = make(column)
        here, dy_here = (x[4 * rank :][:4], dy.chunk(size, -1)[rank]) if column else (x.chunk(size, -1)[rank], dy[4 * rank :][:4])
        plain(here)[0].backward(dy_here)
        layer.weight.main_grad = torch.ones_like(layer.weight, dtype=torch.float32)
        layer.weight.grad_added_to_main_grad = False
        for step in range(2):
            layer(here)[0].backward(dy_here)
            check_close(layer.weight.main_grad, 1 + (step + 1) * plain.weight.grad.float(), "main_grad")
        assert layer.weight.grad_added_to_main_grad and layer.weight.grad is not None  # a placeholder
        check_close(layer.bias.grad, 2 * plain.bias.grad, "bias")
        layer.weight.grad, layer.weight.zero_out_wgrad = None, True
        layer(here)[0].backward(dy_here)
        assert not layer.weight.grad.any()
        del layer.weight.grad_added_to_main_grad
        layer.weight.grad = None
        layer(here)[0].backward(dy_here)
        assert layer.weight.grad is None
        check_close(layer.weight.main_grad, 1 + 4 * plain.weight.grad.float(), "main_grad")


def refusals(rank, size):
    """What one rank refuses fails the step at all, and the next step is right."""
    layer = make(True)
    x = data([4] * size, 3)[0][4 * rank :][:4]
    y = layer(x)[0]
    bare = make(True, skip_weight_param_allocation=True)
    bare(x, layer.weight)
    wrong = (
        (layer, x[..., :-1], None, f"x has shape [4, {MIDDLE}, {INS - 1}], expected [s, ..., {INS}]"),
        (layer, x.double(), None, "x is torch.float64, expected torch.bfloat16 or torch.float32"),
        (bare, x, None, "weight is not given, and the layer has none"),
        (bare, x, layer.weight[:-1], f"weight has shape [{OUTS // size - 1}, {INS}], expected [{OUTS // size}, {INS}]"),
        (bare, x, layer.weight.double(), "weight is torch.float64, expected torch.bfloat16 or torch.float32"),
        (layer, x[:, :0], None, f"x has shape [4, 0, {INS}], expected only its first dimension to be 0"),
    )
    for of, bad, weight, message in wrong:
        good = layer.weight if of is bare else None
        try:
            of(bad, weight) if rank == size - 1 else of(x, good)
            raise AssertionError(f"not refused: {message}")
        except (ValueError, RuntimeError) as refused:
            assert message in str(refused), str(refused)
            assert rank == size - 1 or f"rank {size - 1}: " in str(refused), str(refused)
        assert torch.equal(of(x, good)[0], y)
    row = make(False)
    columns = data([4] * size, 3)[0].chunk(size, -1)[rank]
    y = row(columns)[0]
    narrow = columns[..., :-1] if rank == 0 else columns
    for of, given, message in (
        (layer, x[:, : 2 + (rank == 0)], "2 as the number that all ranks must have alike, but rank 0 with 3"),
        (row, narrow, f"x has shape [{4 * size}, {MIDDLE}, {INS // size - 1}], expected [s, ..., {INS // size}]"),
        (row, columns[: 3 + rank], "tensor 'x' has"),
    ):
        try:
            of(given)
            raise AssertionError(f"not refused: {message}")
        except (ValueError, RuntimeError) as refused:
            assert message in str(refused), str(refused)
        assert torch.equal(row(columns)[0], y)
    fused = make(True, fused=True)
    fused.weight.main_grad = torch.zeros(fused.weight.shape, dtype=torch.bfloat16 if rank == 0 else torch.float32)
    try:
        fused(x.clone().requires_grad_())
        raise AssertionError("not refused: main_grad")
    except (ValueError, RuntimeError) as refused:
        assert "main_grad of weight is torch.bfloat16, expected torch.float32" in str(refused), str(refused)
    fused.weight.main_grad = torch.zeros_like(fused.weight, dtype=torch.float32)
    assert torch.equal(fused(x)[0], make(True)(x)[0])


def failing_initial(rank, size):
    """An error of init_method is raised at the rank that has it; the others make their layers, because nothing is sent."""

    def init_method(weight):
        if rank == 0:
            raise ArithmeticError("no numbers today")

    try:
        TERowParallelLinear(INS, OUTS, config=config_of(), tp_group=group(), init_method=init_method, **OPTIONS)
        assert rank > 0
    except ArithmeticError:
        assert rank == 0


def strides(rank, size):
    """A rank has its share of each of two parts, such as gate and up; a step multiplies by these."""
    whole = whole_parameters()[0]

    def init_method(weight):
        weight.copy_(whole)

    for is_expert, column in itertools.product((False, True), (True, False)):
        kind = TEColumnParallelLinear if column else TERowParallelLinear
        config = config_of(expert_model_parallel_size=2)
        options = {"config": config, "tp_group": group(), "is_expert": is_expert, "bias": False, "init_method": init_method}
        made = kind(INS, OUTS, stride=2, **options, **OPTIONS)
        dimension = 0 if column else 1
        own = torch.cat([each.chunk(size, dimension)[rank] for each in whole.chunk(2, dimension)], dimension)
        assert torch.equal(made.weight.float(), own)
        marks = (made.weight.tensor_model_parallel, made.weight.partition_dim, made.weight.partition_stride, made.weight.allreduce)
        assert marks == (True, dimension, 2, not is_expert), marks
        ranges = made.sharded_state_dict("layer.", ((0, 2, 5),))["layer.weight"]
        assert isinstance(ranges, tuple) and len(ranges) == 2
        again = torch.zeros(5, OUTS, INS)
        for each in ranges:
            assert each.global_shape == (5, OUTS, INS) and each.replica == 0
            layer, first_out, first_in = each.global_offset
            again[layer, first_out : first_out + each.data.shape[0], first_in : first_in + each.data.shape[1]] = each.data
        every = [torch.zeros_like(again) for _ in range(size)]
        dist.all_gather(every, again)
        assert torch.equal(sum(every)[2], whole)
        x = data([4], 1)[0]
        if is_expert:  # a rank alone, with its own rows
            if rank == 0:
                given = x if column else x[..., : INS // size].contiguous()
                leaf = given.clone().requires_grad_()
                y = made(leaf)[0]
                check_close(y, torch.nn.functional.linear(given.float(), own), "expert")
                y.sum().backward()
                check_close(leaf.grad, own.sum(0).expand(leaf.shape), "dx of expert")


def described_for_megatron(rank, size):
    with megatron_classes.installed():
        for column, stride in itertools.product((True, False), (1, 2)):
            kind = TEColumnParallelLinear if column else TERowParallelLinear
            made = kind(INS, OUTS, config=config_of(), tp_group=group(), stride=stride, **OPTIONS)
            shards = made.sharded_state_dict("a.", ((0, 1, 3),), {"dp_cp_group": group()})
            weight, bias = shards["a.weight"], shards["a.bias"]
            assert type(weight) is megatron_classes.ShardedTensor and weight.data is made.weight and weight.key == "a.weight"
            assert weight.prepended == 1 and weight.replica_id == (0, 0, rank)
            assert weight.rank_offsets == ((0, 1, 3), (1 if column else 2, rank, size))
            assert bias.rank_offsets == (((0, 1, 3), (1, rank, size)) if column else ((0, 1, 3),))
            assert bias.replica_id == ((0, 0, rank) if column else (0, rank, rank))
            assert made.sharded_state_dict()["bias"].replica_id[2] == 0


def initial(rank, size):
    """Parts of one whole weight, attributes, and shards for checkpoints."""
    for column, layer in ((True, TEColumnParallelLinear), (False, TERowParallelLinear)):
        torch.manual_seed(rank)
        made = layer(
            INS, OUTS, config=config_of(), tp_group=group(), keep_master_weight_for_test=True,
            init_method=torch.nn.init.normal_, **OPTIONS,
        )  # fmt: skip
        dimension = 0 if column else 1
        assert torch.equal(made.weight, made.master_weight.chunk(size, dimension)[rank])
        weight, bias = made.weight, made.bias
        assert (weight.tensor_model_parallel, weight.partition_dim, weight.partition_stride) == (True, dimension, 1)
        assert weight.allreduce and bias.allreduce and (column or bias.sequence_parallel)
        made.backward_dw()
        shards = made.sharded_state_dict("layer.", ((0, 2, 5),))
        described = shards["layer.weight"]
        part = [OUTS, INS][dimension] // size * rank
        assert described.global_shape == (5, OUTS, INS), described.global_shape
        assert described.global_offset == ((2, part, 0) if column else (2, 0, part))
        assert described.data.data_ptr() == weight.data_ptr()
        assert shards["layer.bias"].replica == (0 if column else rank)
        again = copy.deepcopy(made)
        state = made.state_dict()
        assert "_extra_state" in state
        del state["_extra_state"]  # what others save may lack it
        again.load_state_dict(state)
        x = data([4] * size, 1)[0].bfloat16()
        x = x[4 * rank :][:4] if column else x.chunk(size, -1)[rank]
        assert torch.equal(again(x)[0], made(x)[0])


class Megatron:
    """megatron.core.parallel_state with these groups: within it, it can be imported. It asserts that it has them, as the original."""

    def __init__(self, tp=None, expert=None):
        state = types.ModuleType("megatron.core.parallel_state")
        state.get_tensor_model_parallel_group = lambda: self.there(tp)
        state.get_expert_tensor_parallel_group = lambda: self.there(expert)
        self.modules = {"megatron": types.ModuleType("megatron"), "megatron.core": types.ModuleType("megatron.core")}
        self.modules["megatron.core"].parallel_state = self.modules["megatron.core.parallel_state"] = state

    def there(self, group):
        assert group is not None, "tensor model parallel group is not initialized"
        return group

    def __enter__(self):
        sys.modules.update(self.modules)

    def __exit__(self, *_):
        for name in self.modules:
            del sys.modules[name]


def groups(rank, size):
    """Wherever the group of a layer stands, its ranks share the layer; one that stands nowhere is an error."""
    everyone, alone = dist.group.WORLD, [dist.new_group([each]) for each in range(size)][rank]
    collection = lambda **groups: types.SimpleNamespace(**groups)
    nothing, no_group = contextlib.nullcontext(), "but there is no group of these ranks: expected tp_group"
    shared, whole = (True, None), (False, None)
    rows = (
        # arguments, Megatron, its tensor_model_parallel_size, (shared, message)
        ({"tp_group": everyone}, nothing, 2, shared),
        ({"tp_group": everyone}, Megatron(alone), 2, shared),
        ({"tp_group": alone}, Megatron(everyone), 1, whole),
        ({"tp_group": alone, "pg_collection": collection(tp=everyone)}, nothing, 1, whole),
        ({"tp_group": None, "pg_collection": collection(tp=everyone)}, nothing, 2, shared),
        ({"pg_collection": collection(tp=everyone)}, nothing, None, shared),
        ({"pg_collection": collection(tp=everyone)}, Megatron(alone), 2, shared),
        ({"pg_collection": collection(tp=alone)}, Megatron(everyone), 1, whole),
        ({"pg_collection": collection(expt_tp=alone)}, Megatron(everyone), 2, shared),
        ({"pg_collection": None}, Megatron(everyone), 2, shared),
        ({"name": "qkv"}, Megatron(everyone), None, shared),
        ({}, Megatron(everyone), 2, shared),
        ({}, Megatron(alone), 1, whole),
        ({}, Megatron(), 1, whole),
        ({}, nothing, 1, whole),
        ({}, nothing, None, whole),
        ({}, nothing, 2, (None, no_group)),
        ({"tp_group": None}, Megatron(), 2, (None, no_group)),
        ({"pg_collection": collection()}, nothing, 4, (None, no_group)),
        ({"is_expert": True}, Megatron(everyone, alone), 2, whole),
        ({"is_expert": True, "pg_collection": collection(tp=everyone, expt_tp=alone)}, nothing, 2, whole),
        ({"is_expert": True}, Megatron(alone, everyone), 1, shared),
        ({"is_expert": True, "pg_collection": collection(expt_tp=everyone)}, nothing, 1, shared),
        ({"is_expert": True, "tp_group": everyone}, Megatron(alone, alone), 1, shared),
    )
    for (arguments, megatron, tp, (is_shared, message)), column in itertools.product(rows, (True, False)):
        kind = TEColumnParallelLinear if column else TERowParallelLinear
        config = config_of(False, **({} if tp is None else {"tensor_model_parallel_size": tp}))
        try:
            with megatron:
                layer = kind(INS, OUTS, config=config, bias=False, **arguments, **OPTIONS)
        except ValueError as error:
            assert message is not None and message in str(error), (arguments, error)
            continue
        parts, is_expert = size if is_shared else 1, arguments.get("is_expert", False)
        assert message is None and layer._parts == parts, (arguments, tp, layer)
        assert layer.shape.tp == (1 if is_expert else parts), (arguments, tp, layer)
        weight, part = whole_parameters()[0], rank if is_shared else 0
        own = weight.chunk(parts, 0 if column else 1)[part]
        with torch.no_grad():
            layer.weight.copy_(own)
        x = data([6], 1)[0]
        given = x if column else x.chunk(parts, -1)[part]
        expected = torch.nn.functional.linear(x.float(), weight)
        if column:
            expected = expected.chunk(parts, -1)[part]
        elif is_expert:  # this rank's term
            expected = torch.nn.functional.linear(given.float(), own)
        check_close(layer(given)[0], expected, (arguments, tp))
    config = config_of(expert_tensor_parallel_size=2)
    with unittest.TestCase().assertRaisesRegex(ValueError, "config.expert_tensor_parallel_size is 2, but there is no group"):
        TEColumnParallelLinear(INS, OUTS, config=config, is_expert=True)
    with unittest.TestCase().assertRaisesRegex(ValueError, "bias is True, expected skip_bias_add with it"):
        TERowParallelLinear(INS, OUTS, config=config, is_expert=True, tp_group=everyone)


FUNCTIONS = {
    each.__name__: each
    for each in (steps, same_bits, main_grads, refusals, failing_initial, initial, strides, described_for_megatron, groups)
}


class Ranks(unittest.TestCase):
    def test_layers_compute_what_a_whole_layer_computes(self):
        for size in (2, 3, 4):
            with self.subTest(ranks=size):
                core_jobs.run_ranks(self, "steps", size)

    def test_without_sequence_parallelism_all_ranks_get_the_same_bits(self):
        core_jobs.run_ranks(self, "same_bits", 3)

    def test_gradients_are_added_to_main_grad(self):
        core_jobs.run_ranks(self, "main_grads", 2)

    def test_what_one_rank_refuses_fails_the_step_at_all(self):
        core_jobs.run_ranks(self, "refusals", 2)

    def test_the_ranks_of_a_layer_are_found_where_megatron_has_them(self):
        core_jobs.run_ranks(self, "groups", 2)

    def test_parameters_are_parts_of_one_weight(self):
        core_jobs.run_ranks(self, "initial", 2)
        core_jobs.run_ranks(self, "failing_initial", 2)

    def test_a_rank_has_a_share_of_each_of_two_parts(self):
        core_jobs.run_ranks(self, "strides", 2)

    def test_parts_are_described_as_megatron_does_where_it_is_there(self):
        core_jobs.run_ranks(self, "described_for_megatron", 2)


class OneRank(unittest.TestCase):
    def test_one_rank_has_the_whole_layer(self):
        for column in (True, False):
            for options in ({}, {"keep": "regather"}, {"sequence_parallel": False}):
                check_step(make(column, **options), column, 0, [9], 4, True)

    def test_rows_of_two_dimensions(self):
        layer = make(True)
        x = data([4], 1)[0][:, 0]
        self.assertEqual(layer(x)[0].shape, (4, OUTS))
        self.assertEqual(layer(x[:0])[0].shape, (0, OUTS))

    def test_what_is_not_supported_is_refused_when_the_layer_is_made(self):
        for make_layer, message in (
            (lambda: TEColumnParallelLinear(INS, OUTS, gather_output=True), "gather_output is True, expected False"),
            (lambda: TERowParallelLinear(INS, OUTS, input_is_parallel=False), "input_is_parallel is False, expected True"),
            (lambda: TERowParallelLinear(INS, OUTS, stride=5), "input_size is 36, expected a multiple of the 1 ranks of tp_group times the stride, 5"),
            (lambda: TEColumnParallelLinear(INS, OUTS, stride=0), "stride is 0, expected a whole number from 1 on"),
            (lambda: TEColumnParallelLinear(INS, OUTS, keep="some"), "keep is 'some', expected 'all', 'minimal' or 'regather'"),
            (
                lambda: TEColumnParallelLinear(INS, OUTS, config=config_of(params_dtype=torch.float16)),
                "params_dtype is torch.float16, expected torch.bfloat16 or torch.float32",
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                make_layer()
        with self.assertRaisesRegex(TypeError, "no argument 'tp'"):
            TEColumnParallelLinear(INS, OUTS, tp=2)

    def test_the_table_of_the_docs_has_every_argument(self):
        for kind in (TEColumnParallelLinear, TERowParallelLinear):
            arguments = list(inspect.signature(kind).parameters)
            self.assertEqual(page_tables.told("te")[kind.__name__][0], [each for each in arguments if each != "options"] + MORE)
            for each in MORE:
                kind(INS, OUTS, **{each: None})
            kind(INS, OUTS, tp_comm_buffer_name="qkv", name="qkv")

    def test_names_before_say_what_to_call(self):
        from sluice_torch import te

        with self.assertRaisesRegex(AttributeError, "te.RowParallelLinear is now sluice_torch.te.TERowParallelLinear"):
            te.RowParallelLinear

    def test_a_weight_that_no_backward_reads_may_change(self):
        layer = make(True)
        y = layer(data([2], 1)[0])[0]
        with torch.no_grad():
            layer.weight.add_(1)
        y.sum().backward()
        self.assertIsNotNone(layer.weight.grad)

    def test_gradients_have_the_precision_of_each_parameter(self):
        layer = make(True, dtype=torch.float32)
        x, dy = data([50], 1)
        layer(x, layer.weight.detach().bfloat16())[0].backward(dy)
        exact = dy.double().sum((0, 1))
        self.assertLess((layer.bias.grad.double() - exact).norm() / exact.norm(), 1e-5)

    def test_offsets_of_other_axes_are_refused(self):
        with self.assertRaisesRegex(ValueError, r"sharded_offsets have axes \[1\], expected \[0\]"):
            make(True).sharded_state_dict("", ((1, 0, 2),))

    def test_a_model_without_second_derivative_says_so(self):
        layer = make(True)
        x = data([2], 1)[0].requires_grad_()
        y = layer(x)[0]
        with self.assertRaisesRegex(RuntimeError, "no second derivative"):
            torch.autograd.grad(y.sum(), x, create_graph=True)


if __name__ == "__main__" and not core_jobs.main(FUNCTIONS):
    unittest.main()

"""hyper_parallel's calling code, as its callers write it: styles against the whole module, and graphs by the totals that are known."""

import copy
import inspect
import os
import pathlib
import subprocess
import tempfile
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from page_tables import told
from sluice_torch import hyper_parallel
from sluice_torch.hyper_parallel import (
    AllToAllFillConfig,
    AllToAllType,
    BaseExpertParallel,
    ComputeGraph,
    ExpertParallel,
    ExpertTensorParallel,
    GmmFillConfig,
    OperatorNode,
    OpType,
    SplitSpec,
    SwiGLUFillConfig,
    TaskSplitValue,
    TensorParallel,
    TensorSpec,
    _generate_permute_indices,
    _permute,
    _unpermute,
    get_platform,
    init_task_split_value,
)
from write_safetensors import write as write_safetensors

EXPERTS, HIDDEN, INTER = 6, 16, 24


class Experts(torch.nn.Module):
    """Whatever a module computes: here an activation that no layer of sluice_torch has."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        made = torch.Generator().manual_seed(3)
        for name, sizes in {"w1": (INTER, HIDDEN), "w2": (HIDDEN, INTER), "w3": (INTER, HIDDEN)}.items():
            weight = torch.randn(EXPERTS, *sizes, generator=made) * sizes[1] ** -0.5
            setattr(self, name, torch.nn.Parameter(weight.to(dtype)))

    def forward(self, routed_input, num_tokens_per_expert, scores=None):
        made = []
        for expert, rows in enumerate(routed_input.split(num_tokens_per_expert.tolist())):
            made.append((torch.sin(rows @ self.w1[expert].T) * (rows @ self.w3[expert].T)) @ self.w2[expert].T)
        y = torch.cat(made)
        return y if scores is None else y * scores


class Failing(Experts):
    def forward(self, routed_input, num_tokens_per_expert, scores=None):
        raise KeyError("no result")


class Mesh:
    """A DeviceMesh, which PyTorch has from 2.2 on: names of dimensions, and their process groups."""

    def __init__(self, **groups):
        self.mesh_dim_names, self._groups, self.ndim = tuple(groups), groups, len(groups)

    def get_group(self, dim=None):
        return self._groups[self.mesh_dim_names[dim or 0] if dim is None or isinstance(dim, int) else dim]

    def size(self, dim=None):
        return dist.get_world_size(self.get_group(dim))

    def get_local_rank(self, dim=None):
        return dist.get_rank(self.get_group(dim))

    def __getitem__(self, names):
        names = (names,) if isinstance(names, str) else names
        return Mesh(**{name: self._groups[name] for name in names})


def batch(rank, dtype=torch.float32, counts=None):
    made = torch.Generator().manual_seed(50 + rank)
    counts = torch.randint(0, 6, (EXPERTS,), generator=made) if counts is None else torch.tensor(counts)
    rows = torch.randn(int(counts.sum()), HIDDEN, generator=made).to(dtype)
    return rows, counts, torch.rand(len(rows), 1, generator=made).to(dtype), torch.randn(rows.shape, generator=made).to(dtype)


def step(module, rows, counts, scores, dy):
    """y and gradients of rows, scores and parameters."""
    leaves = [each.clone().requires_grad_() for each in (rows, scores)]
    y = module(leaves[0], counts, leaves[1])
    return [y.detach(), *torch.autograd.grad(y, [*leaves, *module.parameters()], dy)]


def check(found, expected, bound=2e-5):
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        error = (a.float() - b.float()).norm() / b.float().norm().clamp(min=1e-20)
        assert error < bound or not b.numel(), (number, error, a.shape)


def tensors(tsv, hidden=7168, inter=2048):
    """The tensors of a builder's backward graph, by name: [rows, columns] by default."""
    rows, experts, local = tsv.per_rank_seq, tsv.all_expert_num, tsv.single_rank_expert_num
    wide = {"target": hidden, "src": hidden, "down_x": inter, "act_grad": inter, "gate_up": 2 * inter, "gate_up_grad": 2 * inter,
            "rows_dx": hidden, "dx": hidden, "up_x": hidden}
    made = {name: TensorSpec(name, [rows, size], param_position=n, is_dynamic=True) for n, (name, size) in enumerate(wide.items())}
    for name, sizes in {"down_grad": (inter, hidden), "down": (inter, hidden), "gate_up_weight": (hidden, 2 * inter), "gate_up_weight_grad": (hidden, 2 * inter)}.items():
        made[name] = TensorSpec(name, [local, *sizes], len(made), tensor_type=1, transpose=not name.endswith("grad"))
    for name, count, size in (("offset", experts, 8), ("src_offset", experts, 8), ("sizes", experts, 4), ("glist", local, 8)):
        made[name] = TensorSpec(name, [count], len(made), dtype_size=size)
    return made


def backward_graph(tsv, cores=24, **sizes):
    """Seven nodes and six edges, as a caller builds them."""
    t = tensors(tsv, **sizes)

    def node(name, kind, inputs, output, value, split, count, config):
        inputs = [t[each] for each in inputs]
        spec = SplitSpec(split_inputs=split, split_output_dims=[0], task_num_fn=count)
        return OperatorNode(name=name, op_type=kind, inputs=inputs, outputs=[t[output]], param_positions=[each.param_position for each in (*inputs, t[output])],
                            split_value=value, split_spec=spec, tiling_position=-1, fill_config=config)

    def exchanges(tsv):
        return tsv.all_expert_num * (tsv.per_expert_seq_to_other // 128)

    def products(tsv):
        return cores * tsv.single_rank_expert_num

    dispatch = node("dispatch", OpType.ALLTOALL, ["offset", "src", "src_offset", "sizes"], "target", 128, None, exchanges,
                    AllToAllFillConfig(moe_type=AllToAllType.DISPATCH, advance="vector", event_group=tsv.all_expert_num))
    act_grad = node("act_grad", OpType.GMM, ["target", "down", "glist"], "act_grad", 4096, [(0, 0)], products,
                    GmmFillConfig(offset_inputs={0}, rank_in_event=True, num_cube_cores=cores))
    down = node("w2_grad", OpType.GMM, ["down_x", "target", "glist"], "down_grad", 4096, [(1, 0)], products,
                GmmFillConfig(offset_inputs={0, 1}, global_trigger=True, out_offset=False))
    swiglu = node("swiglu_grad", OpType.SWIGLU_GRAD, ["act_grad", "gate_up"], "gate_up_grad", 128, [(0, 0)],
                  lambda tsv: tsv.per_expert_seq // 128 * tsv.single_rank_expert_num, SwiGLUFillConfig())
    gate = node("gate_grad", OpType.GMM, ["gate_up_grad", "gate_up_weight", "glist"], "rows_dx", 4096, [(0, 0)], products, GmmFillConfig())
    combine = node("combine", OpType.ALLTOALL, ["offset", "rows_dx", "src_offset", "sizes"], "dx", 128, [(1, 0)], exchanges,
                   AllToAllFillConfig(moe_type=AllToAllType.COMBINE, advance="vector_only"))
    up = node("w1_grad", OpType.GMM, ["up_x", "gate_up_grad", "glist"], "gate_up_weight_grad", 4096, [(1, 0)], products,
              GmmFillConfig(offset_inputs={0, 1}, global_trigger=True, out_offset=False, event_delta=1))
    graph = ComputeGraph()
    for each in (dispatch, act_grad, down, swiglu, gate, combine, up):
        graph.add_op(each)
    graph.add_edge(dispatch, act_grad).add_edge("dispatch", down).add_edge(act_grad, "swiglu_grad").add_edge(swiglu, gate)
    return graph.add_edge(gate, combine).add_edge("gate_grad", "w1_grad")


class HyperParallelTest(unittest.TestCase):
    def test_the_page_tells_every_name_and_argument(self):
        rows = told(page="docs/HYPER_PARALLEL.md")
        self.assertTrue({"ExpertParallel", "ComputeGraph", "TaskSplitValue", "OperatorNode", "get_platform"} <= set(rows))
        for name, (arguments, _) in rows.items():
            each = getattr(hyper_parallel, name)
            found = [] if isinstance(each, type) and each.__init__ is object.__init__ else [a for a in inspect.signature(each).parameters if a != "self"]
            self.assertEqual(arguments, found, name)
        for name in ("ExpertParallel", "TensorParallel", "ExpertTensorParallel"):
            self.assertIs(getattr(sluice_torch, name), getattr(hyper_parallel, name))

    def test_sizes_that_numbers_of_tasks_follow_from(self):
        tsv = TaskSplitValue(tp=4, ep=4, seq_size=8192, all_expert_num=32, top_k=8)
        self.assertEqual((tsv.single_rank_expert_num, tsv.seq_all, tsv.per_rank_seq), (8, 65536, 16384))
        self.assertEqual((tsv.per_expert_seq, tsv.per_expert_seq_to_other, tsv.all_event_num), (8192, 2048, 57))
        tsv.rank_id, tsv.pre_task_num, tsv.pre_event_num = 3, 7, 8
        init_task_split_value(tsv)
        self.assertEqual((tsv.rank_id, tsv.pre_task_num, tsv.pre_event_num), (3, 0, 0))
        with self.assertRaisesRegex(ValueError, "ep is 0, expected a whole number from 1 on"):
            TaskSplitValue(ep=0)

    def test_totals_of_tasks_are_those_that_are_known(self):
        for sizes, total in (((4, 4, 8192, 32, 8), 2305), ((1, 64, 4096, 256, 8), 24961)):
            tsv = TaskSplitValue(*sizes)
            graph = backward_graph(tsv)
            graph.propagate_splits(tsv)
            self.assertEqual(sum(op.task_num for op in graph.topological_sort()) + 1, total)  # and the one that ends
            self.assertEqual([op.name for op in graph.topological_sort()],
                             ["dispatch", "act_grad", "w2_grad", "swiglu_grad", "gate_grad", "combine", "w1_grad"])
        dispatch, swiglu = graph.get_op("dispatch"), graph.get_op("swiglu_grad")
        self.assertEqual([op.name for op in dispatch.successors], ["act_grad", "w2_grad"])
        self.assertEqual([op.name for op in swiglu.predecessors], ["act_grad"])
        self.assertEqual((dispatch.outputs[0].split_dim, dispatch.outputs[0].split_num), (0, dispatch.task_num))

    def test_what_is_not_split_is_one_task(self):
        tsv = TaskSplitValue(2, 2, 1024, 16, 8)
        graph = backward_graph(tsv)
        graph.get_op("act_grad").split_spec.split_output_dims = [-1]
        graph.propagate_splits(tsv)
        self.assertEqual([graph.get_op(name).task_num for name in ("swiglu_grad", "gate_grad", "combine", "w1_grad")], [1, 1, 1, 1])
        self.assertGreater(graph.get_op("act_grad").task_num, 1)
        (act_grad,) = graph.get_op("act_grad").outputs
        self.assertEqual((act_grad.split_dim, act_grad.split_num), (-1, 1))

    def test_graphs_that_are_wrong(self):
        tsv = TaskSplitValue(2, 2, 1024, 16, 8)
        graph = backward_graph(tsv)
        with self.assertRaisesRegex(ValueError, "node 'dispatch' is given twice"):
            graph.add_op(graph.get_op("dispatch"))
        with self.assertRaisesRegex(ValueError, "the graph has no node 'up', expected one of dispatch, act_grad"):
            graph.add_edge("up", "dispatch")
        with self.assertRaisesRegex(ValueError, r"call propagate_splits\(tsv\) first"):
            graph.to_sluice()
        graph.get_op("combine").split_spec.split_inputs = [(9, 0)]
        with self.assertRaisesRegex(ValueError, "node 'combine' is split by input 9, expected one of its 4"):
            graph.propagate_splits(tsv)
        graph.get_op("combine").split_spec.split_inputs = None
        graph.get_op("combine").split_spec.task_num_fn = lambda tsv: 0.5
        with self.assertRaisesRegex(ValueError, "task_num_fn of node 'combine' is 0.5"):
            graph.propagate_splits(tsv)
        graph.get_op("combine").fill_config = AllToAllFillConfig(moe_type=AllToAllType.OTHER)
        with self.assertRaisesRegex(ValueError, "node 'combine' is an exchange of type AllToAllType.OTHER"):
            graph.to_sluice(tsv=tsv)
        graph.get_op("gate_grad").inputs[0].shape = [4, 5, 6]
        with self.assertRaisesRegex(ValueError, r"tensor 'gate_up_grad' has shape \[4, 5, 6\] of 2 bytes"):
            graph.to_sluice(tsv=tsv)
        graph.add_edge("combine", "dispatch")
        with self.assertRaisesRegex(ValueError, "the graph has a cycle through dispatch, act_grad"):
            graph.topological_sort()

    def test_the_compiler_runs_the_graph(self):
        """Any routing: the rows of the experts are those of other tokens, and their numbers are no multiples of a tile."""
        experts, hidden, inter, tokens = 4, 64, 32, 45
        tsv = TaskSplitValue(tp=1, ep=1, seq_size=48, all_expert_num=experts, top_k=1)
        graph = backward_graph(tsv, hidden=hidden, inter=inter)
        graph.propagate_splits(tsv)
        made = torch.Generator().manual_seed(2)
        ids = torch.randint(0, experts - 1, (tokens, 1), generator=made)  # the last one has none
        sizes = {"src": [tokens, hidden], "down_x": [tokens, inter], "gate_up": [tokens, 2 * inter], "up_x": [tokens, hidden],
                 "down": [experts, inter, hidden], "gate_up_weight": [experts, hidden, 2 * inter]}
        given = {name: (torch.randn(*size, generator=made) / 8).bfloat16() for name, size in sizes.items()}
        with tempfile.TemporaryDirectory() as folder:
            path, program, sluice = f"{folder}/graph.json", f"{folder}/p.slp", os.environ["SLUICE"]
            files = {name: ("BF16", tuple(each.shape), each.float().flatten().tolist()) for name, each in given.items()}
            write_safetensors(pathlib.Path(folder) / "in-0.safetensors", {**files, "expert_ids": ("I32", (tokens, 1), ids.flatten().tolist())})
            graph.to_sluice("backward").save(path)
            tensors_of = ["--in", folder + "/in-{rank}.safetensors", "--out", folder + "/out-{rank}.safetensors"]
            for command in ([os.environ["SLUICEC"], path, "-o", program], [sluice, "run", program, *tensors_of], [sluice, "check", program, *tensors_of]):
                run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertEqual(run.returncode, 0, run.stdout)
            found = sluice_torch.Checkpoint(f"{folder}/out-0.safetensors")
            found = {name: found[name].float() for name in ("dx", "down_grad", "gate_up_weight_grad")}
        order = ids.flatten().argsort(stable=True)
        for expert in range(experts):
            token = (ids.flatten() == expert).nonzero().flatten()
            row = (ids.flatten()[order] == expert).nonzero().flatten()
            dy, x, act = (given[name][at].float() for name, at in (("src", token), ("up_x", row), ("down_x", row)))
            gate, up = given["gate_up"][row].float().requires_grad_().split(inter, 1)
            swiglu = torch.nn.functional.silu(gate) * up
            grads = torch.cat(torch.autograd.grad(swiglu, [gate, up], dy @ given["down"][expert].float().T), 1)
            expected = grads @ given["gate_up_weight"][expert].float().T, act.T @ dy, x.T @ grads
            check([found["dx"][token], found["down_grad"][expert], found["gate_up_weight_grad"][expert]], expected, 2e-2)

    def test_rows_by_source_rank_become_rows_by_expert_and_back(self):
        made = torch.Generator().manual_seed(1)
        for ranks, experts in ((1, 1), (2, 3), (4, 2)):
            counts = torch.randint(0, 4, (ranks * experts,), generator=made)
            counts[0] = 0
            labels = torch.arange(ranks * experts).repeat_interleave(counts)
            indices, found = _generate_permute_indices(counts, experts, ranks)
            self.assertEqual(indices.dtype, torch.int64)
            expected = sorted(range(len(labels)), key=lambda row: (labels[row] % experts, labels[row] // experts))
            self.assertEqual(indices.tolist(), expected)
            self.assertTrue(torch.equal(found, counts.view(ranks, experts).sum(0)))
            x = torch.randn(len(labels), 3, generator=made, dtype=torch.double, requires_grad=True)
            shape, permuted, indices, _ = _permute(x, counts, ranks, experts)
            self.assertTrue(torch.equal(_unpermute(permuted, shape, indices), x))
            if len(x):
                self.assertTrue(torch.autograd.gradcheck(lambda x: _unpermute(_permute(x, counts, ranks, experts)[1] ** 2, shape, indices), x))

    def test_modules_that_cannot_be_divided_stay_as_they_are(self):
        mesh, module = Mesh(ep=None), torch.nn.Linear(4, 4)
        with self.assertRaisesRegex(ValueError, "ReLU has neither a sluice_torch.MoE nor a parameter"):
            ExpertParallel().apply(torch.nn.ReLU(), mesh)
        with self.assertRaisesRegex(ValueError, "expected 'ep' and 'tp', or a pair of process groups"):
            ExpertTensorParallel().apply(module, mesh)
        with self.assertRaisesRegex(ValueError, r"no stacks of one part for each of the same experts: weight \[4, 3\], bias \[5\]"):
            module.weight, module.bias = torch.nn.Parameter(torch.zeros(4, 3)), torch.nn.Parameter(torch.zeros(5))
            ExpertParallel().apply(module, mesh)
        with self.assertRaises(TypeError):
            BaseExpertParallel()

    def test_ranks_divide_experts(self):
        for size in (2, 3, 4):
            core_jobs.run_ranks(self, "ranks", size)


class Counting(ExpertParallel):
    """A caller's own style: it sees every step."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def _token_dispatch(self, module, inputs, device_mesh):
        given = super()._token_dispatch(module, inputs, device_mesh)
        self.rows.append(len(given[0]))
        return given


def experts_of(rank, size):
    return sluice_torch.graphs.dealt(EXPERTS, size, rank)


def check_experts(rank, size, style, dtype):
    mesh, bound = Mesh(ep=dist.group.WORLD), 2e-5 if dtype == torch.float32 else 2e-2
    modules = [style.apply(module, mesh) for module in (Experts(dtype), Experts(dtype))]  # one object for several modules
    own = slice(experts_of(rank, size).start, experts_of(rank, size).stop)
    assert [name for name, _ in modules[0].named_parameters()] == ["w1", "w2", "w3"]
    assert torch.equal(modules[0].w1, Experts(dtype).w1[own])
    for counts in (None, [0, 9, 0, 0, 1, 0], [0] * EXPERTS):
        every = [batch(each, dtype, counts) for each in range(size)]
        whole = [step(Experts(dtype), *each) for each in every]
        for module in modules:
            found = step(module, *every[rank])
            check(found[:3], whole[rank][:3], bound)
            for number in (3, 4, 5):
                check([found[number]], [sum(each[number].float() for each in whole)[own]], bound)
    rows, given, _, _ = every[rank]
    check([modules[0](routed_input=rows, num_tokens_per_expert=given)], [Experts(dtype)(rows, given)], bound)


def check_shards(rank, size):
    module, whole = TensorParallel().apply(Experts(), Mesh(tp=dist.group.WORLD)), Experts()
    given = batch(0)
    part = slice(rank * INTER // size, (rank + 1) * INTER // size)
    found, expected = step(module, *given), step(whole, *given)
    check(found[:3], expected[:3])
    check(found[3:], [expected[3][:, part], expected[4][:, :, part], expected[5][:, part]])
    copied = copy.deepcopy(module)
    module.w2.data.zero_()
    check(step(copied, *given), found)  # a copy has weights of its own


def check_both(rank):
    ep = [dist.new_group(each) for each in ([0, 2], [1, 3])][rank % 2]
    tp = [dist.new_group(each) for each in ([0, 1], [2, 3])][rank // 2]
    module = ExpertTensorParallel().apply(Experts(), Mesh(ep=ep, tp=tp))
    every = [batch(0), batch(1)]
    whole = [step(Experts(), *each) for each in every]
    found, own, part = step(module, *every[rank // 2]), slice(rank // 2 * 3, rank // 2 * 3 + 3), slice(rank % 2 * 12, rank % 2 * 12 + 12)
    check(found[:3], whole[rank // 2][:3])
    sums = [sum(each[number] for each in whole)[own] for number in (3, 4, 5)]
    check(found[3:], [sums[0][:, part], sums[1][:, :, part], sums[2][:, part]])


def check_platform(rank, size):
    platform, group = get_platform(), dist.group.WORLD
    counts = torch.arange(size) + 10 * rank
    found, work = platform.all_to_all_single(counts, (size,), group)
    assert found.tolist() == [10 * each + rank for each in range(size)] and work is None
    found, work = platform.all_to_all_single(counts, (size,), group, async_op=True)
    work.wait()
    sent, received = [(rank + each) % 3 for each in range(size)], [(each + rank) % 3 for each in range(size)]
    x = torch.full((sum(sent), 2), float(rank), requires_grad=True)
    y = platform.differentiable_all_to_all_single(x, sent, received, group)
    assert y[:, 0].tolist() == [float(each) for each, count in enumerate(received) for _ in range(count)]
    (y * (rank + 1)).sum().backward()
    assert x.grad[:, 1].tolist() == [each + 1.0 for each, count in enumerate(sent) for _ in range(count)]
    assert platform.arange(3).tolist() == [0, 1, 2] and platform.arange(1, 3, dtype=torch.int32).dtype == torch.int32


def check_errors(rank, size):
    module = ExpertParallel().apply(Experts(), Mesh(ep=dist.group.WORLD))
    rows, counts, scores, dy = batch(rank)
    wrong = counts + 1 if rank == 0 else counts
    try:
        module(rows, wrong, scores)
        raise AssertionError("counts that do not fit are accepted")
    except (ValueError, RuntimeError) as error:
        assert "counts sum to" in str(error), error
    try:
        module(rows, torch.cat([counts, counts.new_zeros(1)]), scores)
        raise AssertionError("counts of another number of experts are accepted")
    except (ValueError, RuntimeError) as error:
        assert "counts has shape [7], expected [6]" in str(error), error
    step(module, rows, counts, scores, dy)  # the next one is right
    failing = ExpertParallel().apply(Failing(), Mesh(ep=dist.group.WORLD))
    try:
        failing(rows, counts, scores)
        raise AssertionError("a module that fails gives a result")
    except KeyError:
        assert not failing._parallel_handles  # else they would keep the routing of each such step
    for style, mesh, said in (
        (ExpertParallel(), Mesh(ep=dist.group.WORLD), "Experts has the part of a rank already"),
        (TensorParallel(tokens="own"), Mesh(tp=dist.group.WORLD), "tokens is 'own', expected 'same'"),
    ):
        try:
            style.apply(module, mesh)
            raise AssertionError(said)
        except ValueError as error:
            assert said in str(error), error
    linear = torch.nn.Linear(4, 4)
    try:
        TensorParallel().apply(linear, Mesh(tp=dist.group.WORLD))
        raise AssertionError("a matrix has shards")
    except ValueError as error:
        assert "weight has shape [4, 4], expected w1 or w3 [E, I, H]" in str(error), error


def ranks(rank, size):
    style = Counting()
    for dtype in (torch.float32, torch.bfloat16):
        check_experts(rank, size, style, dtype)
    assert len(style.rows) == 14, style.rows
    check_shards(rank, size)
    check_platform(rank, size)
    check_errors(rank, size)
    if size == 4:
        check_both(rank)


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks}):
    unittest.main()

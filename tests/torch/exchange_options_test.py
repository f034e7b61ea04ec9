"""The options of exchange.dispatch and exchange.combine against plain PyTorch over the tokens of all ranks, bit by bit: numbers are
such that every sum is exact."""

import gc
import os
import re
import time
import unittest

import core_jobs
import torch
import torch.distributed as dist
from sluice_torch import exchange, get_buffer, get_hidden_bytes, init_buffer, reset_buffer
from sluice_torch.ranks import ranks

HIDDEN, TOP_K = 32, 3
OVERLAP = {"async_finish": True, "overlap": True}
TOKENS = ([37, 20, 9, 13], [0, 64, 1, 5], [0, 0, 0, 0], [3, 0, 40, 0])


class Batch:
    """The tokens of a rank, with small whole numbers, and a gradient of y."""

    def __init__(self, rank, tokens, experts, seed=1, dtype=torch.bfloat16):
        made = torch.Generator().manual_seed(1000 * seed + rank)
        self.x = torch.randint(-3, 4, (tokens, HIDDEN), generator=made).to(dtype).requires_grad_()
        self.dy = torch.randint(-3, 4, (tokens, HIDDEN), generator=made).to(dtype)
        self.ids = torch.stack([torch.randperm(experts, generator=made)[:TOP_K] for _ in range(tokens)] or [torch.zeros(TOP_K).long()])
        self.ids = self.ids[:tokens].contiguous()
        self.ids[::5, 1] = -1
        self.ids[::7] = -1
        self.probs = 2.0 ** torch.randint(-1, 2, (tokens, TOP_K), generator=made)
        # as a map
        there = self.ids >= 0
        self.map = torch.zeros(tokens, experts, dtype=torch.bool)
        self.map_probs = torch.full((tokens, experts), 0.25)
        for token, k in there.nonzero().tolist():
            self.map[token, self.ids[token, k]] = True
            self.map_probs[token, self.ids[token, k]] = self.probs[token, k]
        self.probs.requires_grad_()
        self.map_probs.requires_grad_()


def factors(experts):
    return 2.0 ** (torch.arange(experts) % 2)


def own_experts(rank, size, experts):
    first = rank * (experts // size) + min(rank, experts % size)
    return range(first, first + experts // size + (rank < experts % size))


class Case:
    """One step of all ranks, as each of them can compute it alone."""

    def __init__(self, rank, counts, experts=8, group=None, *, form="expert", mapped=False, dtype=torch.bfloat16, seed=1, **options):
        self.rank, self.size, self.experts, self.group, self.form = rank, len(counts), experts, group, form
        self.batches = [Batch(source, tokens, experts, seed, dtype) for source, tokens in enumerate(counts)]
        self.batch, self.mapped, self.options = self.batches[rank], mapped, options
        self.own = own_experts(rank, self.size, experts)
        self.multiple = options.get("pad_multiple", 1)
        self.fixed = options.get("num_permuted_tokens")

    @property
    def probs(self):
        return self.batch.map_probs if self.mapped else self.batch.probs

    def dispatch(self, **options):
        options = {"rows_per": self.form, "timeout": 20, **self.options, **options}
        if self.mapped:
            return exchange.dispatch(
                self.batch.x, group=self.group, routing_map=self.batch.map, probs=self.batch.map_probs, **options
            )
        return exchange.dispatch(self.batch.x, self.batch.ids, self.batch.probs, self.experts, self.group, **options)

    def expected(self):
        """Rows, experts, probabilities, counts with pads, counts."""
        rows, experts, probs, counts, real = [], [], [], [], []
        none = torch.zeros(HIDDEN, dtype=self.batch.x.dtype)
        if self.form == "rank":
            width, real = min(TOP_K, len(self.own)), [0] * len(self.own)
            for source in self.batches:
                for token, ids in enumerate(source.ids.tolist()):
                    places = [k for k, id in enumerate(ids) if id in self.own]
                    if self.mapped:
                        places.sort(key=lambda k: ids[k])
                    if places:
                        rows.append(source.x[token])
                        none_here = [-1] * (width - len(places))
                        experts.append([ids[k] - self.own[0] for k in places] + none_here)
                        probs.append([source.probs[token, k].item() for k in places] + [0.0] * len(none_here))
                        for k in places:
                            real[ids[k] - self.own[0]] += 1
            counts, no_expert, no_prob = real, [-1] * width, [0.0] * width
        else:
            width, no_expert, no_prob = None, -1, 0.0
            for expert in self.own:
                pairs = [(s, t, k) for s in self.batches for t, k in (s.ids == expert).nonzero().tolist()]
                real.append(len(pairs))
                rows += [s.x[t] for s, t, _ in pairs]
                probs += [s.probs[t, k].item() for s, t, k in pairs]
                experts += [expert] * len(pairs)
                pads = -len(pairs) % self.multiple
                counts.append(len(pairs) + pads)
                rows, experts, probs = rows + [none] * pads, experts + [-1] * pads, probs + [0.0] * pads
        if self.fixed is not None:
            rest = self.fixed - len(rows)
            rows, experts, probs = rows + [none] * rest, experts + [no_expert] * rest, probs + [no_prob] * rest
        shape = (len(rows),) if width is None else (len(rows), width)
        made = torch.stack(rows) if rows else torch.zeros(0, HIDDEN, dtype=none.dtype)
        return made, torch.tensor(experts).long().view(shape), torch.tensor(probs).view(shape), counts, real

    def through_experts(self, rows, row_experts, row_probs):
        first = self.own[0] if self.form == "rank" and len(self.own) else 0
        scale = factors(self.experts)[(row_experts + first).clamp(min=0)] * row_probs
        scale = scale.sum(1) if self.form == "rank" else scale
        return (rows.float() * scale[:, None]).to(rows.dtype)

    def plain(self):
        """y, and the gradients of x and probabilities."""
        batch = self.batch
        weight = factors(self.experts)[batch.ids.clamp(min=0)] * (batch.ids >= 0)
        if self.mapped:
            weights = (batch.map_probs * batch.map * factors(self.experts)).sum(1)
        else:
            weights = (batch.probs * weight).sum(1)
        y = (batch.x.float() * weights[:, None]).to(batch.x.dtype)
        return y.detach(), *torch.autograd.grad(y, [batch.x, self.probs], batch.dy)

    def check(self, made=None):
        rows, row_experts, row_probs, counts, handle = self.dispatch() if made is None else made
        for found, wanted in zip((rows, row_experts, row_probs), self.expected()):
            assert found.dtype == wanted.dtype and torch.equal(found, wanted), (self.__dict__, found, wanted)
        assert counts.tolist() == self.expected()[3] and handle.rows_per_expert.tolist() == self.expected()[4]
        out = self.through_experts(rows, row_experts, row_probs)
        pads = row_experts < 0 if row_experts.dim() == 1 else (row_experts < 0).all(1)
        out = out + 7 * pads[:, None]  # what is in pads does not matter
        y = exchange.combine(out, self.group, handle)
        found = [y.detach(), *torch.autograd.grad(y, [self.batch.x, self.probs], self.batch.dy)]
        for name, a, b in zip(("y", "x", "probs"), found, self.plain()):
            assert a.dtype == b.dtype and torch.equal(a, b), (name, self.options, a, b)
        return found


def max_rows(counts, experts, form, multiple=1):
    """The most rows, with pads, of a rank."""
    return max(len(Case(rank, counts, experts, form=form, pad_multiple=multiple).expected()[0]) for rank in range(len(counts)))


def group_of(size):
    return dist.group.WORLD if size > 1 else None


def maps(rank, size):
    for seed, counts in enumerate(TOKENS):
        Case(rank, counts[:size], group=group_of(size), mapped=True, seed=seed).check()
        Case(rank, counts[:size], group=group_of(size), mapped=True, seed=seed, top_k=5).check()
    Case(rank, [7] * size, 7, group_of(size), mapped=True, dtype=torch.float32).check()
    # the largest number in a map is that of one rank only
    case = Case(rank, [4] * size, group=group_of(size), mapped=True)
    if rank != size - 1:
        case.batch.map[:] = False
    rows, *_, handle = case.dispatch()
    y = exchange.combine(rows, case.group, handle)
    assert torch.equal(y.float(), case.batch.x.float() * case.batch.map.sum(1, keepdim=True))


def pads(rank, size):
    for seed, counts in enumerate(TOKENS):
        counts = counts[:size]
        for multiple in (1, 4, 16):
            most = max_rows(counts, 8, "expert", multiple)
            for fixed in (None, most, most + 50):
                options = {"pad_multiple": multiple, "num_permuted_tokens": fixed}
                Case(rank, counts, group=group_of(size), **options).check()
                if fixed is None:
                    Case(rank, counts, 7, group_of(size), dtype=torch.float16, mapped=True, **options).check()
        if most > 0:
            too_many(rank, counts)


def too_many(rank, counts):
    """More rows than num_permuted_tokens at any rank fail the step everywhere, and the next step is right."""
    group = group_of(len(counts))
    own = [len(Case(other, counts).expected()[0]) for other in range(len(counts))]
    refusing = next(other for other, rows in enumerate(own) if rows == max(own))
    for options in ({}, {"async_finish": True}, OVERLAP):
        message = refusal_of(Case(rank, counts, group=group, num_permuted_tokens=max(own) - 1, **options).dispatch)
        said = f"rank {refusing}: num_permuted_tokens is {max(own) - 1}, but there are {max(own)} rows"
        assert message == f"sluice: {said}", message
        Case(rank, counts, group=group).check()


def too_many_rows(rank, size):
    too_many(rank, TOKENS[0][:size])


def by_rank(rank, size):
    for seed, counts in enumerate(TOKENS):
        for experts in (8, 7, 3):
            for options in ({}, {"mapped": True}, {"dtype": torch.float32}, {"dtype": torch.float16}):
                if seed == 0 or not options:
                    Case(rank, counts[:size], experts, group_of(size), form="rank", seed=seed, **options).check()
        most = max_rows(counts[:size], 8, "rank")
        Case(rank, counts[:size], group=group_of(size), form="rank", num_permuted_tokens=most + 3).check()


def few_cores(rank, size):
    counts, group = TOKENS[0][:size], group_of(size)
    expected = Case(rank, counts, group=group).check()
    for cores in ({"num_sms_dispatch_api": 1}, {"num_sms_combine_api": 2}, {"num_sms_dispatch_api": 1, "num_sms_combine_api": 1}):
        for a, b in zip(Case(rank, counts, group=group, **cores).check(), expected):
            assert torch.equal(a, b)


def waited(case, **options):
    made = case.dispatch(**OVERLAP, **options)
    made[-1].event.wait()
    assert made[-1].event.done()
    return made


def returned_unread(case):
    """A combine of rows that no one waited for, which done() shows to have ended."""
    rows, *_, handle = case.dispatch(**OVERLAP)
    y = exchange.combine(rows, case.group, handle, **OVERLAP)
    while not handle.event.done():
        time.sleep(0.001)
    there = (case.batch.ids >= 0).sum(1, keepdim=True)
    assert y.dtype == case.batch.x.dtype and torch.equal(y.float(), case.batch.x.float() * there)


def asynchronous(rank, size):
    for counts in TOKENS[:3]:
        for form in ("expert", "rank"):
            for options in ({}, {"num_permuted_tokens": 4000}, {"dtype": torch.float32}, {"dtype": torch.float16}):
                case = Case(rank, counts[:size], group=group_of(size), form=form, **options)
                expected = case.check()
                for a, b in zip(case.check(waited(case, allocate_on_comm_stream=True)), expected):
                    assert torch.equal(a, b)
        for dtype in (torch.bfloat16, torch.float16):
            case = Case(rank, counts[:size], group=group_of(size), pad_multiple=8, dtype=dtype)
            case.check(waited(case))
            returned_unread(case)
    # several in flight, each after the one before; results are read in another order
    cases = [Case(rank, counts[:size], group=group_of(size), seed=seed) for seed, counts in enumerate(TOKENS)]
    made, event = [], None
    for case in cases:
        made.append(case.dispatch(**OVERLAP, previous_event=event))
        assert made[-1][3].tolist() == case.expected()[3]  # counts are there at once
        event = made[-1][-1].event
    for case, (rows, row_experts, row_probs, _, handle) in reversed(list(zip(cases, made))):
        handle.event.wait()
        out = case.through_experts(rows, row_experts, row_probs)
        y = exchange.combine(out, case.group, handle, **OVERLAP)
        handle.event.wait()
        expected = case.plain()
        assert torch.equal(y, expected[0])
        found = torch.autograd.grad(y, [case.batch.x, case.batch.probs], case.batch.dy)
        assert torch.equal(found[0], expected[1]) and torch.equal(found[1], expected[2])


def read_at_once(rank, size):
    """Results of async_finish are right without a wait. Rows are so long that a step takes longer than a first look at them."""
    group, hidden, tokens, experts = group_of(size), 1024, 700, 8
    made = torch.Generator().manual_seed(rank)
    for dtype in (torch.bfloat16, torch.float32, torch.float16):
        x = torch.randint(1, 4, (tokens, hidden), generator=made).to(dtype).requires_grad_()
        ids = torch.rand(tokens, experts, generator=made).topk(TOP_K, dim=1).indices
        for options in ({}, {"pad_multiple": 16}, {"num_permuted_tokens": 2 * size * TOP_K * tokens}, {"rows_per": "rank"}):
            rows, row_experts, row_probs, _, handle = exchange.dispatch(
                x, ids, torch.ones(ids.shape), experts, group, async_finish=True, timeout=20, **options
            )
            early = [each.detach().clone() for each in (rows, row_experts, row_probs)]
            y = exchange.combine(rows, group, handle, async_finish=True)
            early.append(y.detach().clone())
            copies = early[2].count_nonzero(1)[:, None] if options.get("rows_per") else early[2][:, None]
            assert handle.event.done()
            handle.event.wait()
            for a, b in zip(early, (rows, row_experts, row_probs, y)):
                assert torch.equal(a, b), (dtype, options)
            assert ((early[0] != 0) == (copies > 0)).all(), (dtype, options)
            if "rows_per" not in options:
                assert torch.equal(early[3], TOP_K * x), (dtype, options)
            (dx,) = torch.autograd.grad(y, [x], torch.ones(y.shape, dtype=dtype))
            assert "rows_per" in options or (dx == TOP_K).all(), (dtype, options)


def regrown(rank, size):
    """Growing and shrinking token counts: no memory after the largest, and nothing leaks."""
    group = group_of(size)
    reset_buffer(group)
    buffer = init_buffer(group, 2 * HIDDEN, 8, TOP_K, max_tokens=16 if rank else 8)
    assert buffer.max_tokens == (16 if size > 1 else 8)
    assert get_buffer(group, 10).hidden_bytes == get_hidden_bytes(torch.zeros(1, HIDDEN).bfloat16()) == 2 * HIDDEN
    assert ranks.memory()["layers"] == 1
    steps = [[3, 16, 0, 1], [300, 0, 5, 2], [1, 40, 1, 1], [0, 1, 256, 0], [5, 5, 5, 5]]
    for form in ("expert", "rank"):
        for tokens in steps:
            Case(rank, tokens[:size], group=group, form=form).check()
    assert get_buffer(group).max_tokens == 512
    gc.collect()
    before = ranks.memory()
    assert before["layers"] == 2 and before["saved_sets_in_use"] == 0, before
    for tokens in steps * 2:
        for form in ("expert", "rank"):
            Case(rank, tokens[:size], group=group, form=form).check()
    gc.collect()
    assert ranks.memory() == before, (before, ranks.memory())
    # a handle outlives its buffer
    case = Case(rank, steps[0][:size], group=group)
    made = case.dispatch()
    reset_buffer(group)
    assert ranks.memory()["layers"] == 0
    case.check(made)
    assert get_buffer(group).max_tokens == 65536
    Case(rank, steps[1][:size], group=group).check()
    assert ranks.memory()["layers"] == 1


def memory_used():
    """Bytes of this process's memory, its own and shared, and its numbers of threads, files and mapped pieces."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    with open("/proc/self/maps") as maps:
        pieces = len(maps.readlines())
    pages = sum(1024 * int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))
    return pages, int(fields["Threads"]), len(os.listdir("/proc/self/fd")), pieces


def long_run(rank, size):
    """After the largest step, neither steps of any size nor what they return take memory, threads or files for good."""
    group = group_of(size)
    reset_buffer(group)
    steps = [[3, 16, 0, 1], [900, 0, 5, 2], [1, 40, 1, 1], [0, 1, 700, 0], [5, 5, 5, 5]]
    cases = [Case(rank, tokens[:size], group=group, form=form) for tokens in steps for form in ("expert", "rank")]

    def run(rounds):
        for _ in range(rounds):
            for case in cases:
                rows, *_, handle = case.dispatch(**OVERLAP)
                y = exchange.combine(rows, group, handle, **OVERLAP)
                handle.event.wait()
                torch.autograd.grad(y, [case.batch.x], case.batch.dy)
        gc.collect()
        return memory_used()

    before, rounds = run(8), 30
    after = run(rounds)
    print(f"rank {rank}: {before} after the first steps, {after} after {rounds * len(cases)} more", flush=True)
    assert after[0] - before[0] < 2 << 20, (before, after)
    assert after[1:3] == before[1:3] and after[3] - before[3] < 8, (before, after)


def refusal_of(call):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        return str(error)
    raise AssertionError("nothing was refused")


REFUSALS = {
    "no routing": ({"mapped": False}, lambda c: exchange.dispatch(c.batch.x, None, None, 8, c.group), "token_indices is of type NoneType"),
    "too many in a map": ({"mapped": True}, lambda c: c.dispatch(top_k=2), r"token \d+ has 3 experts in routing_map, but top_k is 2"),
    "a map of numbers": ({"mapped": True}, lambda c: spoil(c, map=c.batch.map.int()), "routing_map has type torch.int32, expected torch.bool"),
    "another shape": (
        {"mapped": True},
        lambda c: spoil(c, map_probs=c.batch.map_probs[:, :3]),
        r"probs has shape \[20, 3\], expected \[20, 8\]",
    ),
    "both routings": ({"mapped": True}, lambda c: c.dispatch(token_indices=c.batch.ids), "token_indices is given together with"),
    "a multiple of 0": ({}, lambda c: c.dispatch(pad_multiple=0), "pad_multiple is 0, expected a whole number from 1 on"),
    "a negative number": ({}, lambda c: c.dispatch(num_permuted_tokens=-3), "num_permuted_tokens is -3, expected a whole number from 0 on"),
    "pads of ranks": ({"form": "rank"}, lambda c: c.dispatch(pad_multiple=4), "pad_multiple is 4, but with rows_per='rank'"),
    "another form": ({}, lambda c: c.dispatch(rows_per="token"), "rows_per is 'token', expected 'expert' or 'rank'"),
    "a stream alone": ({}, lambda c: c.dispatch(allocate_on_comm_stream=True), "allocate_on_comm_stream is True, expected False"),
    "an overlap alone": ({}, lambda c: c.dispatch(overlap=True), "overlap is True, expected False without async_finish"),
    "an event of another kind": ({}, lambda c: c.dispatch(previous_event=3), "previous_event is of type int"),
    "an id twice": ({"form": "rank"}, lambda c: spoil(c, ids=c.batch.ids * 0 + 2), "token 0 has expert 2 twice"),
    "an id of no expert": ({"form": "rank"}, lambda c: spoil(c, ids=c.batch.ids + 8), r"token_indices\[\d+, 0\] is \d+, expected 0 to 7"),
    "too many tokens": (
        {"max_tokens": 64},
        lambda c: spoil(c, x=torch.zeros(65, HIDDEN).bfloat16()),
        "x has 65 tokens, but the exchange is for at most 64",
    ),
    "no core that sends": (
        {},
        lambda c: c.dispatch(num_sms_dispatch_api=0),
        "num_sms_dispatch_api is 0, expected a whole number from 1 on",
    ),
    "more cores than there are": (
        {},
        lambda c: c.dispatch(num_sms_combine_api=1000),
        r"num_sms_combine_api is 1000, expected 1 to \d+, the cores that may communicate$",
    ),
    "far too many tokens": ({}, lambda c: spoil(c, x=torch.zeros(5000000, 1).bfloat16()), "a rank has 5000000 tokens, expected at most"),
}


def spoil(case, **changes):
    for name, value in changes.items():
        setattr(case.batch, name, value)
    return case.dispatch()


def heard_of(rank, size, refusing, call, good):
    """What each rank says of a step that one refuses."""
    message = refusal_of(call if rank == refusing else good)
    if size == 1:
        return [message]
    said = [None] * size
    dist.all_gather_object(said, message)
    return said


def refusals(rank, size):
    group = group_of(size)
    unittest_of = unittest.TestCase()
    for refusing in {0, size - 1}:
        for name, (how, call, pattern) in REFUSALS.items():
            case = Case(rank, [20] * size, group=group, **how)
            good = Case(rank, [20] * size, group=group, **how).dispatch
            for source, message in enumerate(heard_of(rank, size, refusing, lambda: call(case), good)):
                unittest_of.assertRegex(message, pattern, name)
                if source != refusing and "far" not in name:
                    assert f"rank {refusing}: " in message, (name, message)
            Case(rank, [20] * size, group=group).check()
        handles(rank, size, refusing)


def handles(rank, size, refusing):
    group, case = group_of(size), Case(rank, [20] * size, group=group_of(size))
    rows, *_, handle = case.dispatch()
    members = re.escape(f"ranks {list(range(size))}")
    another = dist.new_group(list(range(size))) if size > 1 else None
    alone = f"handle is of another group \\({members}\\) than group \\(this process alone\\)"
    equal = f"handle is of another group \\({members}\\) than group \\({members}\\)"
    for call, pattern in (
        *([(lambda: exchange.combine(rows, None, handle), alone)] if size > 1 else []),
        *([(lambda: exchange.combine(rows, another, handle), equal)] if size > 1 else []),
        (lambda: exchange.combine(rows[1:], group, handle), "rows has shape"),
        (lambda: exchange.combine(rows, group, handle, allocate_on_comm_stream=True), "allocate_on_comm_stream is True"),
        (lambda: (handle.release(), exchange.combine(rows, group, handle)), "handle was released"),
    ):
        for message in heard_of(rank, size, refusing, call, lambda: exchange.combine(rows, group, handle)):
            unittest.TestCase().assertRegex(message, pattern)
    Case(rank, [20] * size, group=group).check()


def lost(rank, size):
    """An error of a submitted step comes out of wait()."""
    case = Case(rank, [20] * size, group=dist.group.WORLD, timeout=3)
    case.check()
    made = case.dispatch(**OVERLAP)
    made[-1].event.wait()
    if rank == 0:
        y = exchange.combine(made[0].detach(), case.group, made[-1], **OVERLAP)
        unittest.TestCase().assertRegex(refusal_of(made[-1].event.wait), "rank 1")
        del y
    dist.barrier()


def sent(rank, size):
    """Rows of both forms, of all ranks."""
    made = torch.Generator().manual_seed(5 + rank)
    ids = torch.rand(256, 256, generator=made).topk(8, dim=1).indices
    x, probs = torch.zeros(256, HIDDEN).bfloat16(), torch.ones(256, 8)
    rows = []
    for form in ("expert", "rank"):
        received = len(exchange.dispatch(x, ids, probs, 256, dist.group.WORLD, rows_per=form, threads=1, timeout=60)[0])
        said = [None] * size
        dist.all_gather_object(said, received)
        rows.append(sum(said))
    assert rows[0] == 8 * 256 * size
    print(f"rows sent: {rows[1]} instead of {rows[0]}, {rows[1] / rows[0]:.3f}")
    assert 0.6 < rows[1] / rows[0] < 0.68, rows


JOBS = (maps, pads, by_rank, few_cores, asynchronous, read_at_once, regrown, long_run, refusals)


class OptionsTest(unittest.TestCase):
    def test_one_rank(self):
        for job in JOBS:
            with self.subTest(job.__name__):
                job(0, 1)

    def test_two_ranks(self):
        core_jobs.run_ranks(self, "all_jobs", 2, 240)

    def test_four_ranks(self):
        """7 experts are uneven there, and of 3 the last rank has none."""
        core_jobs.run_ranks(self, "all_jobs", 4, 240)

    def test_errors_of_submitted_steps_come_out_of_wait(self):
        core_jobs.run_ranks(self, "lost", 2)

    def test_one_row_per_rank_sends_less_than_068_of_the_rows(self):
        """8 ranks, 256 experts, K 8."""
        print(core_jobs.run_ranks(self, "sent", 8)[0].strip())


def all_jobs(rank, size):
    for job in JOBS:
        print(job.__name__, flush=True)  # which one a failure is in
        job(rank, size)


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()

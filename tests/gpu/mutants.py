"""Mistakes that can be planted into the kernel of chained products, by name: the edits of each.

make_mutants.py makes one kernel that has all of them, and BUILD.bazel says which test must find which. Text that is not
there exactly once is an error, so that no mutant becomes the kernel itself as the kernel changes.
"""
import typing


class Edit(typing.NamedTuple):
    """Puts `new` in the place of `old`, which is whole statements, an expression, or nothing (where `new` is inserted).

    `before` and `after` are what stands next to `old` and stays: as much as makes the three together unique.
    """
    old: str
    new: str
    before: str = ""
    after: str = ""


# No mistake: one warpgroup falls behind the other by whole tasks.
DELAY = Edit("", "if (mathGroup() == 1 && next.stage() == 0) sleepFor(500'000);",
             after="if (threadIndex() % 128 == 0 && addShared")


def without(statements, **place):
    return Edit(statements, "", **place)


def in_32_bits(expression, **place):
    return Edit(expression, f"static_cast<int>({expression})", **place)


MUTANTS = {
    "late_warpgroup": [DELAY],
    # The first mistakes are those of a prototype, where each was found.
    "empty_counts_7_of_8_warps": [Edit("8", "7", before="initRing(&memory->products.ring, 1, ")],
    "no_proxy_fence_after_acquire": [without("fenceProxyAsync();", after="  // others wrote")],
    "too_few_bytes_announced": [Edit("copiedBytes(&operands->each[0])", "copiedBytes(&operands->each[0]) - 128",
                                       before="arriveExpecting(full, ")],
    "pitch_of_descriptor_halved": [Edit("Shape::kAreaBytes", "Shape::kAreaBytes / 2", before="kMajorWeight, ", after=")")],
    "stage_released_before_its_products": [without("waitProducts<1>();")],
    "no_barrier_before_signal": [without("syncNamed(1 + mathGroup(), 128);", after="  // plain stores of all threads")],
    "signal_lost": [Edit("signalEnd(chain, &record->task);", "if (next.stage() != 1) signalEnd(chain, &record->task);")],
    "poll_without_acquire": [without("fenceAcquire();")],
    "rows_not_masked": [Edit("left < 0 ? 0 : left > 64 ? 64 : left", "left < 0 ? 0 : 64")],
    "k_step_of_15": [Edit("k * kWeightStep", "k / 16 * 15 * kWeightStep")],
    "first_parity_wrong": [Edit("at.parity() ^ 1", "at.parity()", before="const int before = ")],
    "staging_reused_before_read": [without("if (threadIndex() % 128 == 0) waitStoresRead<1>();")],
    "no_proxy_fence_before_store": [without("fenceProxyAsyncShared();", after="\n  syncNamed")],
    "stores_only_read_before_signal": [Edit("waitStores<0>()", "waitStoresRead<0>()")],
    "first_warpgroup_signals": [Edit("1", "0", before="addShared(&record->ended, 1) % 2 == ")],
    # found while the kernel was written
    "record_released_before_signal": [
        Edit("", "release(&memory->ring, next.stage());", after="if (threadIndex() % 128 == 0 && addShared"),
        without("release(&memory->ring, next.stage());"),
    ],
    "staging_without_first_barrier": [without("syncNamed(1 + group, 128);", after="\n  write(staged);")],
    "staging_without_second_barrier": [without("syncNamed(1 + group, 128);", before="fenceProxyAsyncShared();\n  ")],
    # found when the kernel was reviewed
    "products_without_sync_warp": [without("syncWarp();", after="  // the loop may leave lanes apart")],
    "proxy_fence_before_acquire": [
        Edit("", "fenceProxyAsync();", after="fenceAcquire();"),
        without("fenceProxyAsync();", after="  // others wrote"),
    ],
    # offsets beyond 2 GiB
    "staged_pitch_of_32_bits": [in_32_bits("load(&out->rowPitch)", after=";\n    storePlain<2>")],
    "loaded_pitch_of_32_bits": [in_32_bits("load(&from->rowPitch)", after=";\n  const std::byte* const corner")],
    "filled_pitch_of_32_bits": [in_32_bits("source * pitch", before="corner + ")],
    "gathered_pitch_of_32_bits": [in_32_bits("(source < 0 ? 0 : source) * pitch")],
    "stored_pitch_of_32_bits": [in_32_bits("row * pitch", before="corner + ", after=" + place * int")],
    "grad_pitch_of_32_bits": [in_32_bits("row * pitch", before="load(&out->outerPitch) + ")],
    "grad_element_pitch_of_32_bits": [in_32_bits("row * part.pitch")],
    "copied_pitch_of_32_bits": [in_32_bits("source * fromPitch")],
    "copy_pitch_of_32_bits": [in_32_bits("at.row * toPitch")],
    "row_work_pitch_of_32_bits": [in_32_bits("row * load(&work->inPitch[operand])")],
    "row_work_result_pitch_of_32_bits": [in_32_bits("row * load(&work->outPitch[operand])")],
    # products with an activation
    "gate_and_up_exchanged": [Edit("activate<Shape, kHasGate>(product, gate, up, act);",
                                   "activate<Shape, kHasGate>(product, up, gate, act);")],
    "bias_added_after_rounding": [Edit("sum[i] * alpha + first",
                                       "firstBf16(packBf16(sum[i] * alpha, 0)) + first")],
    "up_next_to_gate": [Edit("load(&product->kind) == ProductKind::kActivation && isGated<Shape>(product)",
                             "isGated<Shape>(product) && load(&product->alpha) == 0")],
    "gate_up_of_next_slot": [Edit("rows.first * pitch", "(rows.first + 128) * pitch",
                                  before="load(&from->data) + ")],
    "gate_box_reaches_into_up": [Edit("columns.first + 64 <= columns.end", "columns.end > 0",
                                      after=" || columns.end")],
    "row_weight_grad_not_added": [Edit("load(to)", "0", before="row < rows.count) store(to, isAdded ? ")],
    "row_weight_grad_of_half_a_row": [without("sum += shuffleFloat(sum, laneIndex() ^ 2);")],
    # loads into stages by threads
    "no_proxy_fence_before_products": [without("if (isFenced) fenceProxyAsyncShared();")],
    "proxy_fence_before_the_stage_is_full": [
        Edit("", "if (isFenced) fenceProxyAsyncShared();", after="awaitFull(&memory->ring, *at, watch);"),
        without("if (isFenced) fenceProxyAsyncShared();"),
    ],
    "arrival_before_all_lanes_have_stored": [without("syncWarp();", after="  // the one arrival")],
    "parts_not_awaited": [without("if (isHeld) holdForParts(full);")],
    "unmapped_rows_not_masked": [Edit("row < end", "end >= 0", after=" ? indexedRow")],
    "map_not_fenced": [without("fenceMap(load(&record->matrices[each].map));")],
    "filled_row_without_divisor": [Edit("load(&from->divisor)", "1", before="indexedRow(index, row, ")],
    "gathered_row_without_divisor": [Edit("load(&operands->each[0].divisor)", "1", before="const int divisor = ")],
    "gathered_row_at_place_of_another": [Edit("swizzled(next + first, 16 * part)", "swizzled((next + first) ^ 1, 16 * part)")],
    "masked_row_gathered": [Edit("source >= 0 && left > 64 * box", "left > 64 * box")],
    # weight gradients
    "grad_rows_not_masked": [Edit("to.rows < 64 ? to.rows : 64", "64")],
    "grad_written_instead_of_added": [Edit("addBox(load(&out->map), staged, column, row, expert)",
                                           "storeBox(load(&out->map), staged, column, row, expert)")],
    "grad_added_by_every_warp": [Edit("128", "32", before="!isBox || threadIndex() % ")],
    "grad_box_of_first_warpgroup": [Edit("64 * group", "0", before="load(&grad->firstRow) + ")],
    "grad_of_empty_expert_left_out": [Edit("steps == 0 && isAdded(grad)", "steps == 0")],
    "grad_part_skips_sums": [Edit("sum[i + 1]", "sum[i]", before="takeSecond(before[i / 2]) + alpha * ")],
    # copies of rows and work on rows
    "copy_reaches_into_next_row": [Edit("load(&copy->bytes) - begin", "load(&copy->bytes) - begin + kUnit - 1",
                                        before="(", after=") / kUnit")],
    "copy_signals_before_barrier": [Edit(
        "syncNamed(kCommBarrier, kCommThreads);\n  if (threadIndex() == 32) signalEnd(chain, task);",
        "if (threadIndex() == 32) signalEnd(chain, task);\n  syncNamed(kCommBarrier, kCommThreads);")],
    "row_work_without_last_barrier": [without("endStores();", after="  // what all threads stored")],
    "sum_of_first_pairs": [Edit("load(&work->position) + firstPair", "load(&work->position)")],
    "sum_of_parts_weighted_early": [Edit("part[i] == parts - 1", "part[i] == 0")],
    "column_sum_without_first_barrier": [without("syncNamed(1 + group, 128);", after="  // what the memory held")],
    "sum_of_half_a_warp": [Edit("16", "8", before="for (int distance = ")],
    "up_rows_next_to_gate": [Edit("row + columns * sizeof(Bf16::Element)", "row",
                                  before="part.up = loadPart<Bf16>(")],
    "column_sum_of_one_slice_less": [Edit("kSumSlices", "kSumSlices - 1", before="i < ", after="; ++i) sum")],
}

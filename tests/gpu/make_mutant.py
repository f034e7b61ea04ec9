#!/usr/bin/env python3
"""Writes the kernel of chained products with a planted mistake (late_warpgroup: without) as one header.

usage: make_mutant.py NAME HEADER... > mutant.h      headers: those of the kernel, each after those that it includes

Every edit must match exactly once, so that no mutant becomes the kernel itself as the kernel changes. The
first fifteen mistakes are those of a prototype, where each was found. BUILD.bazel says what finds each.
"""

import os
import re
import sys

# No mistake: one warpgroup falls behind the other by whole tasks.
DELAY = ("    if (threadIndex() % 128 != 0 || addShared", """    if (mathGroup() == 1 && open % 2 == 0) sleepFor(500'000);
    if (threadIndex() % 128 != 0 || addShared""")

# By name: texts to find, and what stands there instead.
MUTANTS = {
    "late_warpgroup": [DELAY],
    "empty_counts_7_of_8_warps": [("initRing(&memory->products.ring, 1, 8)",
                                   "initRing(&memory->products.ring, 1, 7)")],
    "no_proxy_fence_after_acquire": [("  fenceProxyAsync();  // others wrote", "  // others wrote")],
    "too_few_bytes_announced": [("arriveExpecting(full, copied)", "arriveExpecting(full, copied - 128)")],
    "pitch_of_descriptor_halved": [("kWeight, Shape::kAreaBytes)", "kWeight, Shape::kAreaBytes / 2)")],
    "stage_released_before_its_products": [("    waitProducts<1>();", "")],
    "no_barrier_before_signal": [("  syncNamed(1 + mathGroup(), 128);  // plain stores of all threads\n", "")],
    "signal_lost": [("    signalEnd(chain, task);\n  }", "    if (open != 1) signalEnd(chain, task);\n  }")],
    "poll_without_acquire": [("  fenceAcquire();\n", "")],
    "rows_not_masked": [("const int rows = left < 0 ? 0 : left > 64 ? 64 : left;",
                         "const int rows = left < 0 ? 0 : 64;")],
    "k_step_of_15": [("weight + k * kWeightStep", "weight + k / 16 * 15 * kWeightStep")],
    "first_parity_wrong": [("const int before = at.parity ^ 1;", "const int before = at.parity;")],
    "staging_reused_before_read": [("  if (threadIndex() % 128 == 0) waitStoresRead<1>();", "")],
    "no_proxy_fence_before_store": [("  fenceProxyAsync();\n  syncNamed", "  syncNamed")],
    "stores_only_read_before_signal": [("waitStores<0>()", "waitStoresRead<0>()")],
    "first_warpgroup_signals": [("% 2 == 0) continue;", "% 2 == 1) continue;")],
    # found while the kernel was written
    "one_count_of_warpgroups": [("kOpenTasks = 4", "kOpenTasks = 1"), DELAY],
    "two_counts_of_warpgroups": [("kOpenTasks = 4", "kOpenTasks = 2"), DELAY],
    "record_released_before_read": [("    syncWarp();\n    release(&memory->records",
                                     "    release(&memory->records")],
    "staging_without_first_barrier": [("  syncNamed(1 + group, 128);\n  write(staged);", "  write(staged);")],
    "staging_without_second_barrier": [("  fenceProxyAsync();\n  syncNamed(1 + group, 128);\n",
                                        "  fenceProxyAsync();\n")],
    # of products with an activation
    "gate_and_up_exchanged": [("activate<kHasGate>(product, gate, up, act);",
                               "activate<kHasGate>(product, up, gate, act);")],
    "bias_added_after_rounding": [("packBf16(sum[i] * alpha + first, ",
                                   "packBf16(firstBf16(packBf16(sum[i] * alpha, 0)) + first, ")],
    "up_next_to_gate": [("load(&product->kind) == ProductKind::kActivation && isGated(product)",
                         "isGated(product) && load(&product->alpha) == 0")],
    "gate_up_of_next_slot": [("load(&from->data) + rows.first * pitch",
                              "load(&from->data) + (rows.first + 128) * pitch")],
    "gate_box_reaches_into_up": [("columns.first + 64 <= columns.end || columns.end",
                                  "columns.end > 0 || columns.end")],
    "row_weight_grad_not_added": [("row < rows.count) store(to, isAdded ? load(to)",
                                   "row < rows.count) store(to, isAdded ? 0")],
    "row_weight_grad_of_half_a_row": [("    sum += shuffleFloat(sum, laneIndex() ^ 2);\n", "")],
    # of plain loads into stages
    "no_proxy_fence_before_arrival": [("    fenceProxyAsync();  // products", "    // products")],
    "arrival_before_all_lanes_have_stored": [("    syncWarp();         // the one", "    // the one")],
    "unmapped_rows_not_masked": [("return row < end ? indexedRow", "return end >= 0 ? indexedRow")],
    "map_of_operand_not_fenced": [("  fenceMaps(operands);\n", "")],
    "map_of_result_not_fenced": [("    if (boxRows > 0) fenceMap(&out->map);\n", "")],
    "grad_map_not_fenced": [("    fenceMap(&out->map);\n    if (addsBox)", "    if (addsBox)")],
    "gathered_row_without_divisor": [("indexedRow(index, row, load(&from->divisor))", "indexedRow(index, row, 1)")],
    "gathered_row_at_place_of_another": [("to + row * kLoadedRowBytes", "to + (row ^ 1) * kLoadedRowBytes")],
    "gathered_row_beyond_the_slot": [("source < 0 ? load(&matrix->rows) : source", "source < 0 ? 0 : source")],
    # of weight gradients
    "grad_rows_not_masked": [("to.rows < 64 ? to.rows : 64", "64")],
    "grad_written_instead_of_added": [("      addBox(", "      storeBox(")],
    "grad_added_by_every_warp": [("!isBox || threadIndex() % 128 != 0", "!isBox || threadIndex() % 32 != 0")],
    "grad_box_of_first_warpgroup": [("load(&grad->firstRow) + 64 * group", "load(&grad->firstRow)")],
    "grad_of_empty_expert_left_out": [("if (steps == 0 && isAdded(grad))", "if (steps == 0)")],
    "grad_part_skips_sums": [("sum[kPart / 2 * part + i + 1]", "sum[kPart / 2 * part + i]")],
    # of copies of rows and work on rows
    "copy_reaches_into_next_row": [("(load(&copy->bytes) - begin) / kUnit",
                                    "(load(&copy->bytes) - begin + kUnit - 1) / kUnit")],
    "copy_signals_before_barrier": [("""  syncNamed(kCommBarrier, kCommThreads);
  if (threadIndex() == 32) signalEnd(chain, task);""", """  if (threadIndex() == 32) signalEnd(chain, task);
  syncNamed(kCommBarrier, kCommThreads);""")],
    "row_work_without_last_barrier": [("  endStores();  // what all threads stored\n", "")],
    "sum_of_first_pairs": [("load(&work->position) + firstPair", "load(&work->position)")],
    "sum_of_parts_weighted_early": [("if (part[i] == parts - 1) sum[n]", "if (part[i] == 0) sum[n]")],
    "column_sum_without_first_barrier": [("    syncNamed(1 + group, 128);  // what the memory held has been read\n", "")],
    "sum_of_half_a_warp": [("for (int distance = 16;", "for (int distance = 8;")],
    "up_rows_next_to_gate": [("part.up = loadPart<Bf16>(row + columns * sizeof(Bf16::Element), piece",
                              "part.up = loadPart<Bf16>(row, piece")],
    "column_sum_of_one_slice_less": [("i < kSumSlices; ++i) sum", "i < kSumSlices - 1; ++i) sum")],
}

# What weight gradients share with products, in cases of theirs.
for _name in ("no_proxy_fence_before_store", "staging_reused_before_read", "staging_without_first_barrier",
              "staging_without_second_barrier", "stores_only_read_before_signal"):
    MUTANTS["grad_" + _name] = MUTANTS[_name]


def main():
    name, headers = sys.argv[1], sys.argv[2:]
    text = ""
    parts = [os.path.basename(header).removesuffix(".h") for header in headers]
    for header in headers:
        with open(header, encoding="utf-8") as file:
            text += re.sub(r'#include "ops/gpu/(?:' + "|".join(parts) + r')\.h"\n', "", file.read())
    for find, replacement in MUTANTS[name]:
        count = text.count(find)
        if count != 1:
            sys.exit(f"mutant '{name}': found {count} times, expected once: {find!r}")
        text = text.replace(find, replacement)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()

// The passes of the compiler, in the order in which compiler/api/pipeline.cc runs them.
#ifndef SLUICE_COMPILER_PASSES_TD
#define SLUICE_COMPILER_PASSES_TD

include "mlir/Pass/PassBase.td"

def QuantizeWeights : Pass<"quantize-weights", "::mlir::ModuleOp"> {
  let summary = "gives weights of products codes, and a scale for each column of the product";
  let description = [{
    Before: a moe.graph. After: every input of bf16 that is the weight of a product, except inputs of `keep`, is of the codes of
    its encoding, two of 4 bits in a ui8, and there is an input NAME_scale, f32, with a number for all that share one; with
    zeros there is NAME_zero, too. Products with a weight in the opposite direction, as in a
    backward, read the same inputs. A graph that has weights of codes stays as it is. Fails: no such input; another reader
    of one; an encoding of a single weight that is none, or is of `keep`; a scale whose name is taken; sums that are no multiple of the group; an odd number of codes in a row.
    Test: tests/compiler/passes/quantize.mlir.
  }];
  let options = [
    ListOption<"keep", "keep", "std::string", "inputs that keep their type, because they are trained">,
    Option<"encode", "encode", "std::string", "\"int8\"", "encodings (runtime/base/encodings.h), whose encodings of weights count">,
  ];
}

def Differentiate : Pass<"differentiate", "::mlir::ModuleOp"> {
  let summary = "derives the entry that computes gradients";
  let description = [{
    Before: a moe.graph with one entry. After: an entry `backward` after it, with an input `d<output>` for each output
    of tokens or of rows that no node reads, and an output for each trainable tensor. The first entry saves what the
    second reads, and loses its other outputs of rows, which are meant for a separate backward pass. If it keeps
    `minimal`, an activation that is read again is recomputed from gate_up, provided that gate_up is kept anyway. With
    `regather`, rows are dispatched again, too, if their tokens are inputs or kept anyway. Fails: more than one entry;
    a trainable tensor that is not an input, has no gradient or does not reach an output; a trainable input of rows
    that all ranks of a group have whole; a node that has no derivative; gradients of one tensor that cannot be added
    (of weights, or weighted differently); rows of the caller that are weighted.
    Test: tests/compiler/passes/differentiate.mlir.
  }];
  let options = [
    ListOption<"trainable", "trainable", "std::string", "inputs to give gradients of; none: all that have one">,
    Option<"accumulate", "accumulate", "bool", "false", "derived weight gradients add to what their outputs hold">,
    Option<"keep", "keep", "std::string", "\"all\"", "all, minimal or regather: what the first entry saves">,
    Option<"grads", "grads", "std::string", "\"F32\"", "F32 or BF16: the type of derived weight gradients">,
  ];
}

def Fuse : Pass<"fuse", "::mlir::ModuleOp"> {
  let summary = "makes one node of a product and what reads it";
  let description = [{
    Before: a moe.graph. After: a scale by a power of two has become the alpha of the gmm before it or of the
    products after it; a gmm and its activation have become a gmm_activation, which also gives gate_up if something else
    reads or keeps it; a gmm and an activation_grad that is the only reader of its product have become a
    gmm_activation_grad. The name of a fused node is both names joined by an underscore. Nodes with different splits
    stay separate. Results keep their bits. Fails: a kind that does not exist. Test: tests/compiler/passes/fuse.mlir.
  }];
  let options = [
    ListOption<"kinds", "kinds", "std::string", "all, none, or of activation, activation-grad, scale; none given: all">,
  ];
}

def RoundProducts : Pass<"round-products", "::mlir::ModuleOp"> {
  let summary = "rounds the factors of products to 8-bit floats";
  let description = [{
    Before: a moe.graph of one entry without weight gradients. After: every moe.gmm rounds its rows and its weight as
    these encodings do, in blocks of 32 along the sum or by amaxes, and its derivative will round gradients. Fails: a
    graph that has more entries, or weight gradients, whose roles are unknown; factors that cannot be rounded;
    encodings that round nothing.
    Test: tests/compiler/passes/round_products.mlir.
  }];
  let options = [
    Option<"encode", "encode", "std::string", "\"mxfp8\"", "encodings (runtime/base/encodings.h) of trained, rows and grads">,
  ];
}

def WeightRows : Pass<"weight-rows", "::mlir::ModuleOp"> {
  let summary = "weights rows of weight gradients where they are written";
  let description = [{
    Before: a moe.graph whose backward is derived or given. After: no moe.gmm_weight_grad has a row scale, except those that
    round a factor. Instead a factor has been multiplied by it: an activation by the moe.activation_grad of the same gate_up and
    weights, which gives it as `gives_act`; other rows by a moe.scale. An activation that nothing else reads is not kept or
    computed again. A gradient keeps its bits if `a` is the factor that is multiplied; else the other factor is now
    the one that is rounded. Test: tests/compiler/passes/weight_rows.mlir.
  }];
}

def ScaleFactors : Pass<"scale-factors", "::mlir::ModuleOp"> {
  let summary = "gives products the amaxes by which they round their factors";
  let description = [{
    Before: products that round factors by an amax, but have none. After: the amax of rows is a node moe.amax or, if delayed, an input
    NAME_amax_used; the amax of the step is an output NAME_amax if delayed or asked for. The amax of a weight is an input NAME_amax. Fails: such
    a weight that is no input. Tests: tests/compiler/passes/scale_factors.mlir and scale_factors_inputs.mlir.
  }];
  let options = [Option<"delayed", "delayed", "bool", "false", "the caller gives the amaxes of rows">,
                 Option<"outputs", "outputs", "bool", "false", "amaxes of rows are outputs, too">];
}

def DelayWeightGrads : Pass<"delay-weight-grads", "::mlir::ModuleOp"> {
  let summary = "moves weight gradients to an entry of their own";
  let description = [{
    Before: a moe.graph with an entry `backward` whose factors have their amaxes, and whose kept rows are encoded. After: an entry `weight_grads` after it, with
    the outputs that a moe.gmm_weight_grad or a moe.column_sum gives, and the nodes that only these need. A dispatch stays in
    `backward`, so that the new entry needs no other rank; rows of it that only the new entry reads are copied. `backward` saves what the new entry reads of its nodes; inputs
    that only that one reads are its own. Results keep their bits. Fails: no `backward`; no weight gradient in it; no other node
    in it; an entry `weight_grads`. Test: tests/compiler/passes/delay_weight_grads.mlir.
  }];
}

def EncodeKept : Pass<"encode-kept", "::mlir::ModuleOp"> {
  let summary = "keeps codes of rows that weight gradients round";
  let description = [{
    Before: a moe.graph whose backward is derived. After: bf16 rows or tokens that a later entry has from an earlier one
    only as a factor of moe.gmm_weight_grad ops which round it in the same way to E4M3, and do not scale it, are kept as the
    results of a moe.encode. An amax by which they are rounded is measured in the earlier entry and kept, too, or an input
    of both. Results keep their bits. Test: tests/compiler/passes/encode_kept.mlir.
  }];
}

def EncodeDispatched : Pass<"encode-dispatched", "::mlir::ModuleOp"> {
  let summary = "sends codes of tokens that products round";
  let description = [{
    Before: a moe.graph whose products round rows in blocks. After: a moe.encode gives tokens codes in blocks along them, a
    moe.dispatch_codes sends these, and products read them; moe.encode, or one that is made for a moe.gmm_weight_grad that
    reads the rows, rounds their numbers again. Gradients are sent as before. Outputs of these rows are lost. Fails: rows that
    something reads in another form. Test: tests/compiler/passes/encode_dispatched.mlir, encode_dispatched_invalid.mlir.
  }];
}

def QuantizeRows : Pass<"quantize-rows", "::mlir::ModuleOp"> {
  let summary = "gives codes to rows that are multiplied by codes";
  let description = [{
    Before: a moe.graph. After: products of bf16 rows with a weight that has one scale per column of the product,
    or per group of 4-bit codes of it, read the codes and scales of a moe.quantize of these rows, if `rows`; products
    that read the same rows share it. Rows that a dispatch gives and that are read as codes alone are sent as codes: their
    tokens are quantised before, to the same codes. With `gradients`, so do products of an entry after another whose weight has one scale
    per number along the sum: moe.quantize multiplies columns by it, and the product has none. Others keep bf16 rows.
    Fails, with `gradients`: other scales in such an entry; zeros; no such entry.
    Test: tests/compiler/passes/quantize.mlir, tests/compiler/passes/quantize_gradients.mlir.
  }];
  let options = [
    Option<"rows", "rows", "bool", "true", "rows whose products have exact sums">,
    Option<"gradients", "gradients", "bool", "false", "rows of gradients, after columns are multiplied by scales">,
  ];
}

def PropagateSplits : Pass<"propagate-splits", "::mlir::ModuleOp"> {
  let summary = "gives every node the slot size that agrees with its producers";
  let description = [{
    Before: a moe.graph whose nodes may declare splits. After: every node except the route has a split with a size. A
    node is re-split if it is cut along another space than a node of its entry that it reads: for example a weight
    gradient, cut by experts, that reads rows, or a dispatch of computed tokens. `moe.resplit` names the nodes that it
    reads so, and it waits for all of their slots in the expert, or at this rank. Sizes of tokens and of rows are
    independent. All nodes of a program cut tokens by the same size, since they share slot tables, and rows by at most
    two sizes, of which one is a multiple of the other. A node between the two sizes is also re-split. A node that
    declares no size takes the smallest of its producers'; dispatch and combine have the smaller of two. Fails: two
    nodes cut a space differently (names both and where both splits are set); rows are cut by three sizes, pieces by
    the larger one, or rows by a size that is not a multiple of 16.
    Test: tests/compiler/passes/propagate_splits.mlir.
  }];
  let options = [
    Option<"rows", "rows", "int32_t", "128", "rows of a slot where no node declares them">,
    Option<"tokens", "tokens", "int32_t", "32", "tokens of a slot where no node declares them">,
  ];
}

def CheckSplits : Pass<"check-splits", "::mlir::ModuleOp"> {
  let summary = "checks that every node of a moe.graph has a split with a size, and that the splits agree";
  let description = [{
    Changes nothing. Fails: a node without a split or with one that disagrees with the rest, or a re-split without
    `moe.resplit`: then propagate-splits was not run, or a later change undid it.
    Test: tests/compiler/passes/check_splits.mlir.
  }];
}

#endif  // SLUICE_COMPILER_PASSES_TD

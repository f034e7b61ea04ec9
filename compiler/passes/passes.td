// The passes of the compiler, in the order in which pipeline.cc runs them.
#ifndef SLUICE_COMPILER_PASSES_TD
#define SLUICE_COMPILER_PASSES_TD

include "mlir/Pass/PassBase.td"

def Differentiate : Pass<"differentiate", "::mlir::ModuleOp"> {
  let summary = "derives the entry that computes gradients";
  let description = [{
    Before: a moe.graph with one entry. After: an entry `backward` after it, with an input `d<output>` for each output
    of tokens and an output for each trainable tensor; the first entry saves what the second reads, and its outputs
    of rows, which are there for a backward pass of its own, are gone. Where it keeps `minimal`, an activation that is
    read again is computed again from gate_up, if that is kept anyway. Fails: more entries than one, a trainable
    tensor that is no input, has no gradient or does not reach an output, a node that has no derivative, gradients of a
    tensor that cannot be added (of weights, or weighted differently). Test: tests/compiler/passes/differentiate.mlir.
  }];
  let options = [
    ListOption<"trainable", "trainable", "std::string", "inputs to give gradients of; none: all that have one">,
    Option<"accumulate", "accumulate", "bool", "false", "derived weight gradients add to what their outputs hold">,
    Option<"keep", "keep", "std::string", "\"all\"", "all or minimal: what the first entry saves">,
    Option<"grads", "grads", "std::string", "\"F32\"", "F32 or BF16: the type of derived weight gradients">,
  ];
}

def Fuse : Pass<"fuse", "::mlir::ModuleOp"> {
  let summary = "makes one node of a product and what reads it";
  let description = [{
    Before: a moe.graph. After: a scale by a power of two is the alpha of the gmm before it or of the products behind
    it; a gmm with its activation is a gmm_activation, which gives gate_up too where something else reads or keeps it; a
    gmm whose product only an activation_grad reads is a gmm_activation_grad with it. The name of a fused node is both
    names with an underscore between. Nodes with different splits stay apart. Results keep their bits. Fails: a kind
    that does not exist. Test: tests/compiler/passes/fuse.mlir.
  }];
  let options = [
    ListOption<"kinds", "kinds", "std::string", "all, none, or of activation, activation-grad, scale; none given: all">,
  ];
}

def PropagateSplits : Pass<"propagate-splits", "::mlir::ModuleOp"> {
  let summary = "gives every node the slot size that agrees with its producers";
  let description = [{
    Before: a moe.graph whose nodes may declare splits. After: every node but the route has a split with a size. A node
    that is cut along another space than a node of its entry that it reads - a weight gradient by expert what is cut by
    rows, a dispatch of computed tokens - is re-split: `moe.resplit` names those nodes, and it waits for all of their
    slots in the expert, or at this rank. Sizes of tokens and of rows have nothing to do with each other; all nodes of
    a program cut tokens alike, since they share slot tables, and rows by two sizes at most, of which one is a multiple
    of the other. Between these, too, a node is re-split. One that declares none takes the smallest of its producers';
    dispatch and combine have the smaller of two. Fails: two nodes cut a space differently (names both and where both
    splits are set), rows by three sizes, or pieces by the larger; rows are not cut by a multiple of 16.
    Test: tests/compiler/passes/propagate_splits.mlir.
  }];
  let options = [
    Option<"rows", "rows", "int32_t", "128", "rows of a slot where no node declares them">,
    Option<"tokens", "tokens", "int32_t", "32", "tokens of a slot where no node declares them">,
  ];
}

def CheckSplits : Pass<"check-splits", "::mlir::ModuleOp"> {
  let summary = "checks that every node of a moe.graph has a split with a size, and one size a space";
  let description = [{
    Changes nothing. Fails: a node without a split or with one that disagrees with the rest, or a re-split that
    is not said; propagate-splits was not run, or something undid it. Test: tests/compiler/passes/check_splits.mlir.
  }];
}

#endif  // SLUICE_COMPILER_PASSES_TD

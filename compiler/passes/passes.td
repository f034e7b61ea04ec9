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

def FormTasks : Pass<"form-tasks", "::mlir::ModuleOp"> {
  let summary = "turns the nodes of a moe.graph into the families of a task.program";
  let description = [{
    Before: one moe.graph with splits. After: a task.program with spaces, buffers without regions, and entries with
    families without events, in place of it; nodes whose rows are cut by the larger of two sizes are in space groups; a
    combine is two families, NAME.return and NAME.sum. Fails: there is no moe.graph, or more than one; a family has more
    than 2^20 tiles; a fused node where cube and vector cores are apart. Test: tests/compiler/passes/form_tasks.mlir.
  }];
  let dependentDialects = ["::sluice::task::TaskDialect"];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"", "name of the device model">,
    Option<"optionLine", "option-line", "std::string", "\"\"", "options as given to the compiler, for the program">,
    Option<"graphHash", "graph-hash", "uint64_t", "0", "hash of the graph, for the program">,
    Option<"cores", "cores", "int32_t", "8", "unified cores; unused where there are cube and vector cores">,
    Option<"cubeCores", "cube-cores", "int32_t", "0", "cores for products, where these are apart">,
    Option<"vectorCores", "vector-cores", "int32_t", "0", "cores for all else, where these are apart">,
    Option<"tokens", "tokens", "int32_t", "32", "tokens of a slot where no combine has them">,
    Option<"gmmColumns", "gmm-columns", "int32_t", "256", "most columns of a gmm in one task">,
    Option<"gradRows", "grad-rows", "int32_t", "256", "most rows of a weight gradient in one task">,
    Option<"gradColumns", "grad-columns", "int32_t", "256", "most columns of a weight gradient in one task">,
    Option<"tokensWindow", "tokens-window", "int32_t", "32", "slots of a window of tokens">,
    Option<"rowsWindow", "rows-window", "int32_t", "16", "slots of a window of rows">,
    Option<"sendsWindow", "sends-window", "int32_t", "64", "slots of a window of sends">,
    Option<"returnsWindow", "returns-window", "int32_t", "64", "slots of a window of returns">,
    Option<"expertsWindow", "experts-window", "int32_t", "1", "slots of a window of experts">,
  ];
}

def InsertEvents : Pass<"insert-events", "::sluice::task::ProgramOp"> {
  let summary = "adds the events that order reads after writes";
  let description = [{
    Before: families without events. After: event arrays, and waits and signals of every family. Fails: a buffer
    that two families of an entry write or that is read before it is written, rows sent that nobody waits for, more
    than two events a family. Test: tests/compiler/passes/insert_events.mlir.
  }];
}

def AssignCores : Pass<"assign-cores", "::sluice::task::ProgramOp"> {
  let summary = "deals the tasks of every family to the seats of a lane of its own";
  let description = [{
    Before: entries without lanes. After: a lane a family, priority 0, for the cores of the family's kind; where some
    vector cores only communicate, sends and returns are for these and all else is for the others. Fails: an entry
    that has lanes, more than 2^20 tasks a window. Test: tests/compiler/passes/assign_cores.mlir.
  }];
  let options = [
    Option<"communicationCores", "communication-cores", "int32_t", "0", "vector cores that only send and return">,
  ];
}

def OrderQueues : Pass<"order-queues", "::sluice::task::ProgramOp"> {
  let summary = "sets which lane a core tries first";
  let description = [{
    Before: a lane a family. After: priorities from 0 in each entry: communication, then the chain and the weight
    gradients as the rule of the entry says: `end`, the chain from its end to its beginning, weight gradients last;
    `begin`, the chain from its beginning; `end-grads` and `begin-grads`, weight gradients in the chain by their depth.
    Fails: a rule that does not exist. Test: tests/compiler/passes/order_queues.mlir.
  }];
  let options = [
    ListOption<"rules", "rules", "std::string", "end, begin, end-grads or begin-grads, by entry; not given: end">,
  ];
}

def PlanMemory : Pass<"plan-memory", "::sluice::task::ProgramOp"> {
  let summary = "gives every buffer that the runtime owns a region, shared where lifetimes allow";
  let description = [{
    Before: no regions. After: regions, and a region for every temporary and saved buffer and every output of rows, and
    the place in its strides where that is not the begin. Fails: a program that has regions.
    Tests: tests/compiler/passes/plan_memory.mlir, plan_memory_beside.mlir.
  }];
}

def CheckTasks : Pass<"check-tasks", "::sluice::task::ProgramOp"> {
  let summary = "checks that a task.program is complete";
  let description = [{
    Changes nothing. Fails: a family that is not dealt exactly once to exactly one lane, an event that nobody signals
    or waits for, a buffer of the runtime without a region. Whether the schedule is sound is for verify() to say.
    Test: tests/compiler/passes/check_tasks.mlir.
  }];
}

#endif  // SLUICE_COMPILER_PASSES_TD

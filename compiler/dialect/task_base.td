// The `task` dialect: its attributes. The cases of the enums have the values of runtime/program/program.h.
#ifndef SLUICE_COMPILER_DIALECT_TASK_BASE_TD
#define SLUICE_COMPILER_DIALECT_TASK_BASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Task_Dialect : Dialect {
  let name = "task";
  let cppNamespace = "::sluice::task";
  let summary = "a task program: families of tasks, events, lanes and memory";
  let description = [{
    Mirrors runtime/program/program.h, which says what each field means. Records refer to each other by name: names
    are unique by kind in the program, those of events, families and lanes in their entry.
  }];
  let useDefaultAttributePrinterParser = 1;
}

class Task_Enum<string name, string text, list<I32EnumAttrCase> cases> : I32EnumAttr<name, text, cases> {
  let cppNamespace = "::sluice::task";
}

def Task_SpaceKind : Task_Enum<"SpaceKind", "what tasks are numbered by", [
  I32EnumAttrCase<"tokens", 0>, I32EnumAttrCase<"rows", 1>, I32EnumAttrCase<"sends", 2>,
  I32EnumAttrCase<"returns", 3>, I32EnumAttrCase<"experts", 4>, I32EnumAttrCase<"once", 5>, I32EnumAttrCase<"groups", 6>,
]>;

def Task_Extent : Task_Enum<"Extent", "what a dimension is measured in", [
  I32EnumAttrCase<"fixed", 0>, I32EnumAttrCase<"T", 1>, I32EnumAttrCase<"R", 2>, I32EnumAttrCase<"P", 3>,
  I32EnumAttrCase<"E", 4>,
]>;

def Task_Role : Task_Enum<"Role", "whose memory a buffer is, and for how long", [
  I32EnumAttrCase<"input", 0>, I32EnumAttrCase<"output", 1>, I32EnumAttrCase<"temp", 2>,
  I32EnumAttrCase<"saved", 3>,
]>;

def Task_EventSpace : Task_Enum<"EventSpace", "how many counters an event array has", [
  I32EnumAttrCase<"one", 0>, I32EnumAttrCase<"rows", 1>, I32EnumAttrCase<"experts", 2>,
  I32EnumAttrCase<"tokens", 3>, I32EnumAttrCase<"groups", 4>,
]>;

def Task_EventUnit : Task_Enum<"EventUnit", "what a signal adds", [
  I32EnumAttrCase<"tasks", 0>, I32EnumAttrCase<"rows", 1>,
]>;

def Task_ThresholdRule : Task_Enum<"ThresholdRule", "when an event is complete", [
  I32EnumAttrCase<"constant", 0>, I32EnumAttrCase<"rows_of_slot", 1>, I32EnumAttrCase<"slots_of_expert", 2>,
  I32EnumAttrCase<"rows_of_expert", 3>, I32EnumAttrCase<"valid_pairs", 4>, I32EnumAttrCase<"slots_of_tokens", 5>,
  I32EnumAttrCase<"slots_of_group", 6>, I32EnumAttrCase<"groups_of_expert", 7>,
  I32EnumAttrCase<"experts_of_rank", 8>,
]>;

def Task_OpKind : Task_Enum<"OpKind", "what the tasks of a family do", [
  I32EnumAttrCase<"dispatch", 0>, I32EnumAttrCase<"gmm", 1>, I32EnumAttrCase<"gmm_weight_grad", 2>,
  I32EnumAttrCase<"activation", 3>, I32EnumAttrCase<"activation_grad", 4>,
  I32EnumAttrCase<"combine_return", 5>, I32EnumAttrCase<"combine_sum", 6>, I32EnumAttrCase<"add", 7>,
  I32EnumAttrCase<"scale", 8>, I32EnumAttrCase<"gmm_activation", 9>, I32EnumAttrCase<"gmm_activation_grad", 10>,
]>;

def Task_CoreKind : Task_Enum<"CoreKind", "which cores run a family", [
  I32EnumAttrCase<"unified", 0>, I32EnumAttrCase<"cube", 1>, I32EnumAttrCase<"vector", 2>,
]>;

class Task_Int<string value = "0"> : DefaultValuedParameter<"int32_t", value>;

def Task_Activation : AttrOrTypeParameter<"::sluice::ActivationKind", "an activation"> {
  let parser = "::sluice::parseActivation($_parser)";
  let printer = "$_printer << ::sluice::text::word($_self)";
  let defaultValue = "::sluice::ActivationKind{}";
}

def Task_TilingAttr : AttrDef<Task_Dialect, "Tiling"> {
  let mnemonic = "tiling";
  let summary = "the tiling descriptor of a family; fields of 0 are not printed";
  let parameters = (ins Task_Int<>:$m, Task_Int<>:$n, Task_Int<>:$k, Task_Int<>:$tile_m, Task_Int<>:$tile_n,
                        Task_Int<>:$flags, OptionalParameter<"::mlir::FloatAttr", "f32">:$alpha,
                        Task_Activation:$activation, OptionalParameter<"::mlir::FloatAttr", "bf16 as f32">:$limit);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif  // SLUICE_COMPILER_DIALECT_TASK_BASE_TD

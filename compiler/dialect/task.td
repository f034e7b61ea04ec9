// The `task` dialect: its ops.
#ifndef SLUICE_COMPILER_DIALECT_TASK_TD
#define SLUICE_COMPILER_DIALECT_TASK_TD

include "compiler/dialect/task_base.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/RegionKindInterface.td"

class Task_Op<string mnemonic, list<Trait> traits = []> : Op<Task_Dialect, mnemonic, traits>;

def Task_SeatTable : TypedArrayAttrBase<DenseI32ArrayAttr, "(family, slot, tile) of each task, by seat">;

def Task_ProgramOp : Task_Op<"program", [IsolatedFromAbove, NoRegionArguments, NoTerminator, SingleBlock]> {
  let summary = "a task program, complete or on its way";
  let description = [{
    Holds spaces, regions and buffers, then entries. The passes fill it in this order: families, events, lanes,
    priorities, regions. Its verifier checks names and references, not the schedule: that is verify() of the runtime.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$ranks, I64Attr:$experts, I64Attr:$top_k, I64Attr:$max_tokens,
                       I64Attr:$cores, DefaultValuedAttr<I64Attr, "0">:$cube_cores,
                       DefaultValuedAttr<I64Attr, "0">:$vector_cores, StrAttr:$target, OptionalAttr<StrAttr>:$options,
                       OptionalAttr<I64Attr>:$graph_hash, DictionaryAttr:$symbols);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $name `ranks` `=` $ranks `experts` `=` $experts `top_k` `=` $top_k `max_tokens` `=` $max_tokens
    `cores` `=` $cores (`cube` `=` $cube_cores^ `vector` `=` $vector_cores)? `target` $target (`options` $options^)? (`graph_hash` `=` $graph_hash^)?
    `symbols` $symbols attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Task_SpaceOp : Task_Op<"space", [HasParent<"ProgramOp">]> {
  let summary = "what tasks are numbered by, and how many slots one run of a table covers";
  let arguments = (ins StrAttr:$name, Task_SpaceKind:$kind, I32Attr:$slot, I32Attr:$window);
  let assemblyFormat = "$kind $name `slot` `=` $slot `window` `=` $window attr-dict";
  let hasVerifier = 1;
}

def Task_RegionOp : Task_Op<"region", [HasParent<"ProgramOp">]> {
  let summary = "a stretch of runtime-owned memory";
  let arguments = (ins StrAttr:$name, Task_Extent:$extent, I64Attr:$stride, UnitAttr:$symmetric,
                       UnitAttr:$saved);
  let assemblyFormat = [{
    $name $extent `stride` `=` $stride (`symmetric` $symmetric^)? (`saved` $saved^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Task_BufferOp : Task_Op<"buffer", [HasParent<"ProgramOp">]> {
  let summary = "a tensor of the program: `task.buffer saved \"act\" : [R, 768] bf16 in \"act\"`";
  let description = [{
    `shape` holds kTokens, kRows, kPairs and kExperts for the run-time extents T, R, P and E; `offset` the bytes from the begin of
    the region's stride, where that is not 0.
  }];
  let arguments = (ins StrAttr:$name, Task_Role:$role, DenseI64ArrayAttr:$shape, TypeAttr:$element_type,
                       OptionalAttr<StrAttr>:$region, OptionalAttr<StrAttr>:$alias, OptionalAttr<I64Attr>:$offset);
  let assemblyFormat = [{
    $role $name `:` custom<Shape>($shape) $element_type (`in` $region^)? (`at` $offset^)? (`alias` $alias^)?
    attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    static constexpr int64_t kTokens = -1;
    static constexpr int64_t kRows = -2;
    static constexpr int64_t kPairs = -3;
    static constexpr int64_t kExperts = -4;
  }];
}

def Task_EntryOp : Task_Op<"entry", [HasParent<"ProgramOp">, NoRegionArguments, NoTerminator, SingleBlock]> {
  let summary = "what a caller runs: its events, families and lanes";
  let description = "Routes by the buffer `ids`, or uses the tables of the earlier entry `routing`.";
  let arguments = (ins StrAttr:$name, OptionalAttr<StrAttr>:$ids, OptionalAttr<StrAttr>:$routing);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name (`ids` $ids^)? (`routing` $routing^)? attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Task_EventOp : Task_Op<"event", [HasParent<"EntryOp">]> {
  let summary = "an array of counters: one a slot, an expert, or one in all";
  let arguments = (ins StrAttr:$name, Task_EventSpace:$space, Task_EventUnit:$unit,
                       Task_ThresholdRule:$rule, I64Attr:$factor, UnitAttr:$remote);
  let assemblyFormat = [{
    $name `space` $space `counts` $unit `until` $rule `(` $factor `)` (`remote` $remote^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Task_FamilyOp : Task_Op<"family", [HasParent<"EntryOp">]> {
  let summary = "one node after splitting: its tasks differ in slot and tile only";
  let description = "`reads` and `writes` are the operands by position; an absent optional one is the empty name.";
  let arguments = (ins StrAttr:$name, Task_OpKind:$op, StrAttr:$space, I32Attr:$tiles, Task_TilingAttr:$tiling,
                       Task_CoreKind:$core, StrArrayAttr:$reads, StrArrayAttr:$writes,
                       OptionalAttr<StrArrayAttr>:$waits, OptionalAttr<StrArrayAttr>:$signals,
                       OptionalAttr<StrAttr>:$alias);
  let assemblyFormat = [{
    $op $name `on` $space `tiles` `=` $tiles $tiling `core` $core `reads` $reads `writes` $writes
    (`waits` $waits^)? (`signals` $signals^)? (`alias` $alias^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Task_LaneOp : Task_Op<"lane", [HasParent<"EntryOp">]> {
  let summary = "an in-order list of tasks for each core, for one window of a space";
  let description = [{
    `seats` has one array a core: triples of (index into `families`, slot in the window, tile). Its cores are those of
    its kind from `first_core` on.
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$space, Task_CoreKind:$core, StrArrayAttr:$families,
                       I32Attr:$priority, I32Attr:$rotation, Task_SeatTable:$seats,
                       DefaultValuedAttr<I32Attr, "0">:$first_core);
  let assemblyFormat = [{
    $name `on` $space `core` $core (`from` $first_core^)? `runs` $families `priority` `=` $priority `rotation` `=` $rotation
    `seats` $seats attr-dict
  }];
  let hasVerifier = 1;
}

#endif  // SLUICE_COMPILER_DIALECT_TASK_TD

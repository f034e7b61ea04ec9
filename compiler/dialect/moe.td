// The `moe` dialect: its ops.
#ifndef SLUICE_COMPILER_DIALECT_MOE_TD
#define SLUICE_COMPILER_DIALECT_MOE_TD

include "compiler/dialect/moe_base.td"
include "compiler/dialect/moe_gradient.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Moe_Op<string mnemonic, list<Trait> traits = []> : Op<Moe_Dialect, mnemonic, traits>;

// --- Graph and entries ---------------------------------------------------------------------------------

def Moe_GraphOp : Moe_Op<"graph", [IsolatedFromAbove, NoRegionArguments, NoTerminator, SingleBlock, Symbol,
                                   SymbolTable]> {
  let summary = "a layer: one or more entries and its limits";
  let description = [{
    ```mlir
    moe.graph @train ranks = 4 experts = 64 top_k = 8 max_tokens = 4096 symbols {hidden = 2048 : i64} {
      moe.entry @forward { ... }
      moe.entry @backward after @forward { ... }
    }
    ```
    `experts` is the number over all ranks. If it is a multiple of `ranks`, rank r owns experts
    r * E .. (r + 1) * E - 1 with E = experts / ranks; else the first (experts mod ranks) ranks own one more than the
    others, and E is an extent. With `tp`, a divisor of `ranks`, this holds for the groups of tp neighbouring ranks
    instead: the ranks of a group share its experts, each with a shard of their weights. `tokens` says whether these
    ranks have tokens of their `own` or the `same`. With `spare`, `experts` counts places of experts, of which so many
    are beyond one per expert; the placement of `moe.route` says which expert is where. `symbols` are the values that
    gave the graph its sizes, for information only. Tensor names are unique in the graph, except that entries may share
    an input, and that `moe.saved` has the name of a tensor that an earlier entry saved.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$ranks, OptionalAttr<I64Attr>:$tp,
                       OptionalAttr<Moe_TokenHoldersAttr>:$tokens, I64Attr:$experts, OptionalAttr<I64Attr>:$spare,
                       I64Attr:$top_k, I64Attr:$max_tokens, DictionaryAttr:$symbols);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `ranks` `=` $ranks (`tp` `=` $tp^)? (`tokens` `=` $tokens^)? `experts` `=` $experts
    (`spare` `=` $spare^)? `top_k` `=` $top_k `max_tokens` `=` $max_tokens
    `symbols` $symbols attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::sluice::Mesh getMesh() {
      const auto tp = static_cast<int32_t>(getTp().value_or(1));
      return {static_cast<int32_t>(getRanks()) / tp, tp, getTokens().value_or(::sluice::TokenHolders::kOwn)};
    }
    ::sluice::ExpertDeal getDeal() { return {getMesh(), static_cast<int32_t>(getExperts())}; }
    bool expertsDiffer() { return getDeal().differ(); }
    // The first dimension of weights: a number, or the extent E.
    int64_t getExpertsOfRank() { return expertsDiffer() ? MoeTensorType::kExperts : getDeal().most(); }
  }];
}

def Moe_EntryOp : Moe_Op<"entry", [HasParent<"GraphOp">, NoRegionArguments, NoTerminator, SingleBlock, Symbol]> {
  let summary = "a part of the layer that a caller runs at once";
  let description = [{
    It has exactly one routing: its own `moe.route`, or the routing of the entry it runs `after`, by `moe.saved "routing"`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<FlatSymbolRefAttr>:$after);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name (`after` $after^)? attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

class Moe_SourceOp<string mnemonic> : Moe_Op<mnemonic, [HasParent<"EntryOp">,
                                             DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let assemblyFormat = "$tensor attr-dict `:` qualified(type($value))";
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) { setName(getValue(), getTensor()); }
  }];
}

class Moe_SinkOp<string mnemonic> : Moe_Op<mnemonic, [HasParent<"EntryOp">]> {
  let assemblyFormat = "$tensor `,` $value attr-dict `:` qualified(type($value))";
}

def Moe_InputOp : Moe_SourceOp<"input"> {
  let summary = "a read-only tensor that the caller binds";
  let description = [{
    If ranks share experts, `shard` says which part of a tensor this is at each of them; without it they have all of it. The type
    has the shape of the part.
  }];
  let arguments = (ins StrAttr:$tensor, OptionalAttr<Moe_ShardingAttr>:$sharding);
  let results = (outs Moe_Tensor:$value);
  let assemblyFormat = "$tensor (`shard` $sharding^)? attr-dict `:` qualified(type($value))";
}

def Moe_SavedOp : Moe_SourceOp<"saved"> {
  let summary = "a value that `moe.save` kept under this name in an entry that this one runs after";
  let arguments = (ins StrAttr:$tensor);
  let results = (outs AnyTypeOf<[Moe_Tensor, Moe_Routing]>:$value);
}

def Moe_OutputOp : Moe_SinkOp<"output"> {
  let summary = "returns a tensor that a node of this entry produced to the caller";
  let description = [{
    An output of rows may declare, with `shard`, which part of the tensor this is at each of the ranks that share
    experts: the phase shard-tensors checks it, and the gradient of this output in a derived entry has it.
  }];
  let arguments = (ins StrAttr:$tensor, Moe_Tensor:$value,
                       OptionalAttr<Moe_ShardingAttr>:$sharding);
  let assemblyFormat =
      "$tensor `,` $value (`shard` $sharding^)? attr-dict `:` qualified(type($value))";
  let hasVerifier = 1;
}

def Moe_SaveOp : Moe_SinkOp<"save"> {
  let summary = "keeps a tensor or the routing of this entry for a later entry";
  let arguments = (ins StrAttr:$tensor, AnyTypeOf<[Moe_Tensor, Moe_Routing]>:$value);
}

// --- Nodes ---------------------------------------------------------------------------------------------

// `node` names the node, `tensors` names its results.
class Moe_Node<string mnemonic, list<Trait> traits = []>
    : Moe_Op<mnemonic, traits # [HasParent<"EntryOp">, Pure, Moe_NodeOpInterface,
                                 DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  dag nodeAttrs = (ins StrAttr:$node, OptionalAttr<StrArrayAttr>:$tensors,
                       OptionalAttr<Moe_Split>:$split);
  string scales = "(`row_scale` `(` $row_scale^ `)`)? (`weight_scale` `(` $weight_scale^ `)`)? "
                  "(`weight_zero` `(` $weight_zero^ `)`)? (`row_amax` `(` $row_amax^ `)`)? "
                  "(`weight_amax` `(` $weight_amax^ `)`)? (`weight_factor` `(` $weight_factor^ `)`)? ";
  dag amaxesAndFactor = (ins Optional<Moe_Tensor>:$row_amax, Optional<Moe_Tensor>:$weight_amax,
                             Optional<Moe_Tensor>:$weight_factor);
  dag roundings = (ins OptionalAttr<Moe_RoundingAttr>:$round_a, OptionalAttr<Moe_RoundingAttr>:$round_b);
  string tail = " (`split` $split^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  string ofNode = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) { nameResults(*this, setName); }
  }];
  // For ops of which nothing else is checked than what their row of the op table says of tensors.
  string checkedByRow = ofNode # [{
    ::mlir::LogicalResult $cppClass::verify() { return checkTensors(*this); }
  }];
  let extraClassDefinition = ofNode;
}

// A node with a derivative; moe_derivatives.cc has its contribution to a backward entry.
class Moe_Differentiable<string mnemonic, list<Trait> traits = [], list<string> overrides = []>
    : Moe_Node<mnemonic, traits # [DeclareOpInterfaceMethods<Moe_DifferentiableOpInterface, overrides>]>;

def Moe_RouteOp : Moe_Node<"route", [AttrSizedOperandSegments]> {
  let summary = "expert ids [T,K] -> routing; without ids, every token goes to every expert";
  let description = [{
    Ids are global and distinct within a row; -1 means no expert. The ids must be a `moe.input`, because they are
    read before the step begins. Without ids, top_k of the graph is its number of experts.

    `placement` [experts], also an input, is the id of the expert at each place; without it, expert i is at place i. The
    rows of an expert with several places, for which the graph has spare ones, are dealt to them.
  }];
  let arguments = !con((ins Optional<Moe_Tensor>:$ids, Optional<Moe_Tensor>:$placement), nodeAttrs);
  let results = (outs Moe_Routing:$routing);
  let assemblyFormat = "$node (`(` $ids^ `)`)? (`placement` `(` $placement^ `)`)?" # tail;
}

def Moe_DispatchOp : Moe_Differentiable<"dispatch"> {
  let summary = "tokens [T,H] -> rows [R,H] on the rank that owns the expert";
  let description = [{
    Tokens are bf16 or f32, and rows have their bits. With `weights` [T,K], the second result [R] is the weight of
    each row; the rows are not scaled.
  }];
  let arguments = !con((ins Moe_Tensor:$tokens, Moe_Routing:$routing, Optional<Moe_Tensor>:$weights), nodeAttrs);
  let results = (outs Moe_Tensor:$rows, Optional<Moe_Tensor>:$row_weights);
  let assemblyFormat = "$node `(` $tokens `,` $routing `)` (`weights` `(` $weights^ `)`)?" # tail;
}

def Moe_DispatchCodesOp : Moe_Node<"dispatch_codes"> {
  let summary = "codes of tokens [T,H] and their scales -> both of rows, on the rank that owns the expert";
  let description = [{
    As moe.dispatch, with all bits. Codes i8 have scales f32 [T], one per token; codes f8E4M3FN have bf16 [T,H/32], one for each
    32 numbers of a token.
  }];
  let arguments = !con((ins Moe_Tensor:$codes, Moe_Tensor:$scales, Moe_Routing:$routing), nodeAttrs);
  let results = (outs Moe_Tensor:$rows, Moe_Tensor:$row_scales);
  let assemblyFormat = "$node `(` $codes `,` $scales `,` $routing `)`" # tail;
}

def Moe_GmmOp : Moe_Differentiable<"gmm", [AttrSizedOperandSegments]> {
  let summary = "rows [R,C] times the weight [E,C,N] of their expert -> [R,N]; `transpose`: weight [E,N,C]";
  let description = [{
    A dense layer on tokens has [T,C] as rows and one weight [C,N] or [N,C], and gives [T,N]. `alpha`, finite and
    not 0, is a factor of the product, applied in f32 before rounding. A `bias` [E,N], or [N] of tokens, is added to
    that, also before rounding.

    A weight of codes has a `weight_scale`, whose dimensions divide the weight's: [E,1,N] is one per column of the
    product, or [E,N,1] with `transpose`. bf16 rows are multiplied by its numbers in bf16. Rows of codes, which need such a
    weight, have a `row_scale` [R]; their sums are exact. Their weight may also have no scale: its numbers are then the
    codes. Rows may also be codes f8E4M3FN of moe.encode with a bf16 `row_scale` [R,C/32], in blocks along them, which are
    those that `round_a` says; their weight is bf16. An element of ui8 has two codes of 4 bits: the weight is
    [E,C,N/2], or [E,N,C/2] with `transpose`. It may have a `weight_zero`, as its scales, and scales of groups along the sum for
    rows of codes, too. With scales of f8E8M0 or f8E4M3FN its codes are E2M1, which bf16 rows multiply. Beside scales of f8E4M3FN
    it may have a `weight_factor` [E,1], or [1] of tokens, f32, which multiplies the sums as `alpha` does.

    `round_a` and `round_b` say how rows and weight are rounded before they are multiplied, in blocks of 32 along the
    sum or by the largest magnitude of each expert's rows and weight, `row_amax` and `weight_amax` [E,1], or [1] of
    tokens; and `round_grads` how products of the derivative round the gradient of this one.
  }];
  let arguments = !con((ins Moe_Tensor:$rows, Moe_Tensor:$weight, Optional<Moe_Tensor>:$bias,
                            Optional<Moe_Tensor>:$row_scale, Optional<Moe_Tensor>:$weight_scale,
                            Optional<Moe_Tensor>:$weight_zero),
                       amaxesAndFactor, (ins UnitAttr:$transpose, OptionalAttr<F32Attr>:$alpha), roundings,
                       (ins OptionalAttr<Moe_RoundingAttr>:$round_grads), nodeAttrs);
  let results = (outs Moe_Tensor:$product);
  let assemblyFormat = "$node `(` $rows `,` $weight `)` (`bias` `(` $bias^ `)`)? " # scales # "(`transpose` $transpose^)? "
                       "(`alpha` $alpha^)?" # tail;
}

def Moe_GmmWeightGradOp : Moe_Node<"gmm_weight_grad", [AttrSizedOperandSegments]> {
  let summary = "a [R,M], b [R,N], optional row scale [R] -> sum over the rows of each expert [E,M,N]";
  let description = [{
    The result is f32 or bf16; sums are f32 and rounded once. For tokens, a [T,M] and b [T,N], it is the sum over this
    rank's tokens [M,N]. `alpha`, finite and not 0, is a factor of the sum. With `accumulate` the sums are added to the
    content of the output that the caller has bound; for experts without rows it stays unchanged. The gradient must
    then be a `moe.output`, because nothing else has content before the step. `round_a` and `round_b` as for moe.gmm, in
    blocks of 32 rows of an expert; b, or a with `scale_a`, is then rounded after it was multiplied by the row scale, and
    by an amax before. The other factor may be the codes of a moe.encode with that rounding and amax, and has its `scales`
    and `end_scales` if these are in blocks.
  }];
  let arguments = !con((ins Moe_Tensor:$a, Moe_Tensor:$b, Optional<Moe_Tensor>:$row_scale,
                            Optional<Moe_Tensor>:$a_amax, Optional<Moe_Tensor>:$b_amax,
                            Optional<Moe_Tensor>:$scales, Optional<Moe_Tensor>:$end_scales,
                            UnitAttr:$accumulate, UnitAttr:$scale_a, OptionalAttr<F32Attr>:$alpha),
                       roundings, nodeAttrs);
  let results = (outs Moe_Tensor:$grad);
  let assemblyFormat = "$node `(` $a `,` $b `)` (`scale` `(` $row_scale^ `)`)? (`a_amax` `(` $a_amax^ `)`)? "
                       "(`b_amax` `(` $b_amax^ `)`)? (`codes_of` `(` $scales^ `,` $end_scales `)`)? "
                       "(`alpha` $alpha^)? (`accumulate` $accumulate^)? (`scale_a` $scale_a^)?" # tail;
}

def Moe_EncodeOp : Moe_Node<"encode", [AttrSizedOperandSegments]> {
  let summary = "rows [R,N] or tokens [T,N], rounded -> codes f8E4M3FN of that shape, and the scales of blocks";
  let description = [{
    The codes that a product makes of a factor that it rounds in the same way. By an `amax` [E,1], or [1] of tokens, codes are the
    only result. In blocks, each of which shares a power of two, bf16, N is a multiple of 32. A moe.gmm rounds rows in blocks of
    32 numbers of a row: a second result, scales [R,N/32], has a number for each block. A moe.gmm_weight_grad rounds in blocks of
    32 rows of an expert in a column: scales [R,N/32] has the scales of whole blocks, and a third result, end scales [E,N], or [N]
    of tokens, the scales of an expert's last block, if that is shorter. The value may be codes along rows itself, with their
    `value_scale`: the numbers that they stand for are rounded again.
  }];
  let arguments = !con((ins Moe_Tensor:$value, Optional<Moe_Tensor>:$amax, Optional<Moe_Tensor>:$value_scale,
                            Moe_RoundingAttr:$round_a), nodeAttrs);
  let results = (outs Moe_Tensor:$codes, Variadic<Moe_Tensor>:$scales);
  let assemblyFormat = "$node $round_a `(` $value `)` (`amax` `(` $amax^ `)`)? (`scale` `(` $value_scale^ `)`)?" # tail;
  let extraClassDeclaration = [{
    // Whether it needs all rows of an expert: it makes blocks down columns.
    bool isDown() { return getScales().size() == 2; }
  }];
}

def Moe_AmaxOp : Moe_Node<"amax"> {
  let summary = "a [R,N] -> the largest finite magnitude in the rows of each expert [E,1]; of tokens [T,N] -> [1]";
  let arguments = !con((ins Moe_Tensor:$a), nodeAttrs);
  let results = (outs Moe_Tensor:$amax);
  let assemblyFormat = "$node `(` $a `)`" # tail;
  let extraClassDefinition = checkedByRow;
}

def Moe_ColumnSumOp : Moe_Node<"column_sum"> {
  let summary = "a [R,N], optional row scale [R] -> sum over the rows of each expert [E,N]";
  let description = [{
    The gradient of a bias. The result is f32 or bf16; sums are f32 and rounded once. For tokens, a [T,N], it is the
    sum over this rank's tokens [N]. `accumulate` as for moe.gmm_weight_grad.
  }];
  let arguments = !con((ins Moe_Tensor:$a, Optional<Moe_Tensor>:$row_scale, UnitAttr:$accumulate), nodeAttrs);
  let results = (outs Moe_Tensor:$sums);
  let assemblyFormat = "$node `(` $a `)` (`scale` `(` $row_scale^ `)`)? (`accumulate` $accumulate^)?" # tail;
  let extraClassDefinition = checkedByRow;
}

def Moe_RowDotOp : Moe_Node<"row_dot"> {
  let summary = "a [R,N], b [E,N], optional addend [R] -> addend + dot product of each row with its expert's row of b [R]";
  let description = [{
    The part of a bias in the gradient of a routing weight. On tokens, a [T,N], b is [N]. Sums are f32.
  }];
  let arguments = !con((ins Moe_Tensor:$a, Moe_Tensor:$b, Optional<Moe_Tensor>:$addend), nodeAttrs);
  let results = (outs Moe_Tensor:$dots);
  let assemblyFormat = "$node `(` $a `,` $b `)` (`add` `(` $addend^ `)`)?" # tail;
  let extraClassDefinition = checkedByRow;
}

def Moe_ActivationOp : Moe_Differentiable<"activation", [], ["isRecomputable"]> {
  let summary = "gate_up [R,2I], gate in columns 0 .. I-1, up in I .. 2I-1 -> f(gate) * up [R,I]";
  let description = [{
    On rows or tokens. A kind without a gate gives f(gate_up) of gate_up [R,I]; so in all ops with a kind. program.fbs
    defines f for each kind. `limit`, only for kinds that clamp, is a positive number that bf16 can represent.
  }];
  let arguments = !con((ins Moe_Tensor:$gate_up, Moe_ActivationKindAttr:$kind, OptionalAttr<F32Attr>:$limit),
                       nodeAttrs);
  let results = (outs Moe_Tensor:$act);
  let assemblyFormat = "$node $kind `(` $gate_up `)` (`limit` $limit^)?" # tail;
}

// A node that gives the gradient of an activation and perhaps `more` about its rows.
class Moe_GradientNode<string mnemonic, list<Trait> traits = []> : Moe_Node<mnemonic, traits> {
  dag gradients = (outs Moe_Tensor:$gate_up_grad, Variadic<Moe_Tensor>:$more);
  let extraClassDeclaration = [{
    // [R,I], or null: the activation, rounded to bf16, times the row's weight.
    ::mlir::Value getWeightedAct() { return getGivesAct() ? getMore().back() : ::mlir::Value(); }
  }];
}

def Moe_ActivationGradOp : Moe_GradientNode<"activation_grad"> {
  let summary = "gradient of the activation, times the row's weight, and the gradient of that weight";
  let description = [{
    `act_grad` [R,I] is the gradient of the activation before the row's weight [R] was applied. Missing weights
    count as 1. A second result [R], on request, is the dot product of `act_grad` and the activation. With `gives_act`, the
    last result [R,I] is the activation, rounded to bf16, times the row's weight. All of these may be of tokens instead.
  }];
  let arguments = !con((ins Moe_Tensor:$act_grad, Moe_Tensor:$gate_up, Optional<Moe_Tensor>:$row_weights,
                            Moe_ActivationKindAttr:$kind, OptionalAttr<F32Attr>:$limit, UnitAttr:$gives_act), nodeAttrs);
  let results = gradients;
  let assemblyFormat =
      "$node $kind `(` $act_grad `,` $gate_up `)` (`weights` `(` $row_weights^ `)`)? (`limit` $limit^)? "
      "(`gives_act` $gives_act^)?" # tail;
}

def Moe_CombineOp : Moe_Differentiable<"combine", [AttrSizedOperandSegments]> {
  let summary = "rows [R,H] -> sum over k of weight * row [T,H], at the token and on the rank they came from";
  let description = [{
    Rows are bf16 or f32, and the sum and the bias are of that type. Missing `weights` [T,K] count as 1. `scalars` [R] travel with their rows and come back as the second
    result [T,K]; a pair without an expert gets 0. A `bias` [H] is added once per token, before rounding.
  }];
  let arguments = !con((ins Moe_Tensor:$rows, Moe_Routing:$routing, Optional<Moe_Tensor>:$weights,
                            Optional<Moe_Tensor>:$scalars, Optional<Moe_Tensor>:$bias), nodeAttrs);
  let results = (outs Moe_Tensor:$sum, Optional<Moe_Tensor>:$token_scalars);
  let assemblyFormat = "$node `(` $rows `,` $routing `)` (`weights` `(` $weights^ `)`)? "
                       "(`scalars` `(` $scalars^ `)`)? (`bias` `(` $bias^ `)`)?" # tail;
}

def Moe_AddOp : Moe_Differentiable<"add"> {
  let summary = "a + b, both of rows [R,N] or of tokens [T,N]";
  let arguments = !con((ins Moe_Tensor:$a, Moe_Tensor:$b), nodeAttrs);
  let results = (outs Moe_Tensor:$sum);
  let assemblyFormat = "$node `(` $a `,` $b `)`" # tail;
  let extraClassDefinition = checkedByRow;
}

def Moe_ScaleOp : Moe_Differentiable<"scale"> {
  let summary = "alpha times rows [R,N] or tokens [T,N], bf16 or f32; alpha is finite and not 0";
  let description = [{
    With `weights` [R], or [T] of tokens, each row is also multiplied by its weight, before it is rounded once.
  }];
  let arguments = !con((ins Moe_Tensor:$value, Optional<Moe_Tensor>:$row_weights, F32Attr:$alpha), nodeAttrs);
  let results = (outs Moe_Tensor:$scaled);
  let assemblyFormat = "$node `(` $value `)` (`weights` `(` $row_weights^ `)`)? `by` $alpha" # tail;
}

def Moe_QuantizeOp : Moe_Node<"quantize"> {
  let summary = "rows [R,N] or tokens [T,N] -> codes i8 of that shape, and their scale [R] or [T]";
  let description = [{
    The scale of a row is its largest magnitude divided by 127, and its codes are the nearest whole numbers.
    docs/PRECISION.md has the formula. `column_scale` [E,1,N] or [E,N,1], of tokens without E, multiplies the columns of
    the rows of each expert before.
  }];
  let arguments = !con((ins Moe_Tensor:$value, Optional<Moe_Tensor>:$column_scale), nodeAttrs);
  let results = (outs Moe_Tensor:$codes, Moe_Tensor:$scale);
  let assemblyFormat = "$node `(` $value `)` (`column_scale` `(` $column_scale^ `)`)?" # tail;
  let extraClassDefinition = checkedByRow;
}

// --- Fused nodes ---------------------------------------------------------------------------------------

// Made by the pass fuse; they have no derivative, because differentiation comes first.

def Moe_GmmActivationOp : Moe_Node<"gmm_activation", [AttrSizedOperandSegments]> {
  let summary = "a gmm and the activation of its product, which need not be kept";
  let description = [{
    On rows or tokens, as moe.gmm. The product gate_up is rounded as if it were stored, so two separate nodes give the same
    results. It is a result on request.
  }];
  let arguments = !con((ins Moe_Tensor:$rows, Moe_Tensor:$weight, Optional<Moe_Tensor>:$bias,
                            Optional<Moe_Tensor>:$row_scale, Optional<Moe_Tensor>:$weight_scale,
                            Optional<Moe_Tensor>:$weight_zero),
                       amaxesAndFactor, (ins UnitAttr:$transpose, OptionalAttr<F32Attr>:$alpha, Moe_ActivationKindAttr:$kind,
                                    OptionalAttr<F32Attr>:$limit), roundings, nodeAttrs);
  let results = (outs Moe_Tensor:$act, Optional<Moe_Tensor>:$gate_up);
  let assemblyFormat = "$node $kind `(` $rows `,` $weight `)` (`bias` `(` $bias^ `)`)? " # scales #
                       "(`transpose` $transpose^)? "
                       "(`alpha` $alpha^)? (`limit` $limit^)?" # tail;
}

def Moe_GmmActivationGradOp : Moe_GradientNode<"gmm_activation_grad", [AttrSizedOperandSegments]> {
  let summary = "a gmm and the activation_grad that reads its product as act_grad, which is not kept";
  let description = [{
    On rows or tokens, as moe.gmm. The product is rounded as if it were stored, so two separate nodes give the same results.
  }];
  let arguments = !con((ins Moe_Tensor:$rows, Moe_Tensor:$weight, Moe_Tensor:$gate_up,
                            Optional<Moe_Tensor>:$row_weights, Optional<Moe_Tensor>:$row_scale,
                            Optional<Moe_Tensor>:$weight_scale, Optional<Moe_Tensor>:$weight_zero),
                       amaxesAndFactor, (ins UnitAttr:$transpose, OptionalAttr<F32Attr>:$alpha, Moe_ActivationKindAttr:$kind,
                                    OptionalAttr<F32Attr>:$limit, UnitAttr:$gives_act), roundings, nodeAttrs);
  let results = gradients;
  let assemblyFormat = "$node $kind `(` $rows `,` $weight `,` $gate_up `)` (`weights` `(` $row_weights^ `)`)? " # scales #
                       "(`transpose` $transpose^)? (`alpha` $alpha^)? (`limit` $limit^)? "
                       "(`gives_act` $gives_act^)?" # tail;
}

#endif  // SLUICE_COMPILER_DIALECT_MOE_TD

// The `moe` dialect: its types, attributes and the interface of its nodes.
#ifndef SLUICE_COMPILER_DIALECT_MOE_BASE_TD
#define SLUICE_COMPILER_DIALECT_MOE_BASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Moe_Dialect : Dialect {
  let name = "moe";
  let cppNamespace = "::sluice::moe";
  let summary = "one MoE-FFN layer as a graph of tensors of one rank";
  let description = [{
    Tensors have symbolic leading extents: `T`, the tokens of this rank; `R`, the rows it receives; and `E`, the experts
    it owns, if ranks own different numbers. All other dimensions are numbers. Activations and weights are bf16, routing
    weights and row scalars f32, weight gradients f32 or bf16, expert ids i32; the verifiers refuse anything else. Factors
    of products may also be codes, i8, which count times a scale, f32: one per row, or one for each of equal blocks of a
    weight.
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

// --- Types ---------------------------------------------------------------------------------------------

class Moe_Type<string name, string typeMnemonic> : TypeDef<Moe_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Moe_Tensor : Moe_Type<"MoeTensor", "tensor"> {
  let summary = "a tensor of this rank: `!moe.tensor<T x 2048 x bf16>`";
  let description = [{
    The leading dimension is `T`, `R`, `E` or a number, the others are numbers. `shape` has kTokens, kRows and
    kExperts for the symbolic ones. One to three dimensions.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$shape, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    static constexpr int64_t kTokens = -1;
    static constexpr int64_t kRows = -2;
    static constexpr int64_t kExperts = -4;

    bool hasTokens() const { return getShape().front() == kTokens; }
    bool hasRows() const { return getShape().front() == kRows; }
  }];
}

def Moe_F8E8M0 : Moe_Type<"F8E8M0", "f8E8M0"> {
  let summary = "elements that are powers of two, of 8 bits";
}

def Moe_Routing : Moe_Type<"Routing", "routing"> {
  let summary = "where the pairs (token, k) of a step go: permutation, counts of all ranks, slot tables";
}

// --- Attributes ----------------------------------------------------------------------------------------

// A value of an enumeration of program.fbs, written as its word.
class Moe_EnumParameter<string name> : AttrOrTypeParameter<"::sluice::" # name, "a word of program.fbs"> {
  let parser = "::sluice::parseEnumWord<::sluice::" # name # ">($_parser)";
  let printer = "$_printer << ::sluice::text::word($_self)";
}
class Moe_EnumAttr<string name, string attrMnemonic, string about> : AttrDef<Moe_Dialect, name> {
  let mnemonic = attrMnemonic;
  let summary = about;
  let parameters = (ins Moe_EnumParameter<name>:$value);
  let assemblyFormat = "$value";
  let returnType = "::sluice::" # name;
  let convertFromStorage = "$_self.getValue()";
  let constBuilderCall = "::sluice::moe::" # name # "Attr::get($_builder.getContext(), $0)";
}
def Moe_ActivationKindAttr : Moe_EnumAttr<"ActivationKind", "activation_kind",
                                          "element-wise function between the two products">;
def Moe_TokenHoldersAttr : Moe_EnumAttr<"TokenHolders", "token_holders", "which ranks of a group hold which tokens">;
def Moe_RoundingAttr : Moe_EnumAttr<"Rounding", "rounding", "how a factor of a product is rounded">;
def Moe_ShardingAttr : Moe_EnumAttr<"Sharding", "sharding", "what a rank has of a tensor that tp ranks share">;

def Moe_SplitSpace : I32EnumAttr<"SplitSpace", "index set that a split cuts", [
  I32EnumAttrCase<"tokens", 0>,
  I32EnumAttrCase<"rows", 1>,
  I32EnumAttrCase<"experts", 2>,
]> {
  let cppNamespace = "::sluice::moe";
  let genSpecializedAttr = 0;
}

def Moe_Split : AttrDef<Moe_Dialect, "Split"> {
  let mnemonic = "split";
  let summary = "how a node is cut: `#moe.split<rows, 128>`";
  let description = [{
    `size` elements of `space` per slot; 0 takes the producer's size. A node without a split takes space and size
    from its producer.
  }];
  let parameters = (ins EnumParameter<Moe_SplitSpace>:$space, "int64_t":$size);
  let assemblyFormat = "`<` $space `,` $size `>`";
  let genVerifyDecl = 1;
}

// --- Nodes ---------------------------------------------------------------------------------------------

def Moe_NodeOpInterface : OpInterface<"NodeOp"> {
  let cppNamespace = "::sluice::moe";
  let description = [{
    A node of the graph: an op that computes. The interface checks names, result names and the space of the
    split; shapes and types are checked by the verifier of each op.
  }];
  let methods = [
    InterfaceMethod<"Name, unique in the entry.", "::llvm::StringRef", "getNode">,
    InterfaceMethod<"Names of the result tensors, one per result, or null.", "::mlir::ArrayAttr", "getTensorsAttr">,
    InterfaceMethod<"How this node is cut, or null.", "::sluice::moe::SplitAttr", "getSplitAttr">,
    InterfaceMethod<"Sets how this node is cut.", "void", "setSplitAttr", (ins "::sluice::moe::SplitAttr":$split)>,
  ];
  let verify = "return ::sluice::moe::verifyNode($_op);";
}

#endif  // SLUICE_COMPILER_DIALECT_MOE_BASE_TD

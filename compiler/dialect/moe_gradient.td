// The interface of the nodes of the `moe` dialect that have a derivative.
#ifndef SLUICE_COMPILER_DIALECT_MOE_GRADIENT_TD
#define SLUICE_COMPILER_DIALECT_MOE_GRADIENT_TD

include "mlir/IR/OpBase.td"

def Moe_DifferentiableOpInterface : OpInterface<"DifferentiableOp"> {
  let cppNamespace = "::sluice::moe";
  let description =
      [{
    A node that contributes nodes to a backward entry. It is called after all nodes that read its results, so that
    the gradients of the results are known. It gets forward values from GradientBuilder::kept(); values that no node
    reads in the end are neither computed nor kept.
  }];
  let methods =
      [InterfaceMethod<
           "Builds the gradients of those operands that need one. If there is no op for it, reports that and fails.",
           "::llvm::LogicalResult", "buildGradients", (ins "::sluice::moe::GradientBuilder &":$gradients)>,
       InterfaceMethod<"Whether results can be recomputed at little cost from the operands, if these are "
                       "kept anyway.",
                       "bool", "isRecomputable", (ins), "", "return false;">,
  ];
}

#endif // SLUICE_COMPILER_DIALECT_MOE_GRADIENT_TD

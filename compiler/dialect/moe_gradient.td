// The interface of the nodes of the `moe` dialect that have a derivative.
#ifndef SLUICE_COMPILER_DIALECT_MOE_GRADIENT_TD
#define SLUICE_COMPILER_DIALECT_MOE_GRADIENT_TD

include "mlir/IR/OpBase.td"

def Moe_DifferentiableOpInterface : OpInterface<"DifferentiableOp"> {
  let cppNamespace = "::sluice::moe";
  let description =
      [{
    A node that contributes nodes to a backward entry. It is asked behind all nodes that read its results, so that
    the gradients of these are known. What it needs of the forward it takes by GradientBuilder::kept(), and what
    nobody reads in the end is neither computed nor kept.
  }];
  let methods =
      [InterfaceMethod<
           "Builds the gradients of those operands that need one. Fails where there is no such op, reported.",
           "::llvm::LogicalResult", "buildGradients", (ins "::sluice::moe::GradientBuilder &":$gradients)>,
       InterfaceMethod<"Whether results may be computed again from the operands, where these are kept "
                       "anyway, at little cost.",
                       "bool", "isRecomputable", (ins), "", "return false;">,
  ];
}

#endif // SLUICE_COMPILER_DIALECT_MOE_GRADIENT_TD

// The `task` dialect: a task program as MLIR, between form-tasks and emit. See task.td.
#pragma once

#include "compiler/dialect/activation.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"

// Generated from task.td; MLIR's generators leave parameters unused.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "compiler/dialect/task_dialect.h.inc"
#include "compiler/dialect/task_enums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialect/task_attrs.h.inc"
#define GET_OP_CLASSES
#include "compiler/dialect/task_ops.h.inc"
#pragma GCC diagnostic pop

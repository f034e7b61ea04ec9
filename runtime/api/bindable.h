// What the caller may bind to a program's tensors. Free functions; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/api/program.h"

namespace sluice {

// The input or output of that name.
std::optional<BufferId> findBindable(const TaskProgram& program, std::string_view name);

// The error that there is no tensor of that name; it lists those that there are.
Error unknownBindable(const TaskProgram& program, std::string_view name);

// Errors: type, shape, number of tokens, no data, an address between two elements.
Status checkBindable(const TaskProgram& program, int rank, const Buffer& buffer, const TensorView& tensor);

}  // namespace sluice

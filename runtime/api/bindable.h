// What the caller may bind to a program's tensors. Free functions; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/api/program.h"

namespace sluice {

// The input or output of that name.
std::optional<BufferId> findBindable(const TaskProgram& program, std::string_view name);

// The error for a name that no tensor has; it lists the names that exist.
Error unknownBindable(const TaskProgram& program, std::string_view name);

// Errors: type, shape, number of tokens, no data, an address that is not a multiple of the element size.
Status checkBindable(const TaskProgram& program, int rank, const Buffer& buffer, const TensorView& tensor);

}  // namespace sluice

// Program: a loaded and verified program; TensorView: memory that is bound to its tensors, and what may be
// bound.
//
// Value types: a program is shared by its copies, and by any number of contexts and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "runtime/program/verify.h"

namespace sluice {

// A contiguous row-major tensor in the caller's memory, which it does not own.
struct TensorView {
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  void* data = nullptr;

  int64_t elements() const;
  int64_t bytes() const { return elements() * dtypeBytes(type); }
};

// A loaded and verified program. Cheap to copy; shared by contexts and threads.
class Program {
 public:
  // Errors: from readProgram() and verify(), with the path.
  static Expected<Program> load(const std::string& path);
  static Expected<Program> fromBytes(std::span<const std::byte> bytes);
  static Expected<Program> fromTaskProgram(TaskProgram program);

  const TaskProgram& tables() const { return **verified_; }
  const VerifiedProgram& verified() const { return *verified_; }
  int ranks() const { return tables().mesh.peers(); }

 private:
  std::shared_ptr<const VerifiedProgram> verified_;
};

// The input or output of that name.
std::optional<BufferId> findBindable(const TaskProgram& program, std::string_view name);

// The error for a name that no tensor has; it lists the names that exist.
Error unknownBindable(const TaskProgram& program, std::string_view name);

// Errors: type, shape, number of tokens, no data, an address that is not a multiple of the element size.
Status checkBindable(const TaskProgram& program, int rank, const Buffer& buffer, const TensorView& tensor);

}  // namespace sluice

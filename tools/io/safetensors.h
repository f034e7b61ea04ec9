// Reads and writes safetensors files: 8 bytes little-endian header size N, N bytes of JSON, then the data.
//
//   {"x": {"dtype": "BF16", "shape": [5, 64], "data_offsets": [0, 640]}, ...}
//
// Offsets count from the end of the header; the tensors cover the data without holes or overlaps. Types F32,
// BF16, F16, I32, I64. Reading is safe for untrusted files: nothing larger than the file is ever allocated.
// Free functions on values; any thread.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/pending_file.h"
#include "tools/io/tensor.h"

namespace sluice::tools {

// A tensor to write, in memory that the caller owns.
struct TensorRef {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
};

// The place of one tensor in a file.
struct TensorEntry {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the end of the header
  int64_t end = 0;
};

// The entries of a header, in the order of their data. `json` is the header without its size; `dataBytes` is
// the number of bytes after it. Errors name the tensor, what was found and what was expected.
Expected<std::vector<TensorEntry>> parseSafetensorsHeader(std::string_view json, int64_t dataBytes);

// A file whose tensors are read one by one. Resource type, movable; any thread may read. Errors begin with
// the path.
class SafetensorsFile {
 public:
  static Expected<SafetensorsFile> open(const std::string& path);

  TensorMap described() const;                           // all tensors, without their data
  Expected<Tensor> read(const std::string& name) const;  // one of them

 private:
  std::string path_;
  FileDescriptor file_;
  int64_t dataBegin_ = 0;
  std::map<std::string, TensorEntry> entries_;
};

// All of its tensors. Errors begin with the path.
Expected<TensorMap> readSafetensors(const std::string& path);

// References to all tensors of a map, which must outlive them.
std::vector<TensorRef> tensorRefs(const TensorMap& tensors);

// Writes the file except for its rename, which commit() of the result does. Same tensors, same bytes: data is
// ordered by descending element size, then by name, so that every tensor is aligned to its elements; the
// header is padded with spaces to a multiple of 8.
Expected<PendingFile> stageSafetensors(const std::string& path, std::vector<TensorRef> tensors);

Status writeSafetensors(const std::string& path, const TensorMap& tensors);

}  // namespace sluice::tools

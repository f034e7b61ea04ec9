#include "tools/io/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/one_line.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::json;

// The limit of the format's reference implementation.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxRank = 8;

Status readAt(int fd, int64_t offset, void* data, int64_t bytes) {
  auto* out = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, out, static_cast<size_t>(bytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{fmt::format("cannot read: {}", std::strerror(errno))};
    if (n == 0) return Error{"the file was cut short while it was read"};
    out += n;
    offset += n;
    bytes -= n;
  }
  return {};
}

// nlohmann silently keeps the last of two equal keys; the format forbids them.
Expected<Json> parseJson(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string repeated;
  bool deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    deep = deep || depth > 8;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      repeated = value.get<std::string>();
    return !deep;
  };
  try {
    Json json = Json::parse(text, watch);
    if (deep) return Error{"the header is nested too deeply"};
    if (!repeated.empty()) return Error{fmt::format("the header has '{}' twice", repeated)};
    if (!json.is_object()) return Error{"the header is not a JSON object"};
    return json;
  } catch (const Json::parse_error& error) {
    return Error{fmt::format("the header is not valid JSON at its byte {}", error.byte)};
  } catch (const Json::exception&) {
    return Error{"the header is not valid JSON"};
  }
}

// A JSON number that is an integer from 0 to the largest int64.
std::optional<int64_t> asSize(const Json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;
  const uint64_t value = json.get<uint64_t>();
  if (value > uint64_t{INT64_MAX}) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<std::vector<int64_t>> asSizes(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const Json& item : json) {
    const std::optional<int64_t> size = asSize(item);
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

Expected<TensorEntry> parseEntry(const std::string& name, const Json& json, int64_t dataBytes) {
  const auto fail = [&](std::string what) { return Error{fmt::format("tensor '{}': {}", name, what)}; };
  if (!json.is_object()) return fail("found no JSON object, expected dtype, shape and data_offsets");
  for (const auto& [key, value] : json.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return fail(fmt::format("found field '{}', expected dtype, shape and data_offsets", key));
  if (!json.contains("dtype") || !json["dtype"].is_string()) return fail("dtype is not a string");
  const auto& typeName = json["dtype"].get_ref<const std::string&>();
  const std::optional<DType> type = dtypeFromName(typeName);
  if (!type) return fail(fmt::format("found dtype '{}', expected F32, BF16, F16, I32 or I64", typeName));

  const std::optional<std::vector<int64_t>> shape =
      json.contains("shape") ? asSizes(json["shape"]) : std::nullopt;
  if (!shape) return fail("shape is not a list of sizes");
  if (shape->size() > kMaxRank)
    return fail(fmt::format("found {} dimensions, expected at most {}", shape->size(), kMaxRank));
  const std::optional<int64_t> bytes = tensorBytes(*type, *shape);
  if (!bytes) return fail(fmt::format("the size of {} overflows", describeTensor(*type, *shape)));

  const std::optional<std::vector<int64_t>> offsets =
      json.contains("data_offsets") ? asSizes(json["data_offsets"]) : std::nullopt;
  if (!offsets || offsets->size() != 2) return fail("data_offsets is not a list of two offsets");
  const int64_t begin = (*offsets)[0], end = (*offsets)[1];
  if (begin > end || end > dataBytes)
    return fail(fmt::format("found data_offsets [{}, {}], expected a range inside the {} bytes of data",
                            begin, end, dataBytes));
  if (end - begin != *bytes)
    return fail(fmt::format("found {} bytes of data, expected {} for {}", end - begin, *bytes,
                            describeTensor(*type, *shape)));
  return TensorEntry{name, *type, *shape, begin, end};
}

// The tensors must cover the data exactly.
Status checkCover(const std::vector<TensorEntry>& entries, int64_t dataBytes) {
  int64_t at = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != at)
      return Error{fmt::format("tensor '{}': found data from byte {}, expected from byte {} ({})", entry.name,
                               entry.begin, at, entry.begin < at ? "tensors overlap" : "a hole in the data")};
    at = entry.end;
  }
  if (at != dataBytes)
    return Error{fmt::format("found {} bytes of data, but the tensors end at byte {}", dataBytes, at)};
  return {};
}

Status checkMetadata(const Json& json) {
  if (!json.is_object()) return Error{"__metadata__ is not a JSON object"};
  for (const auto& [key, value] : json.items())
    if (!value.is_string()) return Error{fmt::format("__metadata__ '{}' is not a string", key)};
  return {};
}

struct Header {
  std::vector<TensorEntry> entries;
  int64_t dataBegin = 0;
};

Expected<Header> readHeader(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return Error{fmt::format("cannot read: {}", std::strerror(errno))};
  if (!S_ISREG(info.st_mode)) return Error{"cannot read: not a regular file"};
  const int64_t size = info.st_size;
  if (size < 8) return Error{fmt::format("found {} bytes, expected a safetensors file of 8 or more", size)};
  std::array<unsigned char, 8> prefix;
  if (Status status = readAt(fd, 0, prefix.data(), 8); !status) return status.error();
  uint64_t headerBytes = 0;
  for (int i = 7; i >= 0; --i) headerBytes = headerBytes << 8 | prefix[static_cast<size_t>(i)];
  if (headerBytes > static_cast<uint64_t>(size - 8) || headerBytes > kMaxHeaderBytes)
    return Error{
        fmt::format("found a header of {} bytes, expected at most {}: truncated or no safetensors file",
                    headerBytes, std::min<uint64_t>(static_cast<uint64_t>(size - 8), kMaxHeaderBytes))};
  std::string header(headerBytes, '\0');
  const int64_t dataBegin = 8 + static_cast<int64_t>(headerBytes);
  if (Status status = readAt(fd, 8, header.data(), dataBegin - 8); !status) return status.error();
  Expected<std::vector<TensorEntry>> entries = parseSafetensorsHeader(header, size - dataBegin);
  if (!entries) return entries.error();
  return Header{std::move(*entries), dataBegin};
}

std::string headerText(const std::vector<TensorRef>& tensors) {
  // written by hand, because the entries must be in the order of the data; the JSON library escapes names
  std::string text = "{";
  int64_t at = 0;
  for (const TensorRef& tensor : tensors) {
    const int64_t end = at + *tensorBytes(tensor.type, tensor.shape);
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                        text.size() > 1 ? "," : "", Json(tensor.name).dump(), dtypeName(tensor.type),
                        Json(tensor.shape).dump(), at, end);
    at = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

Expected<std::vector<TensorEntry>> parseSafetensorsHeader(std::string_view json, int64_t dataBytes) {
  if (json.empty() || json.front() != '{') return Error{"the header does not begin with '{'"};
  Expected<Json> header = parseJson(json);
  if (!header) return header.error();
  std::vector<TensorEntry> entries;
  for (const auto& [name, value] : header->items()) {
    if (name == "__metadata__") {
      if (Status status = checkMetadata(value); !status) return status.error();
      continue;
    }
    Expected<TensorEntry> entry = parseEntry(name, value, dataBytes);
    if (!entry) return entry.error();
    entries.push_back(std::move(*entry));
  }
  // empty tensors share their offset with the next one, so the end decides
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  if (Status status = checkCover(entries, dataBytes); !status) return status.error();
  return entries;
}

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile opened;
  opened.path_ = path;
  // O_NONBLOCK: a pipe without a writer must be refused, not waited for.
  opened.file_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.file_) return Error{fmt::format("{}: cannot read: {}", path, std::strerror(errno))};
  Expected<Header> header = readHeader(opened.file_.get());
  if (!header) return Error{oneLine(fmt::format("{}: {}", path, header.error().message))};
  opened.dataBegin_ = header->dataBegin;
  for (TensorEntry& entry : header->entries) {
    std::string name = entry.name;
    opened.entries_.emplace(std::move(name), std::move(entry));
  }
  return opened;
}

TensorMap SafetensorsFile::described() const {
  TensorMap tensors;
  for (const auto& [name, entry] : entries_)
    tensors.emplace(name, Tensor::described(entry.type, entry.shape));
  return tensors;
}

Expected<Tensor> SafetensorsFile::read(const std::string& name) const {
  const TensorEntry& entry = entries_.at(name);
  Tensor tensor(entry.type, entry.shape);
  if (Status status = readAt(file_.get(), dataBegin_ + entry.begin, tensor.data(), tensor.bytes()); !status)
    return Error{oneLine(fmt::format("{}: {}", path_, status.error().message))};
  return tensor;
}

Expected<TensorMap> readSafetensors(const std::string& path) {
  const Expected<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.error();
  TensorMap tensors = file->described();
  for (auto& [name, tensor] : tensors) {
    Expected<Tensor> read = file->read(name);
    if (!read) return read.error();
    tensor = std::move(*read);
  }
  return tensors;
}

std::vector<TensorRef> tensorRefs(const TensorMap& tensors) {
  std::vector<TensorRef> refs;
  for (const auto& [name, tensor] : tensors)
    refs.push_back({name, tensor.type(), tensor.shape(), tensor.data()});
  return refs;
}

Expected<PendingFile> stageSafetensors(const std::string& path, std::vector<TensorRef> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorRef& a, const TensorRef& b) {
    return std::pair(-dtypeBytes(a.type), std::string_view(a.name)) <
           std::pair(-dtypeBytes(b.type), std::string_view(b.name));
  });
  Expected<PendingFile> file = PendingFile::create(path);
  if (!file) return file;
  const std::string header = headerText(tensors);
  std::array<std::byte, 8> prefix;
  for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<std::byte>(header.size() >> (8 * i) & 0xff);
  if (Status status = file->write(prefix); !status) return status.error();
  if (Status status = file->write(std::as_bytes(std::span(header))); !status) return status.error();
  for (const TensorRef& tensor : tensors) {
    const auto bytes = static_cast<size_t>(*tensorBytes(tensor.type, tensor.shape));
    if (Status status = file->write({tensor.data, bytes}); !status) return status.error();
  }
  if (Status status = file->finish(); !status) return status.error();
  return file;
}

Status writeSafetensors(const std::string& path, const TensorMap& tensors) {
  Expected<PendingFile> file = stageSafetensors(path, tensorRefs(tensors));
  if (!file) return file.error();
  return file->commit();
}

}  // namespace sluice::tools

#include "tools/io/safetensors.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

// A folder of its own for each test.
class Scratch {
 public:
  Scratch() {
    const char* base = std::getenv("TEST_TMPDIR");
    std::string name = std::string(base ? base : "/tmp") + "/io-XXXXXX";
    REQUIRE(::mkdtemp(name.data()));
    path_ = name;
  }
  ~Scratch() { fs::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// The bytes of a file with this header and this much data.
std::string fileOf(const std::string& header, size_t dataBytes) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + std::string(dataBytes, 'd');
}

TensorMap someTensors() {
  TensorMap map;
  unsigned char next = 1;
  const auto add = [&](const char* name, DType type, std::vector<int64_t> shape) {
    Tensor tensor(type, std::move(shape));
    for (int64_t i = 0; i < tensor.bytes(); ++i) tensor.data()[i] = std::byte{next++};
    map.emplace(name, std::move(tensor));
  };
  add("x", DType::kBF16, {3, 5});
  add("half", DType::kF16, {1});
  add("ids", DType::kI32, {3, 2});
  add("wide", DType::kI64, {2});
  add("scale", DType::kF32, {});
  add("none", DType::kBF16, {0, 5});
  return map;
}

std::string readError(const std::string& path) {
  const Expected<TensorMap> result = readSafetensors(path);
  REQUIRE_FALSE(result.ok());
  return result.error().message;
}

TEST_CASE("tensors of every type come back as they were written, 64-byte aligned") {
  const Scratch dir;
  const TensorMap map = someTensors();
  REQUIRE(writeSafetensors(dir / "a", map).ok());
  const Expected<TensorMap> back = readSafetensors(dir / "a");
  REQUIRE(back.ok());
  REQUIRE(back->size() == map.size());
  for (const auto& [name, tensor] : map) {
    INFO(name);
    const Tensor& other = back->at(name);
    CHECK(other.type() == tensor.type());
    CHECK(other.shape() == tensor.shape());
    CHECK(std::memcmp(other.data(), tensor.data(), static_cast<size_t>(tensor.bytes())) == 0);
    CHECK(reinterpret_cast<uintptr_t>(other.data()) % 64 == 0);
  }
}

TEST_CASE("tensors are read one by one from an open file, and what cannot be read is said with its path") {
  const Scratch dir;
  const TensorMap map = someTensors();
  REQUIRE(writeSafetensors(dir / "a", map).ok());
  const Expected<SafetensorsFile> file = SafetensorsFile::open(dir / "a");
  REQUIRE(file.ok());
  const TensorMap described = file->described();
  CHECK(described.size() == map.size());
  for (const auto& [name, tensor] : map) {
    INFO(name);
    CHECK(described.at(name).data() == nullptr);
    CHECK(described.at(name).type() == tensor.type());
    CHECK(described.at(name).shape() == tensor.shape());
    CHECK(described.at(name).bytes() == tensor.bytes());
    const Expected<Tensor> read = file->read(name);
    REQUIRE(read.ok());
    CHECK(std::memcmp(read->data(), tensor.data(), static_cast<size_t>(tensor.bytes())) == 0);
  }
  fs::resize_file(dir / "a", 16);
  CHECK(file->read("x").error().message.starts_with(dir / "a: "));
}

TEST_CASE("the bytes are those of the format description") {
  const Scratch dir;
  TensorMap map;
  Tensor x(DType::kBF16, {1, 2});
  std::memcpy(x.data(), "abcd", 4);
  map.emplace("x", std::move(x));
  Tensor ids(DType::kI32, {1});
  std::memcpy(ids.data(), "wxyz", 4);
  map.emplace("ids", std::move(ids));
  REQUIRE(writeSafetensors(dir / "a", map).ok());
  const std::string json =
      "{\"ids\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]},"
      "\"x\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[4,8]}}";
  const std::string padded = json + std::string((8 - json.size() % 8) % 8, ' ');
  CHECK(slurp(dir / "a") == fileOf(padded, 0) + "wxyzabcd");
  CHECK(padded.size() % 8 == 0);
}

TEST_CASE("equal tensors give equal bytes and leave one file") {
  const Scratch dir;
  REQUIRE(writeSafetensors(dir / "a", someTensors()).ok());
  REQUIRE(writeSafetensors(dir / "a", someTensors()).ok());
  CHECK(dir.files() == 1);
  REQUIRE(writeSafetensors(dir / "b", someTensors()).ok());
  CHECK(slurp(dir / "a") == slurp(dir / "b"));
}

TEST_CASE("a header with a name that needs escapes is read back") {
  const Scratch dir;
  TensorMap map;
  map.emplace("a \"quoted\\\" \n name", Tensor(DType::kF32, {2}));
  REQUIRE(writeSafetensors(dir / "a", map).ok());
  const Expected<TensorMap> back = readSafetensors(dir / "a");
  REQUIRE(back.ok());
  CHECK(back->count("a \"quoted\\\" \n name") == 1);
}

TEST_CASE("metadata and spaces after the header are accepted") {
  const Scratch dir;
  spill(dir / "a", fileOf(R"({"__metadata__":{"format":"pt"},)"
                          R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   )",
                          8));
  const Expected<TensorMap> back = readSafetensors(dir / "a");
  REQUIRE(back.ok());
  CHECK(back->size() == 1);
}

TEST_CASE("a damaged header is refused with what was found and expected") {
  struct Case {
    const char* header;
    size_t dataBytes;
    const char* message;
  };
  const Case cases[] = {
      {R"([])", 0, "does not begin with '{'"},
      {R"({"x")", 0, "not valid JSON"},
      {"{\"\xff\":1}", 0, "not valid JSON"},
      {R"({"x":3})", 0, "tensor 'x': found no JSON object"},
      {R"({"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, "found dtype 'F64', expected F32"},
      {R"({"x":{"dtype":7,"shape":[1],"data_offsets":[0,8]}})", 8, "dtype is not a string"},
      {R"({"x":{"shape":[1],"data_offsets":[0,8]}})", 8, "dtype is not a string"},
      {R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "shape is not a list of sizes"},
      {R"({"x":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "shape is not a list of sizes"},
      {R"({"x":{"dtype":"F32","shape":[1e3],"data_offsets":[0,4]}})", 4, "shape is not a list of sizes"},
      {R"({"x":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
       "shape is not a list of sizes"},
      {R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "overflows"},
      {R"({"x":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4, "found 9 dimensions"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "found 4 bytes of data, expected 8"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "list of two offsets"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "expected a range inside"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "expected a range inside the 4 bytes"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8, "found 8 bytes of data, but"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "a hole in the data"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "tensors overlap"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "'x' twice"},
      {R"({"x":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4, "'shape' twice"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"order":"F"}})", 4, "found field 'order'"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__ 'a' is not a string"},
  };
  const Scratch dir;
  for (const Case& damaged : cases) {
    spill(dir / "a", fileOf(damaged.header, damaged.dataBytes));
    const std::string message = readError(dir / "a");
    INFO(damaged.header << "\n" << message);
    CHECK(message.find((dir / "a") + ": ") == 0);
    CHECK(message.find(damaged.message) != std::string::npos);
  }
}

TEST_CASE("a header that is nested a million times is refused") {
  const Scratch dir;
  spill(dir / "a", fileOf("{\"x\":" + std::string(1'000'000, '['), 0));
  CHECK(!readError(dir / "a").empty());
}

TEST_CASE("a header size beyond the file is refused before anything is allocated") {
  const Scratch dir;
  spill(dir / "a", std::string(7, '\0') + "\x7f");
  CHECK(readError(dir / "a").find("expected at most 0") != std::string::npos);
  spill(dir / "a", "short");
  CHECK(readError(dir / "a").find("found 5 bytes") != std::string::npos);
}

TEST_CASE("every truncation of a file is refused") {
  const Scratch dir;
  REQUIRE(writeSafetensors(dir / "a", someTensors()).ok());
  const std::string whole = slurp(dir / "a");
  for (size_t size = 0; size < whole.size(); ++size) {
    spill(dir / "b", whole.substr(0, size));
    CHECK_FALSE(readSafetensors(dir / "b").ok());
  }
}

TEST_CASE("random damages are read or refused, never more") {
  const Scratch dir;
  REQUIRE(writeSafetensors(dir / "a", someTensors()).ok());
  const std::string whole = slurp(dir / "a");
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (unsigned n = 1 + random() % 3; n > 0; --n)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    spill(dir / "b", damaged);
    refused += !readSafetensors(dir / "b").ok();
  }
  CHECK(refused > 1000);
}

TEST_CASE("what is no regular file is refused, not waited for") {
  const Scratch dir;
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  CHECK(readError(dir / "pipe").find("not a regular file") != std::string::npos);
  CHECK(readError(dir / "").find("not a regular file") != std::string::npos);
  CHECK(readError(dir / "missing").find("No such file") != std::string::npos);
}

TEST_CASE("a file that is not committed leaves nothing, and one that cannot be written says why") {
  const Scratch dir;
  spill(dir / "a", "old");
  {
    Expected<PendingFile> file = stageSafetensors(dir / "a", tensorRefs(someTensors()));
    REQUIRE(file.ok());
    CHECK(dir.files() == 1);
  }
  CHECK(slurp(dir / "a") == "old");
  CHECK(dir.files() == 1);
  fs::create_directory(dir / "folder");
  CHECK_FALSE(writeSafetensors(dir / "folder", someTensors()).ok());
  CHECK_FALSE(writeSafetensors(dir / "no/such/folder", someTensors()).ok());
  const Status device = writeSafetensors("/dev/null", someTensors());
  REQUIRE_FALSE(device.ok());
  CHECK(device.error().message.find("special file") != std::string::npos);
  CHECK(dir.files() == 2);
}

}  // namespace
}  // namespace sluice::tools

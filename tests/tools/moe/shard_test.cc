#include "tools/moe/shard.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "tests/testing/parts.h"

namespace sluice::tools {
namespace {

using Sizes = std::vector<int64_t>;

constexpr Sharding kAll[] = {Sharding::kWhole,      Sharding::kColumns, Sharding::kGateUpColumns,
                             Sharding::kGateUpRows, Sharding::kRows,    Sharding::kPartial};

// Elements 1, 2, 3, ...
Tensor counted(DType type, const Sizes& shape) {
  Tensor tensor(type, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i)
    setElement(type, tensor.data(), i, static_cast<float>(i + 1));
  return tensor;
}

std::vector<float> elements(const Tensor& tensor) {
  return {tensor.as<float>(), tensor.as<float>() + tensor.elements()};
}

std::vector<float> partOf(const Sizes& whole, Sharding sharding, int tp, int part) {
  return elements(cutPart(counted(DType::kF32, whole), sharding, tp, part));
}

TEST_CASE("a part of columns, of the columns of gate and up, and of rows") {
  CHECK(partOf({2, 4}, Sharding::kColumns, 2, 0) == std::vector<float>{1, 2, 5, 6});
  CHECK(partOf({2, 4}, Sharding::kColumns, 2, 1) == std::vector<float>{3, 4, 7, 8});
  // rows are gate 1 2 3, up 4 5 6; gate 7 8 9, up 10 11 12
  CHECK(partOf({1, 2, 6}, Sharding::kGateUpColumns, 3, 1) == std::vector<float>{2, 5, 8, 11});
  CHECK(partOf({1, 6, 2}, Sharding::kGateUpRows, 3, 1) == std::vector<float>{3, 4, 9, 10});
  CHECK(partOf({2, 4, 1}, Sharding::kRows, 2, 0) == std::vector<float>{1, 2, 5, 6});
  CHECK(partOf({2, 2, 2}, Sharding::kRows, 2, 1) == std::vector<float>{3, 4, 7, 8});
  CHECK(partOf({4}, Sharding::kWhole, 2, 1) == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("the terms of a sum have every element once") {
  CHECK(partOf({5}, Sharding::kPartial, 2, 0) == std::vector<float>{1, 0, 3, 0, 5});
  CHECK(partOf({5}, Sharding::kPartial, 2, 1) == std::vector<float>{0, 2, 0, 4, 0});
  const Tensor a = counted(DType::kF32, {3}), b = counted(DType::kF32, {3});
  const Tensor* terms[] = {&a, &b, &a};
  CHECK(elements(joinParts(terms, Sharding::kPartial)) == std::vector<float>{3, 6, 9});
}

TEST_CASE("parts put together are the whole tensor, for every sharding, type and number of ranks") {
  for (Sharding sharding : kAll)
    for (DType type : {DType::kF32, DType::kBF16})
      for (int tp : {1, 2, 3, 4})
        for (const Sizes& shape : {Sizes{3, 24, 24}, {1, 24, 48}, {0, 24, 24}, {5, 24, 0}, {24, 24}}) {
          const Tensor whole = counted(type, shape);
          std::vector<Tensor> parts;
          for (int part = 0; part < tp; ++part) parts.push_back(cutPart(whole, sharding, tp, part));
          std::vector<const Tensor*> pointers;
          for (const Tensor& part : parts) {
            CHECK(wholeShape(sharding, part.shape(), tp) == shape);
            pointers.push_back(&part);
          }
          const Tensor joined = joinParts(pointers, sharding);
          REQUIRE(joined.shape() == shape);
          REQUIRE(joined.type() == type);
          CHECK((whole.bytes() == 0 || std::memcmp(joined.data(), whole.data(), whole.bytes()) == 0));
        }
}

}  // namespace
}  // namespace sluice::tools

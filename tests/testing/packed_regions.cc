#include "tests/testing/packed_regions.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr int64_t kLine = 64;

int64_t roundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

bool holdsScalars(const TaskProgram& program, RegionId region) {
  return std::any_of(program.buffers.begin(), program.buffers.end(), [&](const Buffer& buffer) {
    return buffer.region == region && buffer.type == DType::kF32 && buffer.shape[0].extent != Extent::kFixed;
  });
}

}  // namespace

TaskProgram packRegions(TaskProgram program) {
  std::vector<Region> packed;
  std::vector<std::pair<RegionId, int64_t>> places(program.regions.size());
  std::map<std::pair<Extent, bool>, RegionId> joined;
  for (size_t i = program.regions.size(); i-- > 0;) {
    const Region& region = program.regions[i];
    const RegionId old{static_cast<uint32_t>(i)}, next{static_cast<uint32_t>(packed.size())};
    const bool alone = holdsScalars(program, old);
    const auto [home, isNew] =
        alone ? std::pair{joined.end(), true} : joined.insert({{region.extent, region.saved}, next});
    if (isNew) {
      packed.push_back(region);
      places[i] = {next, 0};
      continue;
    }
    Region& wide = packed[home->second.value];
    const int64_t offset = roundUp(wide.stride, region.stride < kLine ? 4 : kLine);
    places[i] = {home->second, offset};
    wide.stride = offset + region.stride;
    wide.symmetric = wide.symmetric || region.symmetric;
  }
  for (Region& region : packed)
    if (region.stride > kLine) region.stride = roundUp(region.stride, kLine);
  for (Buffer& buffer : program.buffers) {
    if (!buffer.region) continue;
    const auto& [region, offset] = places[buffer.region.value];
    buffer.region = region;
    buffer.offset += offset;
  }
  program.regions = std::move(packed);
  return program;
}

TaskProgram spreadRegions(TaskProgram program) {
  std::vector<Region> spread;
  for (Buffer& buffer : program.buffers) {
    if (!buffer.region) continue;
    spread.push_back(program.at(buffer.region));
    buffer.region = RegionId{static_cast<uint32_t>(spread.size() - 1)};
    buffer.offset = 0;
  }
  program.regions = std::move(spread);
  return program;
}

}  // namespace sluice

#include "tests/runtime/program/random_program.h"

#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>

#include "runtime/program/deal.h"

namespace sluice {
namespace {

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  TaskProgram make();

 private:
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  bool flip() { return below(2) == 0; }

  template <class E>
  E oneOf(E last) {
    return static_cast<E>(below(static_cast<uint32_t>(last) + 1));
  }

  template <class T>
  T number() {
    constexpr T kEdges[] = {0, 1, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
    return below(4) == 0 ? kEdges[below(std::size(kEdges))] : static_cast<T>(below(1000));
  }

  int32_t atMost(int64_t limit) {
    const auto value = number<int32_t>();
    return value > limit ? static_cast<int32_t>(limit) : value;
  }

  // Any bits but those of a NaN, which is not equal to itself.
  float alpha() {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random_()));
    return std::isnan(value) ? std::numeric_limits<float>::infinity() : value;
  }

  template <class Tag>
  Id<Tag> id() {
    switch (below(8)) {
      case 0:
        return {};
      case 1:
        return {Id<Tag>::kNoneValue - 1};
      default:
        return {below(5)};
    }
  }

  std::string name() {
    static const std::string kOdd[] = {"",     "none", "a.b", "3d",        "#1",           "x y",
                                       "lane", "seat", "\"",  "\\n\n\t\r", "a/b // c : ,", "\xc3\xa9\xff",
                                       "rows", "in",   "-",   "tiling"};
    if (below(4) == 0) return kOdd[below(std::size(kOdd))];
    if (below(16) == 0) return std::string("\0\x01\x7f", 3);
    return std::string(1, static_cast<char>('a' + below(8)));
  }

  template <class Make>
  auto some(uint32_t limit, Make one) {
    std::vector<decltype(one())> all(below(limit + 1));
    for (auto& element : all) element = one();
    return all;
  }

  Dim dim() {
    const auto size = number<int64_t>();
    return {oneOf(Extent::MAX), size > kMaxDim ? kMaxDim : size};
  }
  Buffer buffer();
  EventArray event();
  Family family();
  TaskRecord record(const std::vector<TaskRecord>& before);
  Lane lane();

  std::mt19937 random_;
};

Buffer Maker::buffer() {
  return {.name = name(),
          .type = oneOf(DType::MAX),
          .shape = some(4, [&] { return dim(); }),
          .role = oneOf(Role::MAX),
          .region = id<RegionTag>(),
          .offset = flip() ? 0 : number<int64_t>(),
          .sharding = oneOf(Sharding::MAX)};
}

EventArray Maker::event() {
  return {.name = name(),
          .entry = id<EntryTag>(),
          .space = oneOf(EventSpace::MAX),
          .unit = oneOf(EventUnit::MAX),
          .rule = oneOf(ThresholdRule::MAX),
          .factor = number<int64_t>(),
          .remote = flip()};
}

Family Maker::family() {
  Tiling tiling{.m = number<int32_t>(), .n = number<int32_t>(), .k = number<int32_t>()};
  if (flip()) {
    tiling.tileM = number<int32_t>();
    tiling.tileN = number<int32_t>();
    tiling.flags = number<uint16_t>();
    tiling.roundA = oneOf(Rounding::MAX);
    tiling.roundB = oneOf(Rounding::MAX);
    tiling.alpha = alpha();
    tiling.activation = oneOf(ActivationKind::MAX);
    tiling.limit = {number<uint16_t>()};
  }
  return {.name = name(),
          .source = name(),
          .entry = id<EntryTag>(),
          .op = oneOf(OpKind::MAX),
          .core = oneOf(CoreKind::MAX),
          .space = id<SpaceTag>(),
          .tiles = number<int32_t>(),
          .tiling = tiling,
          .reads = some(4, [&] { return id<BufferTag>(); }),
          .writes = some(4, [&] { return id<BufferTag>(); }),
          .waits = some(kMaxLinks, [&] { return id<EventTag>(); }),
          .signals = some(kMaxLinks, [&] { return id<EventTag>(); })};
}

// Mostly of the family of the record before, as in real programs.
TaskRecord Maker::record(const std::vector<TaskRecord>& before) {
  TaskRecord record;
  if (!before.empty() && below(4) != 0) record = before.back();
  if (before.empty() || below(8) == 0) record.family = id<FamilyTag>();
  record.slot = number<uint32_t>();
  record.tile = number<uint32_t>();
  return record;
}

Lane Maker::lane() {
  std::vector<TaskRecord> last;
  auto seat = [&] {
    return last = some(6, [&] {
             last.push_back(record(last));
             return last.back();
           });
  };
  return {.name = name(),
          .entry = id<EntryTag>(),
          .space = id<SpaceTag>(),
          .core = oneOf(CoreKind::MAX),
          .priority = number<int32_t>(),
          .rotation = number<int32_t>(),
          .seats = some(4, seat),
          .firstCore = flip() ? 0 : number<int32_t>()};
}

TaskProgram Maker::make() {
  TaskProgram program;
  program.name = name();
  program.target = name();
  program.options = name();
  program.graphHash = random_();
  program.symbols = some(4, [&] { return Symbol{name(), number<int64_t>()}; });
  program.mesh.ep = atMost(kMaxRanks);
  if (flip()) program.mesh.tp = static_cast<int32_t>(1 + below(kMaxRanks));
  program.mesh.tokens = oneOf(TokenHolders::MAX);
  program.experts = atMost(kMaxExperts);
  if (flip()) program.spare = atMost(kMaxExperts);
  program.topK = atMost(kMaxTopK);
  program.maxTokens = atMost(kMaxTokens);
  program.cores = atMost(1000);
  if (flip()) program.cubeCores = atMost(1000), program.vectorCores = atMost(1000);
  program.entries = some(4, [&] { return Entry{name(), id<BufferTag>(), id<EntryTag>(), id<BufferTag>()}; });
  program.regions =
      some(5, [&] { return Region{name(), oneOf(Extent::MAX), number<int64_t>(), flip(), flip()}; });
  program.buffers = some(5, [&] { return buffer(); });
  program.spaces =
      some(5, [&] { return Space{name(), oneOf(SpaceKind::MAX), number<int32_t>(), number<int32_t>()}; });
  program.events = some(6, [&] { return event(); });
  program.families = some(6, [&] { return family(); });
  program.lanes = some(4, [&] { return lane(); });
  if (!program.lanes.empty() && !program.families.empty() && !program.spaces.empty() && flip()) {
    Space& space = program.spaces[0];
    space.window = static_cast<int32_t>(1 + below(4));
    program.families[0].tiles = static_cast<int32_t>(1 + below(4));
    program.lanes[0].space = SpaceId{0};
    program.lanes[0].seats =
        dealTasks(FamilyId{0}, space.window, program.families[0].tiles, static_cast<int32_t>(1 + below(5)))
            .seats;
  }
  return program;
}

}  // namespace

TaskProgram randomProgram(uint32_t seed) { return Maker(seed).make(); }

TaskProgram smallProgram() {
  TaskProgram program;
  program.name = "small";
  program.target = "cpu";
  program.options = "--set ep=2";
  program.graphHash = 0x0123456789abcdef;
  program.symbols = {{"ep", 2}, {"hidden", 64}};
  program.mesh.ep = 2;
  program.experts = 8;
  program.topK = 2;
  program.maxTokens = 100;
  program.cores = 2;
  program.entries = {{"forward", {0}, {}}, {"backward", {}, {0}}};
  program.regions = {{"received", Extent::kRows, 128, true, false},
                     {"kept", Extent::kFixed, 4096, false, true}};
  const Dim tokens{Extent::kTokens, 0};
  const Dim rows{Extent::kRows, 0};
  program.buffers = {{"expert_ids", DType::kI32, {tokens, {Extent::kFixed, 2}}, Role::kInput, {}},
                     {"x_rows", DType::kBF16, {rows, {Extent::kFixed, 64}}, Role::kTemp, {0}},
                     {"up", DType::kBF16, {rows, {Extent::kFixed, 96}}, Role::kSaved, {1}},
                     {"dx", DType::kBF16, {rows, {Extent::kFixed, 64}}, Role::kOutput, {}}};
  program.spaces = {{"rows", SpaceKind::kRows, 32, 2}, {"sends", SpaceKind::kSends, 32, 4}};
  program.events = {
      {"arrived", {0}, EventSpace::kRows, EventUnit::kRows, ThresholdRule::kRowsOfSlot, 0, true},
      {"up.done", {0}, EventSpace::kRows, EventUnit::kTasks, ThresholdRule::kConstant, 2, false},
      {"arrived", {1}, EventSpace::kExperts, EventUnit::kTasks, ThresholdRule::kSlotsOfExpert, 3, false}};
  program.families = {{"send",
                       "",
                       {0},
                       OpKind::kDispatch,
                       CoreKind::kUnified,
                       {1},
                       1,
                       {.n = 64},
                       {{}, {}},
                       {{1}, {}},
                       {},
                       {{0}}},
                      {"up",
                       "f.json:3:5",
                       {0},
                       OpKind::kGmm,
                       CoreKind::kCube,
                       {0},
                       2,
                       {.n = 96, .k = 64, .tileN = 48, .flags = 1},
                       {{1}, {0}},
                       {{2}},
                       {{0}},
                       {{1}, {2}}}};
  const FamilyId send{0}, up{1};
  program.lanes = {
      {"send", {0}, {1}, CoreKind::kUnified, 0, 1, {{{send, 0, 0}}, {{send, 1, 0}}}},
      {"up", {0}, {0}, CoreKind::kCube, 1, 0, {{{up, 0, 0}, {up, 1, 0}}, {{up, 0, 1}, {up, 1, 1}}}}};
  return program;
}

TaskProgram activationProgram() {
  TaskProgram program = raggedProgram();
  program.name = "activation";
  Family& family = program.families[1];
  family.op = OpKind::kGmmActivation;
  family.tiling.flags = 4;
  family.tiling.activation = ActivationKind::kSwigluClamp;
  family.tiling.limit = toBFloat16(7);
  return program;
}

TaskProgram shardedProgram() {
  TaskProgram program = activationProgram();
  program.name = "sharded";
  program.mesh = {2, 3, TokenHolders::kSame};
  program.buffers[1].sharding = Sharding::kPartial;
  program.buffers.back().sharding = Sharding::kGateUpColumns;
  return program;
}

TaskProgram placedProgram() {
  TaskProgram program = shardedProgram();
  program.name = "placed";
  program.spare = 3;
  program.entries[0].placement = {static_cast<uint32_t>(program.buffers.size())};
  program.buffers.push_back(
      {"placement", DType::kI32, {{Extent::kFixed, program.experts}}, Role::kInput, {}});
  return program;
}

TaskProgram codesProgram() {
  TaskProgram program = placedProgram();
  program.name = "codes";
  program.buffers[1].type = DType::kI8;
  const auto scale = static_cast<uint32_t>(program.buffers.size());
  program.buffers.push_back({"x_scale", DType::kF32, {{Extent::kRows, 0}}, Role::kTemp, {0}});
  program.families[0].op = OpKind::kQuantize;
  program.families[0].writes = {{1}, {scale}};
  program.buffers[0].type = DType::kU8;
  program.families[1].reads = {{1}, {0}, {}, {scale}, {scale}, {scale}};
  return program;
}

TaskProgram floatWeightsProgram() {
  TaskProgram program = codesProgram();
  program.name = "float_weights";
  program.buffers[0].type = DType::kF8_E4M3;
  program.families[1].reads = {{1}, {0}, {}, {}, program.families[0].writes.back()};
  return program;
}

TaskProgram powersProgram() {
  TaskProgram program = floatWeightsProgram();
  program.name = "powers";
  program.buffers[0].type = DType::kU8;
  program.buffers.back().type = DType::kF8_E8M0;
  return program;
}

TaskProgram factorProgram() {
  TaskProgram program = powersProgram();
  program.name = "factor";
  program.buffers.back().type = DType::kF8_E4M3;
  const auto factor = static_cast<uint32_t>(program.buffers.size());
  program.buffers.push_back(
      {"x_factor", DType::kF32, {{Extent::kFixed, 4}, {Extent::kFixed, 1}}, Role::kTemp, {}});
  program.families[1].reads.resize(8);
  program.families[1].reads.push_back({factor});
  return program;
}

TaskProgram sixteenBitsProgram() {
  TaskProgram program = codesProgram();
  program.name = "sixteen_bits";
  const auto scale = static_cast<uint32_t>(program.buffers.size() - 1);
  program.buffers[scale].type = DType::kF16;
  program.buffers.push_back({"x_zero", DType::kI8, {{Extent::kRows, 0}}, Role::kTemp, {0}});
  program.families[1].reads = {{1}, {0}, {}, {}, {scale}, {scale + 1}};
  return program;
}

TaskProgram roundedProgram() {
  TaskProgram program = codesProgram();
  program.name = "rounded";
  program.families[1].tiling.roundA = Rounding::kMxE5m2Floor;
  program.families[1].tiling.roundB = Rounding::kE4m3;
  const auto amax = static_cast<uint32_t>(program.buffers.size());
  program.buffers.push_back(
      {"x_amax", DType::kF32, {{Extent::kFixed, 4}, {Extent::kFixed, 1}}, Role::kTemp, {}});
  program.families[0].op = OpKind::kAmax;
  program.families[0].writes = {{amax}};
  program.families[1].reads = {{1}, {0}, {}, {}, {}, {}, {}, {amax}};
  const auto codes = static_cast<uint32_t>(program.buffers.size());
  program.buffers.push_back(
      {"x_codes", DType::kF8_E4M3, {{Extent::kRows, 0}, {Extent::kFixed, 64}}, Role::kTemp, {0}});
  Family encode = program.families[0];
  encode.name = "encode";
  encode.op = OpKind::kEncode;
  encode.tiling.roundA = Rounding::kMxE4m3;
  encode.writes = {{codes}};
  program.families.push_back(std::move(encode));
  return program;
}

TaskProgram raggedProgram() {
  TaskProgram program = smallProgram();
  program.name = "ragged";
  program.experts = 7;
  const Dim ofRank = program.expertDim();
  program.regions.push_back({"grads", ofRank.extent, 24576, false, false});
  program.buffers.push_back(
      {"up_weight", DType::kBF16, {ofRank, {Extent::kFixed, 64}, {Extent::kFixed, 96}}, Role::kInput, {}});
  program.buffers.push_back(
      {"up_grad", DType::kF32, {ofRank, {Extent::kFixed, 64}, {Extent::kFixed, 96}}, Role::kTemp, {2}});
  program.events.push_back(
      {"grads", {1}, EventSpace::kOne, EventUnit::kTasks, ThresholdRule::kExpertsOfRank, 4, false});
  return program;
}

}  // namespace sluice

// What verify() says of the program of docs/SCHEDULE.md, whole and with one thing wrong at a time.
#include "runtime/program/verify.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "runtime/program/op_table.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/packed_regions.h"

namespace sluice {
namespace {

FamilyId familyOf(const TaskProgram& program, uint32_t entry, const std::string& name) {
  for (uint32_t i = 0; i < program.families.size(); ++i)
    if (program.families[i].entry.value == entry && program.families[i].name == name) return FamilyId{i};
  FAIL("no family " << name);
  return {};
}

EventArray& eventOf(TaskProgram& program, uint32_t entry, const std::string& name) {
  for (EventArray& event : program.events)
    if (event.entry.value == entry && event.name == name) return event;
  FAIL("no event " << name);
  return program.events.front();
}

template <class T>
T& named(std::vector<T>& table, const std::string& name) {
  const auto it = std::find_if(table.begin(), table.end(), [&](const T& t) { return t.name == name; });
  if (it == table.end()) FAIL("nothing is called " << name);
  return *it;
}

Family& family(TaskProgram& program, uint32_t entry, const char* name) {
  return program.families[familyOf(program, entry, name).value];
}

// The message of verify() for the default program after a change, or "accepted".
std::string refusal(const std::function<void(TaskProgram&)>& change) {
  TaskProgram program = buildMoeProgram({});
  change(program);
  const auto verified = verify(program);
  return verified ? "accepted" : verified.error().message;
}

TEST_CASE("programs of many shapes verify") {
  for (int ranks : {1, 2, 4})
    for (int local : {1, 3})
      for (int topK : {1, 2, 3})
        for (int hidden : {1, 7, 33, 100})
          for (int cores : {1, 3, 8}) {
            MoeShape shape;
            shape.ranks = ranks;
            shape.experts = ranks * local;
            shape.topK = std::min(topK, shape.experts);
            shape.hidden = hidden;
            shape.intermediate = hidden % 5 + 1;
            shape.maxTokens = hidden;
            shape.cores = cores;
            shape.slotRows = 16 * (hidden % 3 + 1);
            shape.window = hidden % 4 + 1;
            const auto verified = verify(buildMoeProgram(shape));
            INFO((verified ? std::string() : verified.error().message));
            REQUIRE(verified.ok());
          }
}

TEST_CASE("a layer of 64 ranks verifies in less than half a second of processor time") {
  MoeShape shape{64, 256, 8, 7168, 2048, 4096, 24, 128, 32, 8, 256, 256};
  TaskProgram program = buildMoeProgram(shape);
  const std::clock_t start = std::clock();
  const auto verified = verify(std::move(program));
  CHECK(std::clock() - start < CLOCKS_PER_SEC / 2);
  INFO((verified ? std::string() : verified.error().message));
  CHECK(verified.ok());
}

TEST_CASE("segments and stages are those of the event graph") {
  const auto verified = verify(buildMoeProgram({}));
  REQUIRE(verified.ok());
  const auto order = [&](uint32_t entry, const char* name) {
    const FamilyOrder found = verified->order()[familyOf(**verified, entry, name).value];
    return std::pair(found.segment, found.stage);
  };
  CHECK(order(0, "dispatch") == std::pair(0, 0));
  CHECK(order(0, "up_proj") == std::pair(1, 0));
  CHECK(order(0, "swiglu") == std::pair(1, 1));
  CHECK(order(0, "down_proj") == std::pair(1, 2));
  CHECK(order(0, "combine.return") == std::pair(2, 0));
  CHECK(order(0, "combine.sum") == std::pair(3, 0));
  CHECK(order(1, "down_weight_grad") == std::pair(1, 0));
  CHECK(order(1, "gate_grad") == std::pair(1, 2));
  CHECK(order(1, "gate_up_weight_grad") == std::pair(2, 0));
}

TEST_CASE("different programs have different fingerprints") {
  const auto of = [](const TaskProgram& program) {
    const auto verified = verify(program);
    REQUIRE(verified.ok());
    return verified->fingerprint();
  };
  const TaskProgram program = buildMoeProgram({});
  CHECK(of(program) == of(buildMoeProgram({})));
  TaskProgram other = program;
  other.lanes[3].priority += 1;
  CHECK(of(program) != of(other));
  other = program;
  other.options = "--cores 3";
  CHECK(of(program) != of(other));
  other = program;
  std::swap(other.lanes[1].seats[0], other.lanes[1].seats[1]);
  CHECK(of(program) != of(other));
}

TEST_CASE("a message names task, core, lane and what is wrong") {
  CHECK(refusal([](TaskProgram& p) { p.lanes[1].seats[2][1].slot = 4; }) ==
        "task 1 of core 2 in lane 'up_proj' is slot 4 of family 'up_proj', but a window has 4 slots");
  CHECK(refusal([](TaskProgram& p) { std::swap(p.lanes[1].seats[2][1], p.lanes[1].seats[2][2]); }) ==
        "task 2 of core 2 in lane 'up_proj' is up_proj[1,2], which must stand before up_proj[2,2]");
  CHECK(refusal([](TaskProgram& p) { p.lanes[1].seats[0].pop_back(); }) ==
        "family 'up_proj' of entry 'forward' has 11 tasks in the lanes, expected 4 slots x 3 tiles");
  CHECK(refusal([](TaskProgram& p) { p.lanes[1].seats[0][1] = p.lanes[1].seats[0][0]; }) ==
        "task 1 of core 0 in lane 'up_proj' is up_proj[0,0] for the second time");
}

TEST_CASE("a family waits for and signals at most two events of its entry") {
  const auto wait = [](std::vector<uint32_t> ids) {
    return refusal([&](TaskProgram& p) {
      for (uint32_t id : ids) family(p, 0, "up_proj").waits.push_back(EventId{id});
    });
  };
  const std::string up = "family 'up_proj' of entry 'forward' ";
  CHECK(wait({99}) == up + "waits for event 99, but the program declares 12 events");
  CHECK(wait({EventId::kNoneValue}) == up + "waits for event 4294967295, but the program declares 12 events");
  CHECK(wait({1, 2}) == up + "waits for 3 events, expected at most 2");
  CHECK(wait({0}) == up + "waits for event 'rows_arrived' twice");
  CHECK(refusal([](TaskProgram& p) { family(p, 0, "up_proj").signals = {EventId{11}}; }) ==
        up + "signals event 'returned', which is not of its entry");
}

TEST_CASE("a threshold that is not what is delivered is refused") {
  CHECK(refusal([](TaskProgram& p) { eventOf(p, 0, "up_proj_done").factor = 4; }) ==
        "event 'up_proj_done' of entry 'forward' has threshold constant (factor 4), but family 'up_proj' of "
        "entry 'forward' delivers constant (factor 3)");
  CHECK(refusal([](TaskProgram& p) { eventOf(p, 1, "expert_rows").rule = ThresholdRule::kRowsOfSlot; }) ==
        "event 'expert_rows' of entry 'backward' has threshold rows of the slot, but family 'dispatch' of "
        "entry 'backward' delivers rows of the expert");
  CHECK(refusal([](TaskProgram& p) { eventOf(p, 1, "returned").remote = false; }) ==
        "event 'returned' of entry 'backward' is not remote, but family 'combine.return' of entry 'backward' "
        "signals other ranks");
}

TEST_CASE("an event without producers is refused") {
  CHECK(refusal([](TaskProgram& p) { family(p, 0, "swiglu").signals = {}; }) ==
        "no family signals event 'swiglu_done' of entry 'forward'");
}

TEST_CASE("a remote event that nobody waits for is refused") {
  CHECK(refusal([](TaskProgram& p) { family(p, 1, "down_weight_grad").waits = {}; }) ==
        "event 'expert_rows' of entry 'backward' is signalled by other ranks, but no family waits for "
        "every one of its counters");
}

TEST_CASE("rows that are sent without an event are refused") {
  CHECK(
      refusal([](TaskProgram& p) {
        Family again = p.families[0];
        again.name = "again";
        again.signals = {};
        p.regions.push_back(named(p.regions, "rows_dy"));
        p.buffers.push_back(named(p.buffers, "rows_dy"));
        p.buffers.back().name = "out_rows";
        p.buffers.back().role = Role::kOutput;  // nobody in the entry reads it
        p.buffers.back().region = RegionId{static_cast<uint32_t>(p.regions.size() - 1)};
        operandBuffer(again, &Operands::rows) = BufferId{static_cast<uint32_t>(p.buffers.size() - 1)};
        Lane lane = p.lanes[0];
        for (auto& seat : lane.seats)
          for (TaskRecord& record : seat) record.family = FamilyId{static_cast<uint32_t>(p.families.size())};
        p.families.push_back(again);
        p.lanes.push_back(lane);
      }) ==
      "family 'again' of entry 'forward' writes at other ranks, but signals no event: they cannot know when "
      "everything has arrived");
}

TEST_CASE("families that wait for each other are refused with their names") {
  CHECK(refusal([](TaskProgram& p) { family(p, 0, "up_proj").waits.push_back(EventId{3}); }) ==
        "families of entry 'forward' wait for each other in a ring: 'down_proj' -> 'up_proj' -> 'swiglu' "
        "-> 'down_proj'");
}

TEST_CASE("a lane of several families is sorted by stage and slot, and of one segment") {
  const auto merge = [](TaskProgram& p, size_t into, size_t from) {
    for (size_t core = 0; core < p.lanes[into].seats.size(); ++core)
      for (const TaskRecord& record : p.lanes[from].seats[core]) p.lanes[into].seats[core].push_back(record);
    p.lanes.erase(p.lanes.begin() + static_cast<ptrdiff_t>(from));
  };
  CHECK(refusal([&](TaskProgram& p) { merge(p, 1, 2); }) == "accepted");
  CHECK(refusal([&](TaskProgram& p) { merge(p, 3, 2); }) ==
        "task 3 of core 0 in lane 'down_proj' is swiglu[0,0], which must stand before down_proj[3,0]");
  // Both in space experts, but one is a segment later: its second window would stand before it.
  CHECK(
      refusal([&](TaskProgram& p) { merge(p, 8, 13); }) ==
      "task 2 of core 0 in lane 'down_weight_grad' belongs to family 'gate_up_weight_grad' of segment 2, but "
      "family 'down_weight_grad' of the same lane is of segment 1");
}

TEST_CASE("a read that does not wait for the write is refused") {
  CHECK(refusal([](TaskProgram& p) {
          const EventId arrived{0}, upDone{1};
          family(p, 0, "swiglu").waits = {arrived};
          REQUIRE(p.at(upDone).name == "up_proj_done");
        }) ==
        "family 'swiglu' of entry 'forward' reads buffer 'gate_up', but does not wait until family "
        "'up_proj' has written it for its slot (it waits for nothing)");
}

TEST_CASE("buffers share a region only if the later one is written after every use of the earlier") {
  CHECK(refusal([](TaskProgram& p) {
          named(p.regions, "gate_up_grad").stride = 128;
          named(p.buffers, "act_grad_y").region = named(p.buffers, "gate_up_grad").region;
        }) ==
        "buffers 'act_grad_y' and 'gate_up_grad' share region 'gate_up_grad', but family 'swiglu_grad' of "
        "entry 'backward' may not be done with one when the other is written");
  CHECK(refusal([](TaskProgram& p) {
          named(p.buffers, "act_grad_y").region = named(p.buffers, "rows_dy").region;
        }).find("share region 'rows_dy'") != std::string::npos);
  CHECK(refusal([](TaskProgram& p) {
          named(p.regions, "rows_x").stride = 4096;
          named(p.buffers, "down_out").region = named(p.buffers, "rows_x").region;
        }) == "buffer 'down_out' is not saved, but its region 'rows_x' is saved");
}

// rows_dy and row_weights of backward keep their regions; rows_dx follows rows_dy, at byte 64 of 128.
void placeBeside(TaskProgram& p, int64_t offset) {
  named(p.regions, "rows_dy").stride = 128;
  named(p.buffers, "rows_dx").region = named(p.buffers, "rows_dy").region;
  named(p.buffers, "rows_dx").offset = offset;
}

TEST_CASE("buffers share a region side by side, whenever they live") {
  CHECK(refusal([](TaskProgram& p) { placeBeside(p, 64); }) == "accepted");
  CHECK(refusal([](TaskProgram& p) { placeBeside(p, 0); }).find("share region 'rows_dy', but") !=
        std::string::npos);
  CHECK(refusal([](TaskProgram& p) { p = packRegions(p); }) == "accepted");
  // two that are saved, of 64 and 96 bytes
  const auto saved = [](int64_t offset) {
    return refusal([&](TaskProgram& p) {
      named(p.regions, "gate_up").stride = 192;
      named(p.buffers, "rows_x").region = named(p.buffers, "gate_up").region;
      named(p.regions, "gate_up").symmetric = true;
      named(p.buffers, "rows_x").offset = offset;
    });
  };
  CHECK(saved(128) == "accepted");
  CHECK(saved(64) ==
        "buffers 'rows_x' and 'gate_up' share region 'gate_up', but 'rows_x' must keep its content");
  CHECK(saved(0) ==
        "buffers 'rows_x' and 'gate_up' share region 'gate_up', but 'gate_up' must keep its content");
}

TEST_CASE("an output of rows shares no bytes with what lives at another time") {
  const auto output = [](int64_t offset) {
    return refusal([&](TaskProgram& p) {
      Buffer& out = named(p.buffers, "rows_dx");
      out.role = Role::kOutput;
      out.offset = offset;
      p.regions[out.region.value].stride = 192;
    });
  };
  CHECK(output(64) == "accepted");
  CHECK(output(0) ==
        "buffers 'down_out' and 'rows_dx' share region 'rows_work', but 'rows_dx' must keep its content");
}

TEST_CASE("a place lies in the stride, and on a cache line where rows are wide") {
  const auto place = [](int64_t offset) { return refusal([&](TaskProgram& p) { placeBeside(p, offset); }); };
  const auto outside = [](const char* offset) {
    return "buffer 'rows_dx' of 64 bytes has offset " + std::string(offset) +
           " in region 'rows_dy' of stride 128, expected 0 to 64";
  };
  CHECK(place(-64) == outside("-64"));
  CHECK(place(128) == outside("128"));
  CHECK(place(std::numeric_limits<int64_t>::max()) == outside("9223372036854775807"));
  CHECK(place(std::numeric_limits<int64_t>::min()) == outside("-9223372036854775808"));
  CHECK(place(32) == "buffer 'rows_dx' has offset 32 in region 'rows_dy', expected a multiple of 64");
  CHECK(refusal([](TaskProgram& p) { named(p.buffers, "x").offset = 64; }) ==
        "buffer 'x' is the caller's memory, but has offset 64");
  // scalars have no gaps, and so no other place
  CHECK(refusal([](TaskProgram& p) { named(p.buffers, "row_weights").offset = 4; }) ==
        "buffer 'row_weights' of 4 bytes has offset 4 in region 'row_weights' of stride 4, expected 0 to 0");
  // rows of fewer bytes than a line, of bf16
  const auto narrow = [](int64_t offset) {
    MoeShape shape;
    shape.intermediate = 10;
    TaskProgram p = buildMoeProgram(shape);
    named(p.regions, "act").stride = 64;
    named(p.buffers, "act").offset = offset;
    const auto verified = verify(p);
    return verified ? "accepted" : verified.error().message;
  };
  CHECK(narrow(44) == "accepted");
  CHECK(narrow(43) == "buffer 'act' has offset 43 in region 'act', expected a multiple of 2");
}

TEST_CASE("roles of buffers are kept") {
  CHECK(refusal([](TaskProgram& p) { named(p.buffers, "y").role = Role::kInput; }) ==
        "family 'combine.sum' of entry 'forward' writes buffer 'y', which is an input");
  CHECK(refusal([](TaskProgram& p) {
          named(p.buffers, "act").role = Role::kTemp;
          named(p.regions, "act").saved = false;
        }) ==
        "family 'down_weight_grad' of entry 'backward' reads buffer 'act', which is not saved, but written "
        "by family 'swiglu' of entry 'forward'");
  CHECK(
      refusal([](TaskProgram& p) { named(p.regions, "rows_x").symmetric = false; }) ==
      "family 'dispatch' of entry 'forward' writes buffer 'rows_x' at other ranks, but it does not lie in a "
      "symmetric region");
  CHECK(refusal([](TaskProgram& p) {
          p.entries[1].expertIds = p.entries[0].expertIds;
          p.entries[1].routing = {};
        }).find("under another routing") != std::string::npos);
}

TEST_CASE("a program with spare places has a placement, and others may have one") {
  const auto place = [](TaskProgram& p, DType type, int64_t places) {
    p.spare = 1;
    p.entries[0].placement = {static_cast<uint32_t>(p.buffers.size())};
    p.buffers.push_back({"placement", type, {{Extent::kFixed, places}}, Role::kInput, {}});
  };
  CHECK(refusal([&](TaskProgram& p) { place(p, DType::kI32, p.experts); }) == "accepted");
  CHECK(refusal([&](TaskProgram& p) { p.spare = 1; }) ==
        "entry 'forward' has no placement, but the program has 1 spare places");
  CHECK(refusal([&](TaskProgram& p) { place(p, DType::kI32, p.experts), p.spare = 0; }) == "accepted");
  CHECK(refusal([&](TaskProgram& p) {
          place(p, DType::kI32, p.experts + 1);
        }).starts_with("entry 'forward' places experts by buffer 'placement' I32 ["));
  CHECK(refusal([&](TaskProgram& p) {
          place(p, DType::kF32, p.experts);
        }).starts_with("entry 'forward' places experts by buffer 'placement' F32 ["));
  CHECK(refusal([&](TaskProgram& p) {
          p.entries[0].placement = {1000}, p.spare = 1;
        }).starts_with("entry 'forward' places experts by buffer 1000, but the program declares "));
  CHECK(refusal([&](TaskProgram& p) { p.entries[1].placement = {0}; }) ==
        "entry 'backward' has a placement and the routing of another entry");
  CHECK(refusal([&](TaskProgram& p) { p.spare = p.experts; }).starts_with("spare is "));
  CHECK(refusal([&](TaskProgram& p) { p.spare = -1; }).starts_with("spare is -1"));
}

TEST_CASE("a weight gradient accumulates into an output only") {
  const auto accumulate = [](TaskProgram& p) {
    Family& family = p.families[familyOf(p, 1, "down_weight_grad").value];
    family.tiling.flags = 1;
    return findBuffer(family, &Operands::c);
  };
  CHECK(refusal([&](TaskProgram& p) { accumulate(p); }) == "accepted");
  CHECK(refusal(
            [&](TaskProgram& p) { p.families[familyOf(p, 1, "down_weight_grad").value].tiling.flags = 4; }) ==
        "family 'down_weight_grad' of entry 'backward': flags of the tiling are 0x4, expected 0x3 at most");
  CHECK(refusal([&](TaskProgram& p) {
          Buffer& gradient = p.buffers[accumulate(p).value];
          gradient.role = Role::kTemp;
          gradient.region = RegionId{static_cast<uint32_t>(p.regions.size())};
          p.regions.push_back({"gradient", Extent::kFixed, 4 * 24 * 32 * 4, false, false});
        }) ==
        "family 'down_weight_grad' of entry 'backward' accumulates into buffer 'down_weight_grad', which is "
        "not "
        "an output");
}

TEST_CASE("scalars lie without gaps") {
  CHECK(refusal([](TaskProgram& p) { named(p.regions, "row_weights").stride = 8; }) ==
        "family 'dispatch' of entry 'backward': operand 'row_weights' is buffer 'row_weights' in region "
        "'row_weights' of stride 8, expected 4: no gaps");
  CHECK(refusal([](TaskProgram& p) { named(p.regions, "returned_scalars").stride = 64; }).find("no gaps") !=
        std::string::npos);
}

TEST_CASE("rows that are moved or summed are of bf16 or float32, all of one type in a family") {
  const auto with = [](std::initializer_list<const char*> names, DType type) {
    return refusal([&](TaskProgram& p) {
      for (const char* name : names) {
        Buffer& buffer = named(p.buffers, name);
        const int64_t unit = buffer.shape[1].size * dtypeBytes(type);
        buffer.type = type;
        if (buffer.region) p.regions[buffer.region.value].stride = unit;
      }
    });
  };
  CHECK(
      with({"y"}, DType::kF32) ==
      "family 'combine.sum' of entry 'forward': operand 'tokens' is buffer 'y' of type F32, expected BF16 as "
      "buffer 'combine.returned'");
  CHECK(with({"x"}, DType::kI32) ==
        "family 'dispatch' of entry 'forward': operand 'tokens' is buffer 'x' I32 [T, 32], expected BF16 [T, "
        "32]");
  CHECK(with({"x"}, DType::kF32).find("operand 'rows' is buffer 'rows_x' of type BF16, expected F32 as") !=
        std::string::npos);
  // a product reads the rows
  CHECK(
      with({"x", "rows_x"}, DType::kF32) ==
      "family 'up_proj' of entry 'forward': operand 'rows' is buffer 'rows_x' F32 [R, 32], expected BF16 [R, "
      "32]");
}

TEST_CASE("an activation reads as many columns as it has inputs, in all ops that have one") {
  for (const bool fused : {false, true}) {
    MoeShape shape{.fused = fused};
    for (const ActivationKind kind : {ActivationKind::kSilu, ActivationKind::kRelu2}) {
      shape.activation = kind;
      const Expected<VerifiedProgram> verified = verify(buildMoeProgram(shape));
      INFO((verified ? "" : verified.error().message));
      CHECK(verified.ok());
    }
    // the program of one with the kind of the other: each family alone is refused, too
    for (const auto& [built, wrong, said] :
         {std::tuple(ActivationKind::kSwiglu, ActivationKind::kRelu2, ", for 1 inputs of relu2"),
          {ActivationKind::kRelu2, ActivationKind::kSwiglu, ", for 2 inputs of swiglu"}}) {
      shape.activation = built;
      const TaskProgram program = buildMoeProgram(shape);
      for (size_t f = 0; f < program.families.size(); ++f) {
        if (!findInfo(program.families[f].op).usesActivation()) continue;
        TaskProgram mutant = program;
        mutant.families[f].tiling.activation = wrong;
        const Expected<VerifiedProgram> verified = verify(mutant);
        INFO(program.families[f].name);
        REQUIRE_FALSE(verified.ok());
        CHECK_THAT(verified.error().message, Catch::Matchers::EndsWith(said));
      }
    }
  }
}

TEST_CASE("an activation has a limit where it clamps, and only there") {
  const auto swiglu = [](ActivationKind kind, float limit) {
    return refusal([&](TaskProgram& p) {
      Tiling& tiling = p.families[familyOf(p, 0, "swiglu").value].tiling;
      tiling.activation = kind, tiling.limit = toBFloat16(limit);
    });
  };
  const std::string limit = "family 'swiglu' of entry 'forward': the limit of the activation is ";
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::MAX); ++kind)
    if (const auto activation = static_cast<ActivationKind>(kind);
        !findInfo(activation).hasLimit && findInfo(activation).isGated())
      CHECK(swiglu(activation, 0) == "accepted");
  CHECK(swiglu(ActivationKind::kSwigluClamp, 7) == "accepted");
  CHECK(swiglu(ActivationKind::kSwigluOai, 7) == "accepted");
  CHECK(swiglu(ActivationKind::kSwigluOai, 0) == limit + "0, expected a positive number");
  CHECK(swiglu(ActivationKind::kSwigluClamp, 0) == limit + "0, expected a positive number");
  CHECK(swiglu(ActivationKind::kSwigluClamp, -7) == limit + "-7, expected a positive number");
  CHECK(swiglu(ActivationKind::kSwigluClamp, INFINITY) == limit + "inf, expected a positive number");
  CHECK(swiglu(ActivationKind::kSwigluClamp, NAN) == limit + "nan, expected a positive number");
  CHECK(swiglu(ActivationKind::kSwiglu, 7) == limit + "7, expected none for this kind");
  CHECK(swiglu(static_cast<ActivationKind>(99), 0) ==
        "family 'swiglu' of entry 'forward': activation 99 is not known");
  CHECK(refusal([](TaskProgram& p) {
          p.families[familyOf(p, 0, "up_proj").value].tiling.activation = ActivationKind::kGeglu;
        }) ==
        "family 'up_proj' of entry 'forward': field activation of the tiling is geglu, but this op does not "
        "use it");
  CHECK(refusal([](TaskProgram& p) { p.families[familyOf(p, 0, "swiglu").value].tiling.flags = 4; }) ==
        "family 'swiglu' of entry 'forward': flags of the tiling are 0x4, expected 0x0 at most");
}

TEST_CASE("roundings of factors are those of blocks that the factors have") {
  const auto rounds = [](const char* family, int entry, Rounding a, Rounding b) {
    return refusal([&](TaskProgram& p) {
      Tiling& tiling = p.families[familyOf(p, entry, family).value].tiling;
      tiling.roundA = a, tiling.roundB = b;
    });
  };
  const std::string up = "family 'up_proj' of entry 'forward': ", none = "accepted";
  CHECK(rounds("up_proj", 0, Rounding::kMxE4m3, Rounding::kMxE5m2Floor) == none);
  CHECK(rounds("down_weight_grad", 1, Rounding::kMxE4m3, Rounding::kMxE5m2) == none);
  CHECK(rounds("up_proj", 0, Rounding::kMxE4m3Square, Rounding::kNone) ==
        up + "factor 'a' is rounded to mx_e4m3_square, but is no weight");
  CHECK(
      rounds("up_proj", 0, Rounding::kNone, Rounding::kMxE4m3Square) ==
      up + "factor 'b' is rounded to mx_e4m3_square, but the product has 48 columns in tiles of 16, expected "
           "multiples of 32");
  CHECK(rounds("up_proj", 0, static_cast<Rounding>(99), Rounding::kNone) == up + "rounding 99 is not known");
  CHECK(
      rounds("down_proj", 0, Rounding::kNone, Rounding::kMxE4m3) ==
      "family 'down_proj' of entry 'forward': factor 'b' is rounded to mx_e4m3, but the sum has 24 numbers, "
      "expected a multiple of 32");
  CHECK(rounds("up_proj", 0, Rounding::kE4m3, Rounding::kNone) ==
        up + "factor 'a' is rounded to e4m3 with no 'row_amax', expected one");
  CHECK(refusal([](TaskProgram& p) {
          Family& f = p.families[familyOf(p, 0, "up_proj").value];
          operandBuffer(f, &Operands::amaxB) = {static_cast<uint32_t>(p.buffers.size())};
          p.buffers.push_back({"amax", DType::kF32, {p.expertDim(), {Extent::kFixed, 1}}, Role::kInput, {}});
        }) == up + "factor 'b' is rounded to none with a 'weight_amax', expected none");
  CHECK(
      rounds("swiglu", 0, Rounding::kMxE4m3, Rounding::kNone) ==
      "family 'swiglu' of entry 'forward': factor 'a' is rounded to mx_e4m3, but this op does not multiply");
  CHECK(rounds("down_weight_grad", 1, Rounding::kNone, Rounding::kMxE4m3Square) ==
        "family 'down_weight_grad' of entry 'backward': factor 'b' is rounded to mx_e4m3_square, but is no "
        "weight");
}

TEST_CASE("sizes that overflow are refused") {
  CHECK(refusal([](TaskProgram& p) { named(p.regions, "rows_x").stride = int64_t{1} << 62; }) ==
        "region 'rows_x': stride is 4611686018427387904, expected 1 to 549755813888");
  CHECK(refusal([](TaskProgram& p) { p.families[1].tiling.tileN = 0; }) ==
        "family 'up_proj' of entry 'forward': field tileN of the tiling is 0, expected 1 to 1048576");
  CHECK(refusal([](TaskProgram& p) { p.families[1].tiling.tileN = 24; }) ==
        "family 'up_proj' of entry 'forward' has 3 tiles, but its tiling gives 2");
  CHECK(refusal([](TaskProgram& p) { named(p.spaces, "rows").slotSize = 24; }) ==
        "space 'rows': slot size is 24, expected a multiple of 16");
}

TEST_CASE("an empty program is refused") { CHECK_FALSE(verify(TaskProgram{}).ok()); }

}  // namespace
}  // namespace sluice

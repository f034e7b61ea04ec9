#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "runtime/program/codec.h"
#include "runtime/program/program_generated.h"
#include "tests/runtime/program/random_program.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Bytes = std::vector<std::byte>;
using Catch::Contains;

std::string errorOf(std::span<const std::byte> bytes) {
  const Expected<TaskProgram> program = decode(bytes);
  return program.ok() ? "" : program.error().message;
}

std::string errorOf(const TaskProgram& program) { return errorOf(encode(program)); }

std::string errorOf(std::string_view text) { return errorOf(std::as_bytes(std::span(text))); }

uint16_t* majorVersion(Bytes& bytes) {
  const auto* seal = flatbuffers::GetRoot<fbs::Sealed>(bytes.data())->seal();
  return const_cast<uint16_t*>(reinterpret_cast<const uint16_t*>(seal));
}

// The bytes of a file that says what `build` says; nothing else of a program is present.
template <class Build>
Bytes fileOf(Build build) {
  flatbuffers::FlatBufferBuilder builder;
  build(builder);
  const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  Bytes bytes(begin, begin + builder.GetSize());
  sealFile(bytes);
  return bytes;
}

TEST_CASE("files that are no program are refused with one message") {
  CHECK(errorOf(std::string_view()) == "the file is empty, expected a program file");
  CHECK(errorOf("abc") == "not a program file: 3 bytes, too short for the identifier 'SLUP'");
  CHECK(errorOf("\x7f"
                "ELF\x02\x01\x01 ......") ==
        "not a program file: found '\\x02\\x01\\x01 ' at byte 4, expected the identifier 'SLUP'");
  CHECK(errorOf("....SLUP") == "truncated or damaged: no seal in 8 bytes");
}

TEST_CASE("a newer major version is refused and named, a newer minor version is read") {
  Bytes bytes = encode(smallProgram());
  majorVersion(bytes)[0] = 7;
  majorVersion(bytes)[1] = 3;
  CHECK(errorOf(bytes) == "program format 7.3 is newer: this version reads format 1.x");
  majorVersion(bytes)[0] = 0;
  CHECK(errorOf(bytes) == "program format 0.3 is not known: this version reads format 1.x");
  majorVersion(bytes)[0] = kFormatMajor;
  majorVersion(bytes)[1] = kFormatMinor + 1;
  sealFile(bytes);
  const Expected<TaskProgram> program = decode(bytes);
  REQUIRE(program.ok());
  CHECK(*program == smallProgram());
}

TEST_CASE("every truncation of a file is refused") {
  const Bytes bytes = encode(smallProgram());
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy of exactly this size, so that a sanitizer sees any read beyond it.
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    REQUIRE(errorOf(cut) != "");
  }
  CHECK(errorOf(std::span(bytes).first(bytes.size() - 1)) ==
        "truncated: " + std::to_string(bytes.size() - 1) + " bytes of " + std::to_string(bytes.size()));
  Bytes longer = bytes;
  longer.push_back({});
  CHECK_THAT(errorOf(longer), Contains("damaged"));
}

TEST_CASE("every single damaged byte is refused") {
  Bytes bytes = encode(smallProgram());
  const size_t minor =
      static_cast<size_t>(reinterpret_cast<std::byte*>(majorVersion(bytes)) - bytes.data()) + 2;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::byte good = bytes[i];
    bytes[i] ^= std::byte{0x20};
    INFO("byte " << i << (i == minor ? " of the minor version" : ""));
    REQUIRE(errorOf(bytes) != "");
    bytes[i] = good;
  }
  CHECK(errorOf(bytes) == "");
}

// Behind a seal that fits, nothing but the checks of each field protects the reader.
TEST_CASE("random damage under a matching seal never crashes the decoder, and what decodes encodes again") {
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 6000; ++round) {
    const Bytes good = encode(round % 2 ? smallProgram() : randomProgram(static_cast<uint32_t>(round) % 50));
    Bytes bytes = good;
    const auto seal = static_cast<size_t>(reinterpret_cast<std::byte*>(majorVersion(bytes)) - bytes.data());
    for (uint32_t n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % bytes.size();
      static constexpr int kValues[] = {0, 1, 4, 0x7f, 0x80, 0xff};
      bytes[at] = static_cast<std::byte>(random() % 2 ? random() : kValues[random() % 6]);
    }
    std::memcpy(bytes.data() + seal, good.data() + seal, sizeof(fbs::Seal));
    const auto* root = reinterpret_cast<const std::byte*>(flatbuffers::GetRoot<fbs::Sealed>(good.data()));
    // Where the way to the seal itself is damaged, the file stays as it is and is refused.
    const auto header = static_cast<size_t>(root - good.data());
    if (std::memcmp(bytes.data(), good.data(), header + 4) == 0) sealFile(bytes);
    const Expected<TaskProgram> program = decode(bytes);
    if (!program.ok()) continue;
    ++accepted;
    // as bytes: a factor that is no number, which only verify() refuses, is not equal to itself
    const Bytes once = encode(*program);
    REQUIRE(encode(*decode(once)) == once);
  }
  CHECK(accepted > 100);  // else the damage did not get past the seal
}

TEST_CASE("a program decodes from bytes at any address") {
  const Bytes bytes = encode(smallProgram());
  for (size_t shift = 0; shift < 8; ++shift) {
    Bytes moved(shift);
    moved.insert(moved.end(), bytes.begin(), bytes.end());
    const Expected<TaskProgram> program = decode(std::span(moved).subspan(shift));
    REQUIRE(program.ok());
    CHECK(*program == smallProgram());
  }
}

TEST_CASE("a value that no enum has is refused with record and field") {
  TaskProgram program = smallProgram();
  program.events[1].rule = static_cast<ThresholdRule>(11);
  CHECK(errorOf(program) == "event 1 'up.done': threshold rule 11 is not known (0 to 10)");
  program = smallProgram();
  program.buffers[2].type = static_cast<DType>(9);
  CHECK(errorOf(program) == "buffer 2 'up': type 9 is not known (0 to 8)");
  program = smallProgram();
  program.families[0].op = static_cast<OpKind>(255);
  CHECK(errorOf(program) == "family 0 'send': op 255 is not known (0 to 15)");
  program = smallProgram();
  program.buffers[1].shape[0].extent = static_cast<Extent>(5);
  CHECK(errorOf(program) == "buffer 1 'x_rows': extent of a dimension 5 is not known (0 to 4)");
}

TEST_CASE("numbers and tables beyond the limits are refused") {
  TaskProgram program = smallProgram();
  program.mesh.ep = kMaxRanks + 1;
  CHECK(errorOf(program) == "program: number of ranks is 4097, expected at most 4096");
  program = smallProgram();
  program.buffers[0].shape[1].size = kMaxDim + 1;
  CHECK(errorOf(program) == "buffer 0 'expert_ids': a dimension is 1048577, expected at most 1048576");
  program = smallProgram();
  program.spaces.resize(65);
  CHECK(errorOf(program) == "65 spaces, expected at most 64");
  program = smallProgram();
  program.regions[1].name.assign(5000, 'x');
  CHECK(errorOf(program) == "region 1: name has 5000 bytes, expected at most 4096");
  program = smallProgram();
  program.buffers[1].shape.resize(9);
  CHECK(errorOf(program) == "buffer 1 'x_rows': dimensions has 9 elements, expected at most 8");
}

TEST_CASE("missing names and tables are refused") {
  const fbs::Seal seal(kFormatMajor, kFormatMinor, 0, 0);
  const Bytes bare = fileOf([&](flatbuffers::FlatBufferBuilder& builder) {
    fbs::FinishProgramBuffer(builder, fbs::CreateProgram(builder, &seal));
  });
  CHECK(errorOf(bare) == "program: name is missing");
  const Bytes nameless = fileOf([&](flatbuffers::FlatBufferBuilder& builder) {
    const auto name = builder.CreateString("p"), target = builder.CreateString(""),
               options = builder.CreateString("");
    const auto symbol = fbs::CreateSymbol(builder);
    const auto symbols = builder.CreateVector(&symbol, 1);
    fbs::FinishProgramBuffer(builder, fbs::CreateProgram(builder, &seal, name, target, options, 0, symbols));
  });
  CHECK(errorOf(nameless) == "symbol 0: name is missing");
}

// 1000 lanes that are one lane in the file would take the memory of 1000.
TEST_CASE("a file whose tables overlap is refused") {
  const fbs::Seal seal(kFormatMajor, kFormatMinor, 0, 0);
  const Bytes bytes = fileOf([&](flatbuffers::FlatBufferBuilder& builder) {
    const auto text = builder.CreateString("");
    const auto none = builder.CreateVector(std::vector<flatbuffers::Offset<fbs::Symbol>>());
    const std::vector<fbs::TaskRecord> records(1000);
    const auto ends = builder.CreateVector(std::vector<uint32_t>{1000});
    const auto lane = fbs::CreateLane(builder, text, 0, 0, CoreKind::kUnified, 0, 0, ends, 0, 0,
                                      builder.CreateVectorOfStructs(records));
    const auto lanes = builder.CreateVector(std::vector<flatbuffers::Offset<fbs::Lane>>(1000, lane));
    const auto empty = none.o;
    fbs::FinishProgramBuffer(
        builder, fbs::CreateProgram(builder, &seal, text, text, text, 0, none, 1, 1, 1, 1, 1, empty, empty,
                                    empty, empty, empty, empty, empty, lanes));
  });
  CHECK(errorOf(bytes) == "damaged: the tables of the program overlap");
}

TEST_CASE("seats that do not cut the records of their lane are refused") {
  TaskProgram program = smallProgram();
  std::swap(program.lanes[1].seats[0], program.lanes[1].seats[1]);  // else they follow from the formula
  Bytes bytes = encode(program);
  const auto* lane = fbs::GetProgram(bytes.data())->lanes()->Get(1);
  auto* ends = const_cast<uint32_t*>(reinterpret_cast<const uint32_t*>(lane->seat_ends()->Data()));
  ends[0] = 5;
  sealFile(bytes);
  CHECK(errorOf(bytes) == "lane 1 'up': seat 0 ends at record 5, expected 0 to 4");
  ends[0] = 1;
  ends[1] = 3;
  sealFile(bytes);
  CHECK(errorOf(bytes) == "lane 1 'up': the seats end at record 3, expected 4");
}

// A few bytes must not make the reader take any amount of memory.
TEST_CASE("a lane that is dealt more tasks than any program has is refused") {
  const auto refusal = [](auto change) {
    Bytes bytes = encode(smallProgram());
    auto* program = const_cast<fbs::Program*>(fbs::GetProgram(bytes.data()));
    change(*program);
    sealFile(bytes);
    return errorOf(bytes);
  };
  const auto laneOf = [](fbs::Program& p) { return p.lanes()->Get(1); };
  // The field is present, so that the default that it would be left out for does not matter.
  const auto set = [](const auto* table, flatbuffers::voffset_t field, auto value) {
    auto* fields = const_cast<flatbuffers::Table*>(reinterpret_cast<const flatbuffers::Table*>(table));
    REQUIRE(fields->SetField(field, value, static_cast<decltype(value)>(~value)));
  };
  const std::string where = "lane 1 'up': ";
  CHECK(refusal([&](fbs::Program& p) { set(p.spaces()->Get(0), fbs::Space::VT_WINDOW, 1 << 30); }) ==
        where +
            "deals 1073741824 slots x 2 tiles to 2 seats, expected at most 262144 tasks and seats in "
            "all lanes together");
  CHECK(refusal([&](fbs::Program& p) { set(laneOf(p), fbs::Lane::VT_SEATS, 1 << 20); }) ==
        where + "number of seats is 1048576, expected at most 65536");
  CHECK(refusal([&](fbs::Program& p) { set(laneOf(p), fbs::Lane::VT_SEATS, -1); }) ==
        where + "deals 2 slots x 2 tiles to -1 seats, expected at least 1 of each");
  CHECK(refusal([&](fbs::Program& p) { set(laneOf(p), fbs::Lane::VT_DEALT, 7u); }) ==
        where + "deals tasks of family 7, but the program declares 2 families");
}

}  // namespace
}  // namespace sluice

// A hash over every field of a program, in the order of program.h; lengths are hashed before contents, so
// that no two programs give the same sequence.
#include <bit>
#include <string_view>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

class Hash {
 public:
  // FNV-1a over 64-bit words, with the upper half folded down, since its carries only go up.
  void add(uint64_t word) {
    state_ = (state_ ^ word) * 0x100000001b3u;
    state_ ^= state_ >> 32;
  }
  void add(std::string_view text) {
    add(text.size());
    for (char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  void add(const std::string& text) { add(std::string_view(text)); }
  template <class Tag>
  void add(Id<Tag> id) {
    add(uint64_t{id.value});
  }
  // Enums, signed integers, booleans.
  template <class T>
  void value(T v) {
    add(static_cast<uint64_t>(static_cast<int64_t>(v)));
  }
  template <class T>
  void list(const std::vector<T>& items) {
    add(items.size());
    for (const T& item : items) one(item);
  }

  void one(const Symbol& s) { add(s.name), value(s.value); }
  void one(const Dim& d) { value(d.extent), value(d.size); }
  template <class Tag>
  void one(Id<Tag> id) {
    add(id);
  }
  void one(const Entry& e) { add(e.name), add(e.expertIds), add(e.routing); }
  void one(const Region& r) {
    add(r.name), value(r.extent), value(r.stride), value(r.symmetric), value(r.saved);
  }
  void one(const Buffer& b) {
    add(b.name), value(b.type), list(b.shape), value(b.role), add(b.region);
    value(b.offset), value(b.sharding);
  }
  void one(const Space& s) { add(s.name), value(s.kind), value(s.slotSize), value(s.window); }
  void one(const EventArray& e) {
    add(e.name), add(e.entry), value(e.space), value(e.unit), value(e.rule), value(e.factor), value(e.remote);
  }
  void one(const Tiling& t) {
    value(t.m), value(t.n), value(t.k), value(t.tileM), value(t.tileN), value(t.flags);
    value(std::bit_cast<int32_t>(t.alpha)), value(t.activation), value(t.limit.bits);
  }
  void one(const Family& f) {
    add(f.name), add(f.source), add(f.entry), value(f.op), value(f.core), add(f.space);
    value(f.tiles), one(f.tiling), list(f.reads), list(f.writes), list(f.waits), list(f.signals);
  }
  void one(const TaskRecord& r) { add(r.family), value(r.slot), value(r.tile); }
  void one(const std::vector<TaskRecord>& seat) { list(seat); }
  void one(const Lane& l) {
    add(l.name), add(l.entry), add(l.space), value(l.core), value(l.priority), value(l.rotation);
    list(l.seats), value(l.firstCore);
  }

  uint64_t result() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace

uint64_t fingerprintOf(const TaskProgram& program) {
  Hash hash;
  hash.add(uint64_t{kFormatMajor});
  hash.add(program.name), hash.add(program.target), hash.add(program.options), hash.add(program.graphHash);
  hash.list(program.symbols);
  hash.value(program.mesh.tokens);
  for (int32_t limit : {program.mesh.ep, program.mesh.tp, program.experts, program.topK, program.maxTokens,
                        program.cores, program.cubeCores, program.vectorCores})
    hash.value(limit);
  hash.list(program.entries);
  hash.list(program.regions);
  hash.list(program.buffers);
  hash.list(program.spaces);
  hash.list(program.events);
  hash.list(program.families);
  hash.list(program.lanes);
  return hash.result();
}

}  // namespace sluice::verify_parts

// Segments and stages of families, from the graph of their events.
//
//   1. families and events are taken in topological order; families left over wait for each other in a ring
//   2. a family's segment is the largest of its events' segments, plus one for events that are wide
//   3. its stage is one more than the largest stage of the events of the same segment, else 0
//
// So every event leads to a larger (segment, stage), inside one slot, or to a larger segment.
#include <algorithm>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

class Sorter {
 public:
  Sorter(const TaskProgram& program, const std::vector<EventUse>& uses)
      : program_(program),
        uses_(uses),
        order_(program.families.size()),
        eventOrder_(uses.size()),
        missing_(program.families.size()),
        unfinished_(uses.size()) {}

  Expected<std::vector<FamilyOrder>> run() {
    std::vector<FamilyId> ready;
    for (size_t e = 0; e < uses_.size(); ++e) unfinished_[e] = uses_[e].producers.size();
    for (uint32_t f = 0; f < order_.size(); ++f) {
      missing_[f] = program_.families[f].waits.size();
      if (missing_[f] == 0) ready.push_back(FamilyId{f});
    }
    for (size_t i = 0; i < ready.size(); ++i) finish(ready[i], ready);
    if (ready.size() == order_.size()) return std::move(order_);
    return ringError();
  }

 private:
  void finish(FamilyId family, std::vector<FamilyId>& ready) {
    FamilyOrder& own = order_[family.value];
    own = {};
    for (EventId id : program_.at(family).waits) own = std::max(own, after(id, family));
    for (EventId id : program_.at(family).signals) {
      eventOrder_[id.value] = std::max(eventOrder_[id.value], own);
      if (--unfinished_[id.value] > 0) continue;
      for (FamilyId next : uses_[id.value].consumers)
        if (--missing_[next.value] == 0) ready.push_back(next);
    }
  }

  // The smallest order of a family that waits for this event.
  FamilyOrder after(EventId id, FamilyId consumer) const {
    const SpaceKind producer = spaceKindIn(program_, uses_[id.value].producers.front());
    const FamilyOrder before = eventOrder_[id.value];
    if (isSlotLocal(producer, spaceKindIn(program_, consumer), program_.at(id).space))
      return {before.segment, before.stage + 1};
    return {before.segment + 1, 0};
  }

  // Follows, from a family that is not ready, the families that it waits for until one repeats.
  Error ringError() const {
    std::vector<FamilyId> path;
    FamilyId at;
    for (uint32_t f = 0; f < missing_.size(); ++f)
      if (missing_[f] > 0) at = FamilyId{f};
    while (std::find(path.begin(), path.end(), at) == path.end()) {
      path.push_back(at);
      at = unfinishedProducer(at);
    }
    const auto begin = std::find(path.begin(), path.end(), at);
    std::string ring = fmt::format("'{}'", program_.at(at).name);
    for (auto it = path.rbegin(); it.base() != begin; ++it)
      ring += fmt::format(" -> '{}'", program_.at(*it).name);
    return fail("families of entry '{}' wait for each other in a ring: {}",
                program_.at(program_.at(at).entry).name, ring);
  }

  FamilyId unfinishedProducer(FamilyId family) const {
    for (EventId id : program_.at(family).waits)
      for (FamilyId producer : uses_[id.value].producers)
        if (missing_[producer.value] > 0) return producer;
    return family;
  }

  const TaskProgram& program_;
  const std::vector<EventUse>& uses_;
  std::vector<FamilyOrder> order_;
  std::vector<FamilyOrder> eventOrder_;  // the largest of its producers
  std::vector<size_t> missing_;          // events a family waits for whose producers are not yet ordered
  std::vector<size_t> unfinished_;       // producers of an event that are not yet ordered
};

}  // namespace

Expected<std::vector<FamilyOrder>> orderFamilies(const TaskProgram& program,
                                                 const std::vector<EventUse>& uses) {
  return Sorter(program, uses).run();
}

}  // namespace sluice::verify_parts

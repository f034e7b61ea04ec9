#include "runtime/exec/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/base/clock.h"
#include "runtime/base/hash.h"

namespace sluice {
namespace {

bool isOfRows(const Buffer& buffer) { return buffer.shape.front().extent == Extent::kRows; }

Error rowsDiffer(const Buffer& buffer, int64_t found, int64_t expected) {
  return Error{fmt::format("tensor '{}' has {} rows, but this routing gives the rank {}", buffer.name, found,
                           expected)};
}

// The regions that the tasks of each entry read or write.
std::vector<std::vector<RegionId>> listRegions(const TaskProgram& program) {
  std::vector<std::vector<RegionId>> regions(program.entries.size());
  for (const Family& family : program.families)
    for (const auto* list : {&family.reads, &family.writes})
      for (const BufferId id : *list) {
        const RegionId region = id ? program.at(id).region : RegionId{};
        auto& all = regions[family.entry.value];
        if (region && std::find(all.begin(), all.end(), region) == all.end()) all.push_back(region);
      }
  return regions;
}

}  // namespace

Expected<std::unique_ptr<RankState>> RankState::create(std::shared_ptr<const Plan> plan, Transport& transport,
                                                       Device& device, std::unique_ptr<Executor> executor,
                                                       Identities identities,
                                                       std::shared_ptr<SavedStates> saved) {
  std::unique_ptr<RankState> rank(new RankState);
  const TaskProgram& program = plan->program();
  rank->plan_ = plan;
  rank->transport_ = &transport;
  rank->device_ = &device;
  rank->executor_ = std::move(executor);
  rank->regions_ = RegionSlots::of(*plan, rank->executor_->scratchBytes());
  rank->regionsOf_ = listRegions(program);
  rank->counts_.resize(program.experts);
  rank->buffers_.resize(program.buffers.size());
  rank->identities_ = std::move(identities);
  rank->saved_ = saved ? std::move(saved) : std::make_shared<SavedStates>();
  auto exchange = Exchange::create(transport, program);
  if (!exchange) return rank->explain(exchange.error());
  rank->exchange_ = std::move(*exchange);
  auto words = device.allocate(EventTable::bytesFor(*plan, transport.size()));
  if (!words) return rank->explain(words.error());
  rank->events_ = EventTable(*plan, transport.size(), *words);
  // most programs use only this set: so it fails here instead of in the first run
  if (auto first = rank->savedState(0); !first) return first.error();
  if (Status same = rank->identities_.compareThere(); !same) return same.error();
  return rank;
}

Expected<SavedState*> RankState::savedState(uint32_t number) {
  auto state = saved_->get(*plan_, *device_, number);
  if (!state) return explain(state.error());
  return *state;
}

Status RankState::checkBound(const StepRequest& request, Sizes& sizes) const {
  const TaskProgram& program = plan_->program();
  const EntryPlan& entryPlan = plan_->at(request.entry);
  const bool routes = entryPlan.routing == request.entry;
  const Buffer *firstOfTokens = nullptr, *firstOfRows = nullptr;
  const auto agree = [](const Buffer& buffer, int64_t found, const char* unit, const Buffer*& first,
                        int64_t& size) -> Status {
    if (first && found != size)
      return Error{
          fmt::format("tensor '{}' has {} {}, but '{}' has {}", buffer.name, found, unit, first->name, size)};
    first = &buffer;
    size = found;
    return {};
  };
  for (const auto* list : {&entryPlan.reads, &entryPlan.writes}) {
    for (BufferId id : *list) {
      const Buffer& buffer = program.at(id);
      const BoundTensor& bound = (*request.bound)[id.value];
      if (!bound.bound())
        return Error{fmt::format("entry '{}' needs tensor '{}', which is not bound",
                                 program.at(request.entry).name, buffer.name)};
      const Extent extent = buffer.shape.front().extent;
      Status same;
      if (extent == Extent::kTokens)
        same = agree(buffer, bound.extent, "tokens", firstOfTokens, sizes.tokens);
      if (extent == Extent::kRows && routes)
        same = agree(buffer, bound.extent, "rows", firstOfRows, sizes.rows);
      if (!same) return same;
    }
  }
  return {};
}

Status RankState::checkSaved(const StepRequest& request, const Sizes& sizes) const {
  const TaskProgram& program = plan_->program();
  const SavedState& saved = *request.saved;
  const std::string& name = program.at(request.entry).name;
  for (EntryId from : plan_->at(request.entry).savedFrom) {
    // callers that only use set 0 need not know that sets exist
    const std::string set = saved.number > 0 ? fmt::format(" in saved set {}", saved.number) : "";
    if (!saved.done[from.value]) {
      const EntryId by = saved.staleBy[from.value];
      const std::string since = by ? fmt::format(" since entry '{}' did", program.at(by).name) : "";
      return Error{fmt::format("entry '{}' uses what entry '{}' saves{}, which has not run{}{}", name,
                               program.at(from).name, set, saved.number > 0 ? " on that set" : "", since)};
    }
    const int32_t ran = saved.tables[plan_->at(from).routing.value].tokens;
    if (ran != sizes.tokens)
      return Error{fmt::format("entry '{}' has {} tokens, but entry '{}' ran with {}{}", name, sizes.tokens,
                               program.at(from).name, ran, set)};
  }
  const EntryPlan& entryPlan = plan_->at(request.entry);
  if (entryPlan.routing == request.entry) return {};
  const int64_t rows = saved.tables[entryPlan.routing.value].rows;
  for (BufferId id : entryPlan.reads)
    if (const int64_t bound = (*request.bound)[id.value].extent; isOfRows(program.at(id)) && bound != rows)
      return rowsDiffer(program.at(id), bound, rows);
  return {};
}

Status RankState::route(const StepRequest& request, int64_t tokens) {
  const EntryId entry = request.entry;
  if (plan_->at(entry).routing != entry) return {};
  // the tables are refilled, so they are stale until this entry has run again, even if another rank refuses
  // the step
  request.saved->forget(*plan_, entry);
  const TaskProgram& program = plan_->program();
  const BufferId ids = program.at(entry).expertIds, placement = program.at(entry).placement;
  RoutingTables& tables = request.saved->tables[entry.value];
  placementDigest_ = 0;
  if (!ids) {
    countAllPairs(plan_->routingShape(), static_cast<int32_t>(tokens), tables, counts_);
    return {};
  }
  const RoutingShape& shape = plan_->routingShape();
  using Numbers = std::span<const int32_t>;
  const auto numbers = [&](BufferId id, int64_t count, std::vector<std::byte>& copy) -> Expected<Numbers> {
    const auto size = static_cast<size_t>(count);
    const auto data = device_->onHost((*request.bound)[id.value].data, size * sizeof(int32_t), copy);
    if (!data) return Error{fmt::format("tensor '{}': {}", program.at(id).name, data.error().message)};
    return Numbers(reinterpret_cast<const int32_t*>(*data), size);
  };
  const Expected<Numbers> found = numbers(ids, tokens * shape.topK, idsCopy_);
  if (!found) return found.error();
  Numbers data = *found;
  if (shape.mesh.tokens == TokenHolders::kSame) idsDigest_ = hashContent(data);
  const int32_t experts = shape.experts - program.spare;
  if (Status legal = checkIds(data, shape.topK, experts); !legal) return legal;
  if (placement) {
    const Expected<Numbers> expertAt = numbers(placement, shape.experts, placesCopy_);
    if (!expertAt) return expertAt.error();
    if (Status legal = placement_.set(*expertAt, experts); !legal)
      return Error{fmt::format("tensor '{}': {}", program.at(placement).name, legal.error().message)};
    data = placement_.place(data, shape.mesh.sourceOf(transport_->rank()));
    placementDigest_ = hashContent(*expertAt);
  }
  countPairs(shape, data, static_cast<int32_t>(tokens), tables, counts_);
  return {};
}

// The rows that all ranks have bound, with the counts of all ranks: each gets the same result.
Status RankState::checkRows(const StepRequest& request) const {
  const TaskProgram& program = plan_->program();
  const auto& reads = plan_->at(request.entry).reads;
  const auto first =
      std::find_if(reads.begin(), reads.end(), [&](BufferId id) { return isOfRows(program.at(id)); });
  if (first == reads.end()) return {};
  for (int rank = 0; rank < transport_->size(); ++rank) {
    const int64_t bound = request.meeting->rankRows(rank);
    const int64_t rows = rowsAt(plan_->routingShape(), rank, exchange_.all());
    if (bound != rows)
      return Error{fmt::format("rank {}: {}", rank, rowsDiffer(program.at(*first), bound, rows).message)};
  }
  return {};
}

// Builds the tables of this entry, and of later entries that use its slots in another order.
void RankState::buildAllTables(const StepRequest& request) {
  const EntryId entry = request.entry;
  auto& tables = request.saved->tables;
  for (uint32_t e = entry.value; e < tables.size(); ++e) {
    const EntryPlan& user = plan_->at(EntryId{e});
    if (user.routing != entry || user.tables != EntryId{e}) continue;
    if (e != entry.value) tables[e] = tables[entry.value];
    RoutingShape shape = plan_->routingShape();
    shape.ownLast = user.ownLast;
    buildTables(shape, transport_->rank(), exchange_.all(), tables[e]);
  }
}

// Asks the caller for the memory of the outputs of rows that it has bound.
Status RankState::placeRows(const StepRequest& request) {
  for (const BufferId id : plan_->at(request.entry).rowWrites) {
    const auto& memory = (*request.bound)[id.value].rows;
    if (!memory) continue;
    const Buffer& buffer = plan_->program().at(id);
    const int64_t rows = step_.tables->rows;
    auto given = (*memory)(step_.tables->expertRow);
    if (!given) return given.error();
    auto* const data = static_cast<std::byte*>(*given);
    const auto address = reinterpret_cast<uintptr_t>(data);
    if (!data ? rows > 0 : address % static_cast<uintptr_t>(dtypeBytes(buffer.type)) != 0)
      return Error{fmt::format("tensor '{}' got {} for {} rows, expected memory of {} bytes, aligned to {}",
                               buffer.name, data ? "an address that is not aligned" : "no memory", rows,
                               rows * rowBytes(buffer), dtypeBytes(buffer.type))};
    buffers_[id.value] = {data, rowBytes(buffer), {}, 0};
  }
  return {};
}

// The address of the region's beginning.
BufferAddress RankState::regionAddress(const StepRequest& request, RegionId id) const {
  const Region& region = plan_->program().at(id);
  const int32_t slot = regions_.slotOf[id.value];
  const bool saved = slot == RegionSlots::kSaved;
  BufferAddress address;
  address.stride = region.stride;
  if (region.symmetric) {
    const SymmetricMemory& memory = saved ? request.saved->symmetric : request.memory->symmetric[slot];
    address.handle = memory.handle;
    address.offset = saved ? static_cast<int64_t>(request.saved->offsets[id.value]) : 0;
    address.data = memory.data + address.offset;
  } else {
    address.data = saved ? request.saved->local[id.value].data : request.memory->local[slot].data;
  }
  return address;
}

// A digest of the memory to which other ranks write in this step: equal at ranks that use the same.
uint64_t RankState::digestOfMemory(const StepRequest& request) const {
  uint64_t state = 0;
  const auto add = [&](SymmetricHandle handle) { state = hashContent(std::span(&handle.index, 1), state); };
  const size_t slots = regions_.needs.symmetric.size();
  for (size_t slot = 0; slot < slots; ++slot) add(request.memory->symmetric[slot].handle);
  add(request.saved->symmetric.handle);
  return state;
}

void RankState::fillAddresses(const StepRequest& request) {
  const TaskProgram& program = plan_->program();
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (!buffer.region) {
      buffers_[b] = {(*request.bound)[b].data, rowBytes(buffer), {}, 0};
      continue;
    }
    BufferAddress address = regionAddress(request, buffer.region);
    address.data += buffer.offset;
    address.offset += buffer.offset;
    // the stride of the address is the whole region's, but buffers of fixed size have the caller's layout
    if (buffer.shape.front().extent == Extent::kFixed) address.stride = rowBytes(buffer);
    buffers_[b] = address;
  }
  step_.plan = plan_.get();
  step_.rank = transport_->rank();
  step_.transport = transport_;
  step_.events = &events_;
  step_.tables = &request.saved->tables[plan_->at(request.entry).tables.value];
  step_.entry = request.entry;
  step_.buffers = buffers_;
}

Expected<const Step*> RankState::bindStep(const StepRequest& request, double timeoutSeconds) {
  if (Status bound = bind(request, timeoutSeconds); !bound) {
    executor_->release();
    return bound.error();
  }
  return &step_;
}

Status RankState::bind(const StepRequest& request, double timeoutSeconds) {
  const EntryId entry = request.entry;
  SavedState& saved = *request.saved;
  const std::string& name = plan_->program().at(entry).name;
  if (Status same = identities_.await(name, timeoutSeconds); !same) return same;
  // if no tensor of tokens is bound, the number with which the routing was made
  const EntryId routing = plan_->at(entry).routing;
  Sizes sizes;
  if (routing != entry) sizes.tokens = saved.tables[routing.value].tokens;
  Status own = checkBound(request, sizes);
  if (own) own = checkSaved(request, sizes);
  if (own) own = executor_->prepare(*request.bound, request.callers);
  if (own) own = route(request, sizes.tokens);
  StepOffer offer = makeOffer(request, sizes, own);
  if (Status all = meet(request, offer, timeoutSeconds); !all) return all;
  saved.forget(*plan_, entry);
  if (routing == entry) {
    if (Status fits = checkTotals(); !fits) return fits;
    if (Status fits = checkRows(request); !fits) return fits;
    buildAllTables(request);
    saved.digests[entry.value] = exchange_.digest();
  }
  fillAddresses(request);
  const bool meetsAgain = request.meeting->anyAsks();
  if (Status placed = placeRows(request); !placed) {
    offer.failure = placed.error().message;
    if (!meetsAgain) {  // peers may already be writing here
      transport_->abort(fmt::format("rank {}: {}", transport_->rank(), offer.failure));
      return Error{transport_->abortMessage()};
    }
  }
  if (meetsAgain)
    if (Status all = request.meeting->hold(offer, timeoutSeconds); !all) return all;
  events_.setThresholds(*plan_, entry, *step_.tables);
  return {};
}

// `own` is what this rank found in its own part; with an error, too, it joins the meeting.
StepOffer RankState::makeOffer(const StepRequest& request, const Sizes& sizes, const Status& own) const {
  const EntryId entry = request.entry;
  const EntryId routing = plan_->at(entry).routing;
  StepOffer offer;
  offer.step = request.number;
  offer.name = plan_->program().at(entry).name;
  offer.program = plan_->program().name;
  offer.context = request.context;
  offer.entry = entry;
  offer.tokens = sizes.tokens;
  offer.rows = sizes.rows;
  offer.common = request.common;
  offer.placement = routing == entry ? placementDigest_ : 0;
  offer.routing = routing == entry ? 0 : request.saved->digests[routing.value];
  offer.memory = digestOfMemory(request);
  offer.saved = request.saved->number;
  const auto& rows = plan_->at(entry).rowWrites;
  offer.asks = std::any_of(rows.begin(), rows.end(),
                           [&](BufferId id) { return (*request.bound)[id.value].rowsMayFail; });
  if (!own) offer.failure = own.error().message;
  return offer;
}

Status RankState::meet(const StepRequest& request, const StepOffer& offer, double timeoutSeconds) {
  const EntryId entry = request.entry;
  const bool routes = plan_->at(entry).routing == entry;
  exchanged_.first = monotonicNanoseconds();
  if (offer.failure.empty() && routes) exchange_.put(request.number, counts_, idsDigest_);
  if (Status all = request.meeting->hold(offer, timeoutSeconds); !all) return all;
  if (routes)
    if (Status sane = exchange_.take(request.number, entry, *request.meeting); !sane) return sane;
  exchanged_.second = monotonicNanoseconds();
  return {};
}

// Rows have 32-bit numbers. All ranks see the same counts and get the same result.
Status RankState::checkTotals() const {
  const int64_t rows = exchange_.pairs();
  if (rows <= std::numeric_limits<int32_t>::max()) return {};
  return Error{fmt::format("the ranks have {} (token, k) pairs in all, expected at most {}", rows,
                           std::numeric_limits<int32_t>::max())};
}

bool RankState::finishStep(const StepRequest& request, TouchedMemory& touched) {
  SavedState& saved = *request.saved;
  events_.finish(*plan_, request.entry, *step_.tables);
  saved.done[request.entry.value] = true;
  const RoutingTables& tables = *step_.tables;
  SavedState::Extents& largest = saved.largest[request.entry.value];
  if (largest.memory == request.memory && tables.tokens <= largest.tokens && tables.rows <= largest.rows &&
      tables.returned <= largest.returned)
    return false;
  largest = {request.memory, std::max(largest.tokens, tables.tokens), std::max(largest.rows, tables.rows),
             std::max(largest.returned, tables.returned)};
  for (const RegionId id : regionsOf_[request.entry.value]) {
    const Region& region = plan_->program().at(id);
    const int64_t bytes =
        countElements(*plan_, transport_->rank(), region.extent, *step_.tables) * region.stride;
    if (region.saved)
      saved.touched[id.value] = std::max(saved.touched[id.value], bytes);
    else
      touched.touch(region.symmetric, regions_.slotOf[id.value], *request.memory, bytes);
  }
  int64_t bytes = 0;
  for (const int64_t of : saved.touched) bytes += of;
  saved.bytes.store(bytes, std::memory_order_relaxed);
  return true;
}

}  // namespace sluice

#include "runtime/exec/rank.h"

#include <fmt/format.h>

#include <limits>

#include "runtime/base/clock.h"

namespace sluice {
namespace {

bool isTokens(const Buffer& buffer) { return buffer.shape.front().extent == Extent::kTokens; }

}  // namespace

Expected<std::unique_ptr<RankState>> RankState::create(std::shared_ptr<const Plan> plan, Transport& transport,
                                                       const PanelOptions& panels) {
  std::unique_ptr<RankState> rank(new RankState);
  const TaskProgram& program = plan->program();
  rank->plan_ = plan;
  rank->transport_ = &transport;
  rank->panels_ = std::make_unique<WeightPanels>(*plan, panels);
  auto identities = Identities::create(transport, plan->verified());
  if (!identities) return identities.error();
  rank->identities_ = std::move(*identities);
  if (Status made = rank->allocate(); !made) return rank->identities_.explain(made.error());
  if (Status same = rank->identities_.compareThere(); !same) return same.error();
  rank->bound_.resize(program.buffers.size());
  rank->tables_.resize(program.entries.size());
  rank->done_.resize(program.entries.size());
  rank->digests_.resize(program.entries.size());
  rank->counts_.resize(program.experts);
  rank->step_.buffers.resize(program.buffers.size());
  return rank;
}

// All memory whose size depends on the program.
Status RankState::allocate() {
  auto exchange = Exchange::create(*transport_, plan_->program());
  if (!exchange) return exchange.error();
  exchange_ = std::move(*exchange);
  auto events = EventTable::create(*plan_, *transport_);
  if (!events) return events.error();
  events_ = std::move(*events);
  for (const Region& region : plan_->program().regions) {
    const size_t bytes = plan_->maxExtent(region.extent) * region.stride;
    local_.emplace_back();
    symmetric_.emplace_back();
    if (region.symmetric) {
      auto handle = transport_->allocate(bytes);
      if (!handle) return Error{fmt::format("region '{}': {}", region.name, handle.error().message)};
      symmetric_.back() = *handle;
    } else {
      auto memory = Reservation::reserve(bytes);
      if (!memory) return Error{fmt::format("region '{}': {}", region.name, memory.error().message)};
      local_.back() = std::move(*memory);
    }
  }
  return {};
}

Status RankState::checkBound(EntryId entry, int64_t& tokens) const {
  const TaskProgram& program = plan_->program();
  const EntryPlan& entryPlan = plan_->at(entry);
  const Buffer* first = nullptr;
  for (const auto* list : {&entryPlan.reads, &entryPlan.writes}) {
    for (BufferId id : *list) {
      const Buffer& buffer = program.at(id);
      const BoundTensor& bound = bound_[id.value];
      if (!bound.bound)
        return Error{fmt::format("entry '{}' needs tensor '{}', which is not bound", program.at(entry).name,
                                 buffer.name)};
      if (!isTokens(buffer)) continue;
      if (first && bound.extent != tokens)
        return Error{fmt::format("tensor '{}' has {} tokens, but '{}' has {}", buffer.name, bound.extent,
                                 first->name, tokens)};
      first = &buffer;
      tokens = bound.extent;
    }
  }
  return {};
}

Status RankState::checkSaved(EntryId entry, int64_t tokens) const {
  const TaskProgram& program = plan_->program();
  for (EntryId from : plan_->at(entry).savedFrom) {
    if (!done_[from.value])
      return Error{fmt::format("entry '{}' uses what entry '{}' saves, which has not run",
                               program.at(entry).name, program.at(from).name)};
    if (tables_[from.value].tokens != tokens)
      return Error{fmt::format("entry '{}' has {} tokens, but entry '{}' ran with {}", program.at(entry).name,
                               tokens, program.at(from).name, tables_[from.value].tokens)};
  }
  return {};
}

Status RankState::route(EntryId entry, int64_t tokens) {
  const BufferId ids = plan_->program().at(entry).expertIds;
  if (!ids) return {};
  // stale until this entry has run again
  done_[entry.value] = false;
  const int64_t topK = plan_->routingShape().topK;
  const auto* data = reinterpret_cast<const int32_t*>(bound_[ids.value].data);
  return countPairs(plan_->routingShape(), {data, static_cast<size_t>(tokens * topK)},
                    static_cast<int32_t>(tokens), tables_[entry.value], counts_);
}

Status RankState::checkRows(EntryId entry) const {
  const int32_t rows = tables_[plan_->at(entry).routing.value].rows;
  for (BufferId id : plan_->at(entry).reads) {
    const Buffer& buffer = plan_->program().at(id);
    if (buffer.shape.front().extent != Extent::kRows || bound_[id.value].extent == rows) continue;
    return Error{fmt::format("rank {}: tensor '{}' has {} rows, but this routing gives the rank {}",
                             transport_->rank(), buffer.name, bound_[id.value].extent, rows)};
  }
  return {};
}

void RankState::fillAddresses(EntryId entry) {
  const TaskProgram& program = plan_->program();
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (!buffer.region) {
      step_.buffers[b] = {bound_[b].data, rowBytes(buffer), {}, 0};
      continue;
    }
    const uint32_t region = buffer.region.value;
    const bool symmetric = program.regions[region].symmetric;
    std::byte* data = symmetric ? transport_->local(symmetric_[region]) : local_[region].data();
    // what is fixed lies as in the caller's memory: its stride is that of the region as a whole
    const bool fixed = buffer.shape.front().extent == Extent::kFixed;
    step_.buffers[b] = {data + buffer.offset, fixed ? rowBytes(buffer) : program.regions[region].stride,
                        symmetric_[region], buffer.offset};
  }
  step_.plan = plan_.get();
  step_.transport = transport_;
  step_.events = &events_;
  step_.tables = &tables_[plan_->at(entry).routing.value];
  step_.entry = entry;
  step_.panels = panels_->active() ? panels_.get() : nullptr;
}

Expected<const Step*> RankState::bindStep(EntryId entry, double timeoutSeconds) {
  const std::string& name = plan_->program().at(entry).name;
  if (Status same = identities_.await(name, timeoutSeconds); !same) return same.error();
  // where no tensor of tokens is bound, those that the routing was made with
  const EntryId routing = plan_->at(entry).routing;
  int64_t tokens = routing == entry ? 0 : tables_[routing.value].tokens;
  Status own = checkBound(entry, tokens);
  if (own) own = checkSaved(entry, tokens);
  if (own) own = panels_->beginStep();
  if (own) own = route(entry, tokens);
  const StepOffer offer{entry, tokens, routing == entry ? 0 : digests_[routing.value],
                        own ? std::string() : own.error().message};

  exchanged_.first = monotonicNanoseconds();
  if (Status all = exchange_.step(offer, counts_, timeoutSeconds); !all) return all.error();
  exchanged_.second = monotonicNanoseconds();
  if (plan_->at(entry).routing == entry) {
    if (Status fits = checkTotals(); !fits) return fits.error();
    buildTables(plan_->routingShape(), transport_->rank(), exchange_.all(), tables_[entry.value]);
    digests_[entry.value] = exchange_.digest();
  }
  if (Status rows = checkRows(entry); !rows) {
    // peers may already be writing here: the step cannot be given up quietly
    transport_->abort(rows.error().message);
    return Error{transport_->abortMessage()};
  }
  fillAddresses(entry);
  events_.setThresholds(*plan_, entry, *step_.tables);
  return &step_;
}

// Rows are numbered by 32 bits. All ranks see the same counts and come to the same answer.
Status RankState::checkTotals() const {
  int64_t rows = 0;
  for (int32_t count : exchange_.all()) rows += count;
  if (rows <= std::numeric_limits<int32_t>::max()) return {};
  return Error{fmt::format("the ranks have {} (token, k) pairs in all, expected at most {}", rows,
                           std::numeric_limits<int32_t>::max())};
}

void RankState::finishStep(EntryId entry) {
  events_.clear(*plan_, entry, *step_.tables);
  done_[entry.value] = true;
}

}  // namespace sluice

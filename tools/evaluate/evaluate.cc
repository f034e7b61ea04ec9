#include "tools/evaluate/evaluate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <random>
#include <set>

#include "runtime/program/op_table.h"
#include "tools/evaluate/families.h"

namespace sluice::tools {
namespace {

class Evaluation {
 public:
  Evaluation(const VerifiedProgram& program, std::vector<ValueMap> inputs, const EvaluateOptions& options)
      : p_(*program), inputs_(std::move(inputs)), options_(options), noise_(options.noiseSeed) {
    assert(std::ssize(inputs_) == p_.mesh.peers());
    ranks_.resize(inputs_.size());
    for (RankState& rank : ranks_) rank.buffers.resize(p_.buffers.size());
    findTokens();
  }

  void countUses(std::span<const EntryId> entries) {
    for (const EntryId entry : entries)
      for (const Family* family : listFamilies(entry)) {
        ++steps_;
        for (const auto* ids : {&family->reads, &family->writes})
          for (BufferId id : *ids) ++uses_[id];
      }
  }

  Status run(EntryId entry) {
    if (Status status = bind(entry); !status) return status;
    const Expected<std::vector<RankRows>> routing = route(entry);
    if (!routing) return routing.error();
    if (Status status = checkRows(entry, *routing); !status) return status;
    for (const Family* family : inDataOrder(entry)) {
      if (Status status = checkRead(*family); !status) return status;
      ++step_;
      if (options_.before) options_.before(step_, steps_, family->name);
      const std::vector<BufferId> unused = useOnce(*family);
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        evaluateFamily({p_, *routing, ranks_, options_.roundStored,
                        options_.noiseSeed != 0 ? &noise_ : nullptr, options_.threads, options_.exactFactors},
                       *family, rank);
        for (BufferId id : unused)
          if (p_.at(id).role == Role::kOutput && options_.output) {
            options_.output(rank, id, ranks_[rank].buffers[id.value]);
            ranks_[rank].buffers[id.value] = {};
          }
      }
      for (BufferId id : family->writes)
        if (id) written_.insert(id);
      for (BufferId id : unused)  // other ranks may have read what a rank has
        if (p_.at(id).role == Role::kTemp || p_.at(id).role == Role::kSaved)
          for (RankState& rank : ranks_) rank.buffers[id.value] = {};
    }
    return {};
  }

  std::vector<ValueMap> takeOutputs() {
    std::vector<ValueMap> outputs(ranks_.size());
    if (options_.output) return outputs;
    for (BufferId id : written_)
      if (p_.at(id).role == Role::kOutput)
        for (size_t r = 0; r < ranks_.size(); ++r)
          outputs[r].emplace(p_.at(id).name, std::move(ranks_[r].buffers[id.value]));
    return outputs;
  }

 private:
  // The buffers that no family needs after this one.
  std::vector<BufferId> useOnce(const Family& family) {
    std::vector<BufferId> unused;
    for (const auto* ids : {&family.reads, &family.writes})
      for (BufferId id : *ids)
        if (id && --uses_[id] == 0) unused.push_back(id);
    return unused;
  }

  // Whether products read it as their weight, and nothing else does.
  bool isOnlyWeight(BufferId id) const {
    bool isWeight = false;
    for (const Family& family : p_.families)
      for (size_t i = 0; i < family.reads.size(); ++i) {
        if (family.reads[i] != id) continue;
        if (!findInfo(family.op).reads[i].isWeight) return false;
        isWeight = true;
      }
    return isWeight;
  }

  std::vector<const Family*> listFamilies(EntryId entry) const {
    std::vector<const Family*> families;
    for (const Family& family : p_.families)
      if (family.entry == entry) families.push_back(&family);
    return families;
  }

  void findTokens() {
    for (size_t rank = 0; rank < options_.tokens.size(); ++rank) ranks_[rank].tokens = options_.tokens[rank];
    for (const Buffer& buffer : p_.buffers) {
      if (buffer.role != Role::kInput || buffer.shape[0].extent != Extent::kTokens) continue;
      for (size_t rank = 0; rank < ranks_.size(); ++rank)
        if (const auto it = inputs_[rank].find(buffer.name);
            it != inputs_[rank].end() && !it->second.shape.empty())
          ranks_[rank].tokens = it->second.shape[0];
    }
  }

  // Binds what the caller gives for an entry: its inputs, and the gradients that it adds to.
  Status bind(EntryId entry) {
    std::set<BufferId> needed, added;
    for (BufferId id : {p_.at(entry).expertIds, p_.at(entry).placement})
      if (id) needed.insert(id);
    for (const Family* family : listFamilies(entry)) {
      for (BufferId id : family->reads)
        if (id && p_.at(id).role == Role::kInput) needed.insert(id);
      for (BufferId id : family->writes)
        if (id && isAccumulated(p_, id)) added.insert(id);
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (BufferId id : needed)
        if (Status status = bindTensor(rank, id, true); !status) return status;
      for (BufferId id : added)
        if (!written_.contains(id))
          if (Status status = bindTensor(rank, id, false); !status) return status;
    }
    return {};
  }

  Status bindTensor(size_t rank, BufferId id, bool required) {
    if (!ranks_[rank].buffers[id.value].shape.empty()) return {};  // an earlier entry took it
    const Buffer& buffer = p_.at(id);
    const auto it = inputs_[rank].find(buffer.name);
    if (it == inputs_[rank].end() && !required) return {};
    if (it == inputs_[rank].end())
      return Error{fmt::format("rank {}: tensor '{}' is missing", rank, buffer.name)};
    const std::vector<int64_t>& found = it->second.shape;
    std::vector<int64_t> expected;
    for (size_t i = 0; i < buffer.shape.size(); ++i)
      expected.push_back(p_.sizeAt(static_cast<int32_t>(rank), buffer.shape[i],
                                   i < found.size() ? found[i] : 0, i < found.size() ? found[i] : 0));
    if (!buffer.shape.empty() && buffer.shape[0].extent == Extent::kTokens && !expected.empty())
      expected[0] = tokensOf_.try_emplace(rank, expected[0]).first->second;
    if (found != expected)
      return Error{fmt::format("rank {}: tensor '{}' has shape [{}], expected [{}]", rank, buffer.name,
                               fmt::join(found, ", "), fmt::join(expected, ", "))};
    Values& bound = ranks_[rank].buffers[id.value] = std::move(it->second);
    if (required && !isOnlyWeight(id)) bound.load();
    return {};
  }

  // The tables of the entry whose routing this one uses.
  Expected<std::vector<RankRows>> route(EntryId entry) {
    if (!p_.at(entry).routes()) entry = p_.at(entry).routing;
    std::vector<const Values*> ids, placements;
    if (!p_.at(entry).expertIds) {
      everyId_.clear();
      for (const RankState& rank : ranks_) everyId_.push_back(everyExpert(p_, rank.tokens));
      for (const Values& all : everyId_) ids.push_back(&all);
      return routeRows(p_, ids);
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (Status status = bindTensor(rank, p_.at(entry).expertIds, true); !status) return status.error();
      ids.push_back(&ranks_[rank].buffers[p_.at(entry).expertIds.value]);
      ranks_[rank].tokens = ids.back()->shape[0];
      const BufferId placement = p_.at(entry).placement;
      if (!placement) continue;
      if (Status status = bindTensor(rank, placement, true); !status) return status.error();
      placements.push_back(&ranks_[rank].buffers[placement.value]);
    }
    return routeRows(p_, ids, placements);
  }

  Status checkRows(EntryId entry, const std::vector<RankRows>& routing) const {
    for (const Family* family : listFamilies(entry))
      for (BufferId id : family->reads) {
        if (!id || p_.at(id).role != Role::kInput || p_.at(id).shape[0].extent != Extent::kRows) continue;
        for (size_t rank = 0; rank < ranks_.size(); ++rank)
          if (const int64_t found = ranks_[rank].buffers[id.value].shape[0];
              found != std::ssize(routing[rank].rows))
            return Error{fmt::format("rank {}: tensor '{}' has {} rows, but this routing gives the rank {}",
                                     rank, p_.at(id).name, found, routing[rank].rows.size())};
      }
    return {};
  }

  // Each family comes after all families of its entry that write what it reads.
  std::vector<const Family*> inDataOrder(EntryId entry) const {
    std::vector<const Family*> waiting = listFamilies(entry), order;
    std::multiset<BufferId> unwritten;
    for (const Family* family : waiting) unwritten.insert(family->writes.begin(), family->writes.end());
    unwritten.erase(BufferId{});
    while (!waiting.empty()) {
      const auto ready = std::find_if(waiting.begin(), waiting.end(), [&](const Family* family) {
        return std::none_of(family->reads.begin(), family->reads.end(),
                            [&](BufferId id) { return unwritten.contains(id); });
      });
      assert(ready != waiting.end());  // verify() has shown that reads follow writes
      for (BufferId id : (*ready)->writes)
        if (id) unwritten.erase(unwritten.find(id));
      order.push_back(*ready);
      waiting.erase(ready);
    }
    return order;
  }

  Status checkRead(const Family& family) const {
    for (BufferId id : family.reads)
      if (id && p_.at(id).role != Role::kInput && !written_.contains(id))
        return Error{fmt::format("entry '{}' reads buffer '{}', which no entry before it wrote",
                                 p_.at(family.entry).name, p_.at(id).name)};
    return {};
  }

  const TaskProgram& p_;
  std::vector<ValueMap> inputs_;  // those that no entry has taken yet
  const EvaluateOptions& options_;
  std::vector<RankState> ranks_;
  std::vector<Values> everyId_;         // by rank, of an entry without ids
  std::map<size_t, int64_t> tokensOf_;  // of the ranks that have a tensor of tokens bound
  std::set<BufferId> written_;
  std::mt19937_64 noise_;
  std::map<BufferId, int64_t> uses_;  // by families that have not run
  int64_t step_ = 0, steps_ = 0;      // families
};

}  // namespace

Expected<std::vector<ValueMap>> evaluate(const VerifiedProgram& program, std::span<const EntryId> entries,
                                         std::vector<ValueMap> inputs, const EvaluateOptions& options) {
  Evaluation evaluation(program, std::move(inputs), options);
  evaluation.countUses(entries);
  for (EntryId entry : entries)
    if (Status status = evaluation.run(entry); !status) return status.error();
  return evaluation.takeOutputs();
}

}  // namespace sluice::tools

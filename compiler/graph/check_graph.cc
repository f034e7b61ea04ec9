#include "compiler/graph/check_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/graph/ops.h"

namespace sluice {

namespace {

// Where a tensor gets its content.
struct Definition {
  std::string what;  // "node 'route'", "an input of entry 'forward'"
  SourcePos pos;
};

class GraphChecker {
 public:
  GraphChecker(Graph& graph, ErrorSink& errors) : graph_(graph), errors_(errors) {}

  void run() {
    for (size_t i = 0; i < graph_.entries.size(); ++i) {
      GraphEntry& entry = graph_.entries[i];
      checkNames(i);
      defineTensors(entry);
      checkUses(entry);
      sortNodes(entry);
      checkHandOver(i);
      if (errors_.first()) return;
    }
    for (uint32_t i = 0; i < graph_.tensors.size(); ++i) {
      if (used_.contains(TensorId{i})) continue;
      errors_.fail(graph_.tensors[i].pos,
                   fmt::format("tensor '{}' is used by no node and is no output", graph_.tensors[i].name));
    }
  }

 private:
  const std::string& nameOf(TensorUse use) const { return graph_.at(use.tensor).name; }

  void checkNames(size_t index) {
    const GraphEntry& entry = graph_.entries[index];
    for (size_t i = 0; i < index; ++i) {
      if (graph_.entries[i].name != entry.name) continue;
      errors_.fail(entry.pos, fmt::format("a second entry '{}', the first is in line {}", entry.name,
                                          graph_.entries[i].pos.line));
    }
    std::map<std::string, SourcePos> nodes;
    for (const GraphNode& node : entry.nodes) {
      const auto [it, isNew] = nodes.emplace(node.name, node.pos);
      if (isNew) continue;
      errors_.fail(node.pos, fmt::format("a second node '{}' in entry '{}', the first is in line {}",
                                         node.name, entry.name, it->second.line));
    }
  }

  void defineTensors(const GraphEntry& entry) {
    local_.clear();
    for (const TensorUse& input : entry.inputs) {
      define(input, {fmt::format("an input of entry '{}'", entry.name), input.pos});
    }
    for (const TensorUse& saved : entry.saved) defineLocally(saved, {"saved by an earlier entry", saved.pos});
    for (const GraphNode& node : entry.nodes) {
      for (const TensorUse& output : node.outputs) {
        if (output.tensor) define(output, {fmt::format("produced by node '{}'", node.name), node.pos}, &node);
      }
    }
  }

  // Defined once in the graph, except that entries may share inputs.
  void define(const TensorUse& use, const Definition& definition, const GraphNode* producer = nullptr) {
    defineLocally(use, definition);
    const auto [it, isNew] = defined_.emplace(use.tensor, std::pair{definition, producer != nullptr});
    if (isNew || (!it->second.second && producer == nullptr)) return;
    failTwice(use, definition, it->second.first);
  }

  void defineLocally(const TensorUse& use, const Definition& definition) {
    const auto [it, isNew] = local_.emplace(use.tensor, definition);
    if (!isNew) failTwice(use, definition, it->second);
  }

  void failTwice(const TensorUse& use, const Definition& now, const Definition& before) {
    errors_.fail(use.pos, fmt::format("tensor '{}' is {}, but is already {} (line {})", nameOf(use), now.what,
                                      before.what, before.pos.line));
  }

  void checkUses(const GraphEntry& entry) {
    for (const GraphNode& node : entry.nodes) {
      for (const TensorUse& input : node.inputs) {
        if (!input.tensor) continue;
        used_.insert(input.tensor);
        if (local_.contains(input.tensor)) continue;
        errors_.fail(input.pos,
                     fmt::format("node '{}' uses tensor '{}', which is not produced in entry '{}' and is "
                                 "neither an input nor saved",
                                 node.name, nameOf(input), entry.name));
      }
    }
    for (const TensorUse& use : entry.outputs) checkSink(entry, use, "an output");
    for (const TensorUse& use : entry.save) checkSink(entry, use, "saved");
    for (const TensorUse& use : entry.outputs) {
      const auto same = std::ranges::find(entry.save, use.tensor, &TensorUse::tensor);
      if (same == entry.save.end()) continue;
      errors_.fail(same->pos,
                   fmt::format("tensor '{}' is saved and an output, expected one of them", nameOf(use)));
    }
  }

  void checkSink(const GraphEntry& entry, const TensorUse& use, std::string_view what) {
    used_.insert(use.tensor);
    const bool produced = std::ranges::any_of(entry.nodes, [&](const GraphNode& node) {
      return std::ranges::find(node.outputs, use.tensor, &TensorUse::tensor) != node.outputs.end();
    });
    if (produced) return;
    errors_.fail(use.pos, fmt::format("tensor '{}' is {}, but no node of entry '{}' produces it", nameOf(use),
                                      what, entry.name));
  }

  // What is saved comes from an entry on the way back through `after`.
  void checkHandOver(size_t index) {
    const GraphEntry& entry = graph_.entries[index];
    std::set<TensorId> available;
    size_t end = index;
    for (std::string after = entry.after; !after.empty();) {
      const auto first = graph_.entries.begin();
      const auto earlier =
          std::find_if(first, first + end, [&](const GraphEntry& e) { return e.name == after; });
      if (earlier == first + end) {
        errors_.fail(entry.pos, fmt::format("entry '{}' runs after '{}', which is no earlier entry",
                                            entry.name, entry.after));
        return;
      }
      for (const TensorUse& use : earlier->save) available.insert(use.tensor);
      after = earlier->after;
      end = earlier - first;
    }
    for (const TensorUse& use : entry.saved) {
      if (available.contains(use.tensor)) continue;
      errors_.fail(use.pos, fmt::format("tensor '{}' is not saved by an entry that '{}' runs after",
                                        nameOf(use), entry.name));
    }
  }

  // Kahn's algorithm, always taking the first ready node of the file.
  void sortNodes(GraphEntry& entry) {
    std::map<TensorId, size_t> producers;
    for (size_t i = 0; i < entry.nodes.size(); ++i) {
      for (const TensorUse& output : entry.nodes[i].outputs) producers.emplace(output.tensor, i);
    }
    std::vector<std::set<size_t>> needs(entry.nodes.size());
    for (size_t i = 0; i < entry.nodes.size(); ++i) {
      for (const TensorUse& input : entry.nodes[i].inputs) {
        if (input.tensor && producers.contains(input.tensor)) needs[i].insert(producers[input.tensor]);
      }
    }
    std::vector<GraphNode> sorted;
    std::vector<bool> done(entry.nodes.size());
    const auto isReady = [&](size_t i) {
      return !done[i] && std::ranges::all_of(needs[i], [&](size_t need) { return done[need]; });
    };
    while (sorted.size() < entry.nodes.size()) {
      size_t next = 0;
      while (next < entry.nodes.size() && !isReady(next)) ++next;
      if (next == entry.nodes.size()) return failCycle(entry, needs, done);
      done[next] = true;
      sorted.push_back(entry.nodes[next]);
    }
    entry.nodes = std::move(sorted);
  }

  // Every node left needs another one left: going back from any of them ends in a cycle.
  void failCycle(const GraphEntry& entry, const std::vector<std::set<size_t>>& needs,
                 const std::vector<bool>& done) {
    const auto isLeft = [&](size_t i) { return !done[i]; };
    std::vector<size_t> path = {static_cast<size_t>(std::ranges::find(done, false) - done.begin())};
    for (;;) {
      const size_t next = *std::ranges::find_if(needs[path.back()], isLeft);
      const auto seen = std::ranges::find(path, next);
      if (seen != path.end()) {
        path.erase(path.begin(), seen);
        break;
      }
      path.push_back(next);
    }
    // From the first node of the file, in the direction of the data.
    std::ranges::rotate(path, std::ranges::min_element(path));
    std::reverse(path.begin() + 1, path.end());
    path.push_back(path.front());
    std::string text;
    for (size_t i : path) text += fmt::format("{}'{}'", text.empty() ? "" : " -> ", entry.nodes[i].name);
    errors_.fail(entry.nodes[path.front()].pos, "nodes form a cycle: " + text);
  }

  Graph& graph_;
  ErrorSink& errors_;
  std::map<TensorId, std::pair<Definition, bool>> defined_;  // and whether a node produces it
  std::map<TensorId, Definition> local_;                     // in the current entry
  std::set<TensorId> used_;
};

}  // namespace

void checkGraph(Graph& graph, ErrorSink& errors) { GraphChecker(graph, errors).run(); }

}  // namespace sluice

#include "ops/torch/traced_layers.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "ops/torch/layer_state.h"
#include "runtime/base/clock.h"
#include "runtime/base/pending_file.h"
#include "runtime/trace/chrome_trace.h"

namespace sluice {

void TracedLayers::add(const std::shared_ptr<LayerState>& layer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(layers_, [](const auto& known) { return known.expired(); });
  layers_.push_back(layer);
  if (!isRecording_) return;
  layer->startTrace();
  recorded_.push_back(layer);
}

Status TracedLayers::start() {
  const std::lock_guard lock(mutex_);
  if (isRecording_) return Error{"a recording is under way, expected one at a time"};
  isRecording_ = true;
  for (const auto& known : layers_)
    if (std::shared_ptr<LayerState> layer = known.lock()) {
      layer->startTrace();
      recorded_.push_back(std::move(layer));
    }
  return {};
}

Status TracedLayers::write(const std::string& path, bool onlyFailed) {
  std::vector<std::shared_ptr<LayerState>> layers;
  {
    const std::lock_guard lock(mutex_);
    if (!isRecording_) return Error{"no recording is under way"};
    isRecording_ = false;
    layers = std::exchange(recorded_, {});
  }
  std::vector<ProgramTrace> programs;
  bool failed = false;
  for (const auto& layer : layers) {
    Trace trace = layer->endTrace();
    if (trace.spans.empty()) continue;
    failed = failed || trace.hasFailed();
    programs.push_back({&layer->program(), layer->rank(), {}});
    programs.back().ranks.push_back(std::move(trace));
  }
  if (onlyFailed && !failed) return {};
  if (programs.empty()) return Error{fmt::format("{}: no layer has run, so there is nothing to write", path)};
  const std::string text = chromeTrace(programs, nameOfClock());
  return replaceFile(path, std::as_bytes(std::span(text)));
}

TracedLayers& tracedLayers() {
  static auto* const layers = new TracedLayers;  // outlives all layers
  return *layers;
}

}  // namespace sluice

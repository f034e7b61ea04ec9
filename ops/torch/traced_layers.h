// TracedLayers: the layers of this process, and what all of them do between start() and write(), in one file.
// It does not depend on PyTorch.
//
// Any thread may call it. Layers that are made meanwhile are recorded, too, and layers that their owner drops
// live until write().
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice {

class LayerState;

class TracedLayers {
 public:
  void add(const std::shared_ptr<LayerState>& layer);

  // Error: a recording is under way.
  Status start();
  // Ends the recording and writes it to `path` (docs/TRACE.md), complete or not at all. `onlyFailed`: if no
  // step has failed, drops it instead. Errors: no recording is under way; no layer has run; the file cannot
  // be written.
  Status write(const std::string& path, bool onlyFailed);

 private:
  std::mutex mutex_;
  bool isRecording_ = false;
  std::vector<std::weak_ptr<LayerState>> layers_;
  std::vector<std::shared_ptr<LayerState>> recorded_;
};

// Returns the traced layers of this process.
TracedLayers& tracedLayers();

}  // namespace sluice

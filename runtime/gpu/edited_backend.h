// EditedBackend: a backend whose tables are changed before each launch. For checks of what is reported when a
// kernel does something else than its tables say.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "runtime/gpu/forwarding_backend.h"

namespace sluice {

using EditTables = std::function<void(StepTables& tables)>;

class EditedBackend final : public ForwardingBackend {
 public:
  EditedBackend(std::unique_ptr<GpuBackend> real, EditTables edit)
      : ForwardingBackend(std::move(real)), edit_(std::move(edit)) {}

  Expected<StepOutcome> run(const StepTables& tables, Transport& transport, double timeoutSeconds) override {
    StepTables edited = tables;
    edit_(edited);
    return ForwardingBackend::run(edited, transport, timeoutSeconds);
  }

 private:
  const EditTables edit_;
};

inline BackendMaker editedBackends(BackendMaker real, EditTables edit) {
  return [real = std::move(real),
          edit = std::move(edit)](Transport& transport) -> Expected<std::unique_ptr<GpuBackend>> {
    auto backend = real(transport);
    if (!backend) return backend.error();
    return std::unique_ptr<GpuBackend>(new EditedBackend(std::move(*backend), edit));
  };
}

// The first task of this rank that signals then does not.
inline void loseSignal(StepTables& tables) {
  for (gpu::ChainTask& record : tables.records)
    for (gpu::EventSignal& signal : record.signals)
      if (record.kind == gpu::TaskKind::kProduct && signal.amount > 0) {
        signal.amount = 0;
        return;
      }
}

}  // namespace sluice

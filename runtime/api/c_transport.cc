// Transports and workspaces of the C interface.
#include "runtime/api/c_handles.h"
#include "runtime/api/make_device.h"
#include "runtime/api/make_transport.h"
#include "runtime/base/clock.h"

namespace sluice::capi {
namespace {

// Makes the handles of all ranks in this process.
Outcome make(const TransportSpec& spec, sluice_transport** transports) {
  auto made = makeTransports(spec);
  if (!made) return failed(made.error());
  std::vector<std::unique_ptr<sluice_transport>> handles;
  handles.reserve(made->size());  // before any handle exists that could leak
  for (auto& transport : *made) handles.emplace_back(new sluice_transport{std::move(transport), {}});
  for (size_t i = 0; i < handles.size(); ++i) transports[i] = handles[i].release();
  return {};
}

Outcome makeThreads(int32_t size, sluice_transport** transports) { return make({.size = size}, transports); }

Outcome join(const sluice_job* given, sluice_transport** transport) {
  sluice_job known{};
  if (Outcome outcome = readStructure(given, "job", known); outcome.status != SLUICE_OK) return outcome;
  if (!known.name) return badArgument("the name of the job is null");
  TransportSpec spec{"shm", known.ranks, known.rank, known.name};
  if (known.timeout_seconds != 0) spec.timeoutSeconds = known.timeout_seconds;
  if (Status sane = checkTimeLimit(spec.timeoutSeconds); !sane) return badArgument(sane.error().message);
  return make(spec, transport);
}

Outcome makeWorkspace(const sluice_transport* transport, const sluice_workspace_options* given,
                      sluice_workspace** workspace) {
  sluice_workspace_options known{};
  if (given)
    if (Outcome outcome = readStructure(given, "options", known); outcome.status != SLUICE_OK) return outcome;
  if (known.pinning != SLUICE_PIN_IF_ENOUGH && known.pinning != SLUICE_PIN_NEVER)
    return badArgument(fmt::format("pinning is {}, expected 0 or 1", known.pinning));
  WorkspaceOptions options{known.threads, known.pinning != SLUICE_PIN_NEVER, {}};
  if (Outcome outcome = findDevice(known.device, *transport->transport, options.device);
      outcome.status != SLUICE_OK)
    return outcome;
  auto made = Workspace::create(*transport->transport, options);
  if (!made) return failedOn(*transport->transport, made.error());
  *workspace = new sluice_workspace{transport->transport, std::move(*made), {}};
  return {};
}

}  // namespace

Outcome findDevice(const char* name, const Transport& transport, DeviceMaker& device) {
  if (!name) return {};
  if (Status known = checkDeviceName(name); !known) return badArgument(known.error().message);
  if (std::string_view(name) != "cpu" && transport.size() > 1)
    return failed(
        {fmt::format("device '{}': found {} ranks, expected a rank alone", name, transport.size())});
  auto made = sluice::makeDevice(name, 1);
  if (!made) return failed(made.error());
  device = std::move(*made);
  return {};
}

}  // namespace sluice::capi

using namespace sluice::capi;

sluice_status sluice_transport_alone(sluice_transport** transport) {
  if (transport) *transport = nullptr;
  return guarded(nullptr,
                 [&] { return transport ? makeThreads(1, transport) : badArgument("transport is null"); });
}

sluice_status sluice_transport_threads(int32_t size, sluice_transport** transports) {
  return guarded(nullptr, [&]() -> Outcome {
    if (!transports) return badArgument("transports is null");
    if (size < 1 || size > sluice::kMaxRanks)
      return badArgument(fmt::format("found {} ranks, expected 1 to {}", size, sluice::kMaxRanks));
    std::fill(transports, transports + size, nullptr);
    return makeThreads(size, transports);
  });
}

sluice_status sluice_transport_join(const sluice_job* job, sluice_transport** transport) {
  if (transport) *transport = nullptr;
  return guarded(nullptr,
                 [&] { return transport ? join(job, transport) : badArgument("transport is null"); });
}

void sluice_transport_free(sluice_transport* transport) { freeHandle(transport); }

int32_t sluice_transport_rank(const sluice_transport* transport) {
  return transport ? transport->transport->rank() : -1;
}

int32_t sluice_transport_size(const sluice_transport* transport) {
  return transport ? transport->transport->size() : 0;
}

sluice_status sluice_transport_abort(sluice_transport* transport, const char* message) {
  return guarded(nullptr, [&]() -> Outcome {
    if (!transport) return badArgument("transport is null");
    if (Outcome outcome = checkOrigin(transport->origin, "the transport"); outcome.status != SLUICE_OK)
      return outcome;
    transport->transport->abort(message ? message
                                        : fmt::format("rank {} gave up", transport->transport->rank()));
    return {};
  });
}

int32_t sluice_transport_is_aborted(const sluice_transport* transport) {
  if (!transport) return 0;
  // a forked child does not map the memory that its parent shares with other ranks
  return transport->origin.isForked() || transport->transport->isAborted();
}

sluice_status sluice_workspace_create(sluice_transport* transport, const sluice_workspace_options* options,
                                      sluice_workspace** workspace) {
  if (workspace) *workspace = nullptr;
  return guarded(nullptr, [&]() -> Outcome {
    if (!transport || !workspace)
      return badArgument(fmt::format("{} is null", transport ? "workspace" : "transport"));
    if (Outcome outcome = checkOrigin(transport->origin, "the transport"); outcome.status != SLUICE_OK)
      return outcome;
    return makeWorkspace(transport, options, workspace);
  });
}

void sluice_workspace_free(sluice_workspace* workspace) { freeHandle(workspace); }

sluice_status sluice_workspace_get_info(const sluice_workspace* workspace, sluice_workspace_info* info) {
  return guarded(nullptr, [&]() -> Outcome {
    if (!workspace) return badArgument("workspace is null");
    if (Outcome outcome = checkOrigin(workspace->origin, "the workspace"); outcome.status != SLUICE_OK)
      return outcome;
    sluice_workspace_info known{};
    known.bytes = workspace->workspace->bytes();
    known.threads = workspace->workspace->threads();
    return writeStructure(known, "info", info);
  });
}

#include "ops/torch/ranks.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "ops/torch/errors.h"
#include "ops/torch/framework_threads.h"
#include "ops/torch/tensors.h"
#include "runtime/api/make_device.h"
#include "runtime/api/make_transport.h"
#include "runtime/base/clock.h"

namespace sluice {
namespace {

constexpr int64_t kMaxJobRanks = 240;  // processes of one job, see shared_memory.h

std::shared_ptr<Transport> join(const std::string& job, int64_t rank, int64_t size, int64_t threads,
                                double timeoutSeconds, const std::string& device) {
  Ranks::check(rank, size, threads, timeoutSeconds);
  if (const Status known = checkDeviceName(device); !known) throwValue(known.error().message);
  if (device != "cpu" && size > 1)
    throwRuntime(fmt::format("device '{}': found {} ranks, expected a rank alone", device, size));
  return valueOrThrow(makeTransport(
      {size == 1 ? "threads" : "shm", static_cast<int>(size), static_cast<int>(rank), job, timeoutSeconds}));
}

std::string decodeDigits(const std::string& digits) {
  std::string bytes(digits.size() / 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    uint8_t byte = 0;
    const char* const end = digits.data() + 2 * i + 2;
    if (std::from_chars(end - 2, end, byte, 16).ptr != end) return {};
    bytes[i] = static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace

Ranks::Ranks(const std::string& job, int64_t rank, int64_t size, int64_t threads, double timeoutSeconds,
             const std::string& device)
    : Ranks(join(job, rank, size, threads, timeoutSeconds, device), threads, timeoutSeconds, device) {}

Ranks::Ranks(std::shared_ptr<Transport> transport, int64_t threads, double timeoutSeconds)
    : Ranks(std::move(transport), threads, timeoutSeconds, "cpu") {}

// A device without a number is the first one for Sluice, and the current one for PyTorch.
Ranks::Ranks(std::shared_ptr<Transport> transport, int64_t threads, double timeoutSeconds,
             const std::string& device)
    : threads_(static_cast<int>(threads)),
      timeoutSeconds_(timeoutSeconds),
      device_(device == "cuda" ? "cuda:0" : device),
      transport_(std::move(transport)) {
  steps_.workspace = makeWorkspace(device);
}

std::shared_ptr<Workspace> Ranks::makeWorkspace(const std::string& device) const {
  DeviceMaker maker = valueOrThrow(makeDevice(device, 1));
  const StepGuard guard(device_);
  return valueOrThrow(Workspace::create(
      *transport_,
      {.threads = threads_, .pin = true, .device = std::move(maker), .callers = frameworkThreads()}));
}

void Ranks::makeBeside() {
  if (!beside_ && device_.is_cpu()) beside_ = std::make_unique<Lane>(makeWorkspace("cpu"));
}

void Ranks::checkOnCpu(std::string_view what) const {
  if (!device_.is_cpu())
    throwRuntime(fmt::format("{} run on the CPU, but the ranks are on {}", what, device_.str()));
}

void Ranks::check(int64_t rank, int64_t size, int64_t threads, double timeoutSeconds) {
  if (size < 1 || size > kMaxJobRanks)
    throwValue(fmt::format("{} ranks, expected 1 to {}", size, kMaxJobRanks));
  if (rank < 0 || rank >= size) throwValue(fmt::format("rank {} of {}", rank, size));
  if (threads < 0 || threads > kMaxThreads)
    throwValue(
        fmt::format("{} threads, expected 1 to {}, or 0 for this machine's share", threads, kMaxThreads));
  if (const Status sane = checkTimeLimit(timeoutSeconds); !sane) throwValue(sane.error().message);
}

Ranks::~Ranks() {
  // a fork copies no threads, so nothing would release the locks that they held
  if (origin_.isForked() && size() == 1) static_cast<void>(new std::shared_ptr<Transport>(transport_));
}

void Ranks::refuse(const std::string& why) {
  if (!origin_.isForked()) static_cast<void>(steps_.workspace->refuse(why, timeoutSeconds_));
}

void Ranks::refuseBeside(const std::string& why) {
  if (!beside_) return refuse(why);
  if (!origin_.isForked()) static_cast<void>(beside_->workspace->refuse(why, timeoutSeconds_));
}

int64_t Ranks::largest(const std::string& what, int64_t number) {
  checkProcess();
  return valueOrThrow(steps_.workspace->largest(what, number, timeoutSeconds_));
}

void Ranks::checkProcess() const { throwIfFailed(origin_.check("the group of ranks")); }

Program loadProgram(const Ranks& ranks, const std::string& path) {
  Program program = valueOrThrow(Program::load(path));
  if (program.ranks() != ranks.size())
    throwValue(fmt::format("{}: the program was compiled for {} ranks, but there are {}", path,
                           program.ranks(), ranks.size()));
  return program;
}

LayerStatePtr makeLayerState(Ranks& ranks, Program program, const std::string& path,
                             const std::string& arguments) {
  // if one rank cannot make the layer, no rank makes it, so that their memory stays the same
  throwIfFailed(ranks.steps().workspace->agree(fmt::format("make layer '{}'", program.tables().name),
                                               program.verified().fingerprint(), ranks.timeoutSeconds(),
                                               arguments));
  auto state = LayerState::create(std::move(program), ranks.transport(), ranks.steps().workspace,
                                  ranks.steps().turn, ranks.timeoutSeconds());
  if (!state) throwRuntime(fmt::format("{}: {}", path, state.error().message));
  return *std::move(state);
}

LayerStatePtr makeBesideState(Ranks& ranks, const LayerStatePtr& layer, Program program,
                              const std::string& path) {
  ranks.makeBeside();
  if (ranks.beside() == nullptr) return layer;
  auto state = LayerState::create(std::move(program), ranks.transport(), ranks.beside()->workspace,
                                  ranks.beside()->turn, ranks.timeoutSeconds(), layer);
  if (!state) throwRuntime(fmt::format("{}: {}", path, state.error().message));
  return *std::move(state);
}

Network::Network() : endpoint_(valueOrThrow(openUcx())) {}

std::string Network::address() const {
  std::string digits;
  for (const char byte : endpoint_->address()) digits += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return digits;
}

c10::intrusive_ptr<Ranks> Network::join(const std::string& job, int64_t rank,
                                        const std::vector<std::string>& addresses,
                                        const std::vector<std::string>& machines, int64_t threads,
                                        double timeoutSeconds) {
  Ranks::check(rank, static_cast<int64_t>(addresses.size()), threads, timeoutSeconds);
  if (machines.size() != addresses.size())
    throwValue(fmt::format("{} addresses, but {} machines", addresses.size(), machines.size()));
  UcxJob ucx{job, static_cast<int>(rank), {}, timeoutSeconds};
  for (size_t i = 0; i < addresses.size(); ++i) {
    ucx.peers.push_back({decodeDigits(addresses[i]), machines[i]});
    if (ucx.peers.back().address.empty())
      throwValue(fmt::format("address {} is not one of a Network: '{}'", i, addresses[i]));
  }
  return c10::make_intrusive<Ranks>(valueOrThrow(joinUcx(*endpoint_, ucx)), threads, timeoutSeconds);
}

}  // namespace sluice

// Runs a compiled MoE-FFN layer from C++ with two ranks or more, which are threads of this process.
//
//   sluicec graphs/moe_ffn/train.json --set ep=2 --set experts=8 --set hidden=64 -o layer.slp
//   c++ -std=c++17 embed.cc $(pkg-config --cflags --libs sluice) -pthread && ./a.out layer.slp
//
// Each rank runs all entries twice: with two worker threads, and with the serial executor. Exit status 1
// where an output differs in a single bit. embed.c compares with a computation of its own.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <random>
#include <sluice.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

// A tensor with its memory.
struct Owned {
  std::vector<unsigned char> bytes;
  sluice::Tensor view;
  bool isOutput = false;
};
using Tensors = std::map<std::string, Owned>;

// Memory for each tensor of the program that the caller provides, at a rank with so many tokens.
Tensors makeTensors(const sluice::Program& program, int32_t rank, int64_t tokens) {
  Tensors tensors;
  uint32_t index = 0;
  for (const sluice_tensor_info& info : program.tensors()) {
    const uint32_t own = index++;
    if (info.owned) continue;  // an output in the context's memory
    Owned& tensor = tensors[info.name];
    tensor.isOutput = info.role == SLUICE_OUTPUT;
    tensor.view = {info.type, program.dims(own, rank, tokens)};
    tensor.bytes.resize(static_cast<size_t>(tensor.view.bytes()));
    tensor.view.data = tensor.bytes.data();
  }
  return tensors;
}

template <class T>
T* elements(Owned& tensor) {
  return reinterpret_cast<T*>(tensor.bytes.data());
}

// Each token is routed to top_k different experts.
void fillIds(Owned& ids, const sluice_program_info& info, std::mt19937& random) {
  auto* id = elements<int32_t>(ids);
  for (int64_t token = 0; token < ids.view.dims[0]; ++token)
    for (int32_t k = 0, first = static_cast<int32_t>(random()) & 0xffff; k < info.top_k; ++k)
      *id++ = (first + k) % info.experts;
}

void fillInputs(Tensors& tensors, const sluice::Program& program, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> small(-0.5f, 0.5f);
  for (auto& [name, tensor] : tensors) {
    if (tensor.isOutput) continue;
    for (int64_t i = 0; i < tensor.view.elements(); ++i) {
      const float value = small(random);
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      if (tensor.view.type == SLUICE_F32) elements<float>(tensor)[i] = value;
      if (tensor.view.type == SLUICE_BF16) elements<uint16_t>(tensor)[i] = static_cast<uint16_t>(bits >> 16);
    }
  }
  for (const sluice_entry_info& entry : program.entries())
    if (entry.expert_ids) fillIds(tensors.at(entry.expert_ids), program.info(), random);
}

// Runs all entries; collective.
void runLayer(const sluice::Program& program, const sluice::Transport& transport, sluice_executor executor,
              Tensors& tensors) {
  sluice::ContextOptions options;
  options.threads = 2;
  options.executor = executor;
  sluice::Context context(program, transport, options);
  for (auto& [name, tensor] : tensors) context.bind(name, tensor.view);
  for (const sluice_entry_info& entry : program.entries()) context.run(entry.name);
  const sluice_stats stats = context.stats();
  std::printf("rank %d, %s: %lld rows received, %lld tasks in the last entry\n", transport.rank(),
              executor == SLUICE_SERIAL ? "serial" : "parallel", static_cast<long long>(stats.rows),
              static_cast<long long>(stats.tasks));
}

// Throws where outputs of the two executors differ.
void runRank(const sluice::Program& program, const sluice::Transport& transport) {
  const int32_t rank = transport.rank();
  const int64_t tokens = std::max<int64_t>(0, program.info().max_tokens - 7 * rank);
  Tensors parallel = makeTensors(program, rank, tokens);
  fillInputs(parallel, program, static_cast<uint32_t>(rank));
  Tensors serial = makeTensors(program, rank, tokens);
  fillInputs(serial, program, static_cast<uint32_t>(rank));
  runLayer(program, transport, SLUICE_PARALLEL, parallel);
  runLayer(program, transport, SLUICE_SERIAL, serial);
  for (const auto& [name, tensor] : parallel)
    if (tensor.isOutput && tensor.bytes != serial.at(name).bytes)
      throw std::runtime_error("output '" + name + "' differs between the executors");
}

int fail(const std::string& message) {
  std::fprintf(stderr, "embed: error: %s\n", message.c_str());
  return 1;
}

// The first error of all ranks, or nothing.
std::string runAll(const sluice::Program& program) {
  std::vector<sluice::Transport> ranks = sluice::Transport::threads(program.info().ranks);
  std::string first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (sluice::Transport& transport : ranks)
    threads.emplace_back([&] {
      try {
        runRank(program, transport);
      } catch (const std::exception& error) {
        std::lock_guard lock(mutex);
        if (first.empty()) first = error.what();
        transport.abort(error.what());  // the other ranks would wait for this one
      }
    });
  for (std::thread& thread : threads) thread.join();
  return first;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage: embed layer.slp");
  try {
    const std::string error = runAll(sluice::Program::load(argv[1]));
    if (!error.empty()) return fail(error);
  } catch (const sluice::Error& error) {
    return fail(error.what());
  }
  std::printf("the same bits from both executors\n");
}

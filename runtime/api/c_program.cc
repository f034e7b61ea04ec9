// Programs of the C interface: their descriptions are laid out once, so that queries only return pointers.
#include <iterator>
#include <optional>

#include "runtime/api/c_handles.h"
#include "runtime/program/op_table.h"
#include "runtime/program/words.h"

namespace sluice::capi {
namespace {

std::string shapeText(const std::vector<Dim>& shape) {
  std::string text = "[";
  for (const Dim& dim : shape) {
    if (text.size() > 1) text += ", ";
    text += text::word(dim);
  }
  return text + "]";
}

std::vector<TensorFacts> tensorsOf(const TaskProgram& program) {
  std::vector<TensorFacts> tensors;
  for (uint32_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.role != Role::kInput && buffer.role != Role::kOutput) continue;
    TensorFacts facts;
    facts.buffer = BufferId{b};
    facts.shape = shapeText(buffer.shape);
    for (const Dim& dim : buffer.shape)
      facts.dims.push_back({static_cast<sluice_extent>(dim.extent), 0, dim.size});
    tensors.push_back(std::move(facts));
  }
  for (TensorFacts& facts : tensors) facts.accumulates = isAccumulated(program, facts.buffer);
  return tensors;
}

std::vector<EntryFacts> listEntryFacts(const TaskProgram& program, const std::vector<TensorFacts>& tensors) {
  std::vector<EntryFacts> entries(program.entries.size());
  for (uint32_t e = 0; e < entries.size(); ++e) {
    std::vector<bool> reads(program.buffers.size()), writes(program.buffers.size());
    const auto mark = [](std::vector<bool>& marked, const std::vector<BufferId>& buffers) {
      for (BufferId id : buffers)
        if (id) marked[id.value] = true;
    };
    for (const Family& family : program.families) {
      if (family.entry != EntryId{e}) continue;
      mark(reads, family.reads);
      mark(writes, family.writes);
    }
    const Entry& entry = program.entries[e];
    mark(reads, {entry.expertIds, entry.placement});
    for (uint32_t t = 0; t < tensors.size(); ++t)
      if (reads[tensors[t].buffer.value] || writes[tensors[t].buffer.value]) entries[e].tensors.push_back(t);
    for (uint32_t b = 0; b < program.buffers.size(); ++b) {
      if (program.buffers[b].role != Role::kSaved) continue;
      entries[e].saves = entries[e].saves || writes[b];
      entries[e].usesSaved = entries[e].usesSaved || (reads[b] && !writes[b]);
    }
    if (!entry.routing) continue;  // the routing is saved, too
    entries[e].usesSaved = true;
    entries[entry.routing.value].saves = true;
  }
  return entries;
}

// Makes the handle of a loaded program.
Outcome give(Expected<Program> loaded, sluice_program** program) {
  if (!loaded) return failed(loaded.error());
  std::unique_ptr<sluice_program> handle(new sluice_program{std::move(*loaded), {}, {}});
  handle->tensors = tensorsOf(handle->program.tables());
  handle->entries = listEntryFacts(handle->program.tables(), handle->tensors);
  *program = handle.release();
  return {};
}

Outcome checkIndex(const sluice_program* program, uint32_t index, size_t count, const char* what) {
  if (!program) return badArgument("program is null");
  if (index >= count)
    return badArgument(fmt::format("{} {} requested, but the program has {}", what, index, count));
  return {};
}

std::optional<uint32_t> findTensor(const sluice_program& program, const char* name) {
  for (uint32_t t = 0; t < program.tensors.size(); ++t)
    if (program.program.tables().at(program.tensors[t].buffer).name == name) return t;
  return std::nullopt;
}

Outcome tensorDims(const sluice_program& program, uint32_t index, int32_t rank, int64_t tokens, int64_t rows,
                   int64_t* dims, int32_t capacity) {
  const TaskProgram& tables = program.program.tables();
  const std::vector<Dim>& shape = tables.at(program.tensors[index].buffer).shape;
  if (rank < 0 || rank >= tables.mesh.peers())
    return badArgument(fmt::format("rank {} requested, but the program has {}", rank, tables.mesh.peers()));
  if (tokens < 0 || tokens > tables.maxTokens)
    return badArgument(fmt::format("{} tokens requested, expected 0 to {}", tokens, tables.maxTokens));
  if (rows < 0) return badArgument(fmt::format("{} rows requested, expected 0 or more", rows));
  if (capacity < 0 || static_cast<size_t>(capacity) < shape.size())
    return badArgument(fmt::format("room for {} dimensions, but the tensor has {}", capacity, shape.size()));
  if (!dims && !shape.empty()) return badArgument("dims is null");
  for (size_t d = 0; d < shape.size(); ++d) dims[d] = tables.sizeAt(rank, shape[d], tokens, rows);
  return {};
}

}  // namespace
}  // namespace sluice::capi

using namespace sluice::capi;

sluice_status sluice_program_load(const char* path, sluice_program** program) {
  if (program) *program = nullptr;
  return guarded(nullptr, [&]() -> Outcome {
    if (!path || !program) return badArgument(fmt::format("{} is null", path ? "program" : "path"));
    return give(sluice::Program::load(path), program);
  });
}

sluice_status sluice_program_from_memory(const void* bytes, size_t size, sluice_program** program) {
  if (program) *program = nullptr;
  return guarded(nullptr, [&]() -> Outcome {
    if (!bytes || !program) return badArgument(fmt::format("{} is null", bytes ? "program" : "bytes"));
    return give(sluice::Program::fromBytes({static_cast<const std::byte*>(bytes), size}), program);
  });
}

void sluice_program_free(sluice_program* program) { delete program; }

sluice_status sluice_program_get_info(const sluice_program* program, sluice_program_info* info) {
  return guarded(nullptr, [&]() -> Outcome {
    if (!program) return badArgument("program is null");
    const sluice::TaskProgram& tables = program->program.tables();
    sluice_program_info known{};
    known.name = tables.name.c_str();
    known.target = tables.target.c_str();
    known.options = tables.options.c_str();
    known.graph_hash = tables.graphHash;
    known.fingerprint = program->program.verified().fingerprint();
    known.ranks = tables.mesh.peers();
    known.experts = tables.experts;
    known.top_k = tables.topK;
    known.max_tokens = tables.maxTokens;
    known.entry_count = static_cast<uint32_t>(program->entries.size());
    known.tensor_count = static_cast<uint32_t>(program->tensors.size());
    return writeStructure(known, "info", info);
  });
}

sluice_status sluice_program_get_entry(const sluice_program* program, uint32_t index,
                                       sluice_entry_info* info) {
  return guarded(nullptr, [&]() -> Outcome {
    Outcome outcome = checkIndex(program, index, program ? program->entries.size() : 0, "entry");
    if (outcome.status != SLUICE_OK) return outcome;
    const sluice::TaskProgram& tables = program->program.tables();
    const sluice::Entry& entry = tables.entries[index];
    const EntryFacts& facts = program->entries[index];
    sluice_entry_info known{};
    known.name = entry.name.c_str();
    if (entry.expertIds) known.expert_ids = tables.at(entry.expertIds).name.c_str();
    if (entry.routing) known.routed_as = tables.at(entry.routing).name.c_str();
    known.tensors = facts.tensors.data();
    known.tensor_count = static_cast<uint32_t>(facts.tensors.size());
    known.saves = facts.saves;
    known.uses_saved = facts.usesSaved;
    return writeStructure(known, "info", info);
  });
}

sluice_status sluice_program_get_tensor(const sluice_program* program, uint32_t index,
                                        sluice_tensor_info* info) {
  return guarded(nullptr, [&]() -> Outcome {
    Outcome outcome = checkIndex(program, index, program ? program->tensors.size() : 0, "tensor");
    if (outcome.status != SLUICE_OK) return outcome;
    const TensorFacts& facts = program->tensors[index];
    const sluice::Buffer& buffer = program->program.tables().at(facts.buffer);
    sluice_tensor_info known{};
    known.name = buffer.name.c_str();
    known.shape = facts.shape.c_str();
    known.dims = facts.dims.data();
    known.dim_count = static_cast<int32_t>(facts.dims.size());
    known.type = static_cast<sluice_type>(buffer.type);
    known.role = buffer.role == sluice::Role::kInput ? SLUICE_INPUT : SLUICE_OUTPUT;
    known.owned = static_cast<bool>(buffer.region);
    known.accumulates = facts.accumulates;
    return writeStructure(known, "info", info);
  });
}

sluice_status sluice_program_find_tensor(const sluice_program* program, const char* name, uint32_t* index) {
  return guarded(nullptr, [&]() -> Outcome {
    if (!program || !name || !index)
      return badArgument(fmt::format("{} is null", !program ? "program" : !name ? "name" : "index"));
    const std::optional<uint32_t> found = findTensor(*program, name);
    if (!found) {
      std::string known;
      for (const TensorFacts& facts : program->tensors)
        known += (known.empty() ? "" : ", ") + program->program.tables().at(facts.buffer).name;
      return {SLUICE_ERROR_FAILED,
              fmt::format("the program has no tensor '{}', expected one of: {}", name, known)};
    }
    *index = *found;
    return {};
  });
}

sluice_status sluice_program_tensor_dims(const sluice_program* program, uint32_t index, int32_t rank,
                                         int64_t tokens, int64_t rows, int64_t* dims, int32_t capacity) {
  return guarded(nullptr, [&]() -> Outcome {
    Outcome outcome = checkIndex(program, index, program ? program->tensors.size() : 0, "tensor");
    if (outcome.status != SLUICE_OK) return outcome;
    return tensorDims(*program, index, rank, tokens, rows, dims, capacity);
  });
}

int32_t sluice_type_bytes(sluice_type type) {
  if (type < SLUICE_F32 || type > SLUICE_F8_E8M0) return 0;
  return static_cast<int32_t>(sluice::dtypeBytes(static_cast<sluice::DType>(type)));
}

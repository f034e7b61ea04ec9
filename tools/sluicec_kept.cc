#include "tools/sluicec_kept.h"

#include <fmt/format.h>

#include "compiler/report/kept_bytes.h"

namespace sluice {
namespace {

// 6144 as "6,144".
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string rowsAndTokens(const KeptBytes& kept, const char* row, const char* token) {
  if (kept.token == 0) return grouped(kept.row) + row;
  return fmt::format("{}{} and {}{}", grouped(kept.row), row, grouped(kept.token), token);
}

}  // namespace

std::string keptText(const Ir& graph, const std::string& keep) {
  const bool keepsLittle = keep != "all";
  const moe::GraphOp op = *graph.module.get().getOps<moe::GraphOp>().begin();
  return fmt::format("keeps {} ({}: {})", rowsAndTokens(keptBytes(op), " bytes per row", " per token"),
                     keepsLittle ? "all" : "minimal",
                     rowsAndTokens(keptBytesOtherwise(op, keepsLittle), "", ""));
}

}  // namespace sluice

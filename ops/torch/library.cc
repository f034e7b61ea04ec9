// Registers torch.classes.sluice and torch.ops.sluice. Works with torch 1.13 and 2.x: only TORCH_LIBRARY,
// torch::class_ and autograd's Function are used.
//
// Each op has one implementation for every kind of tensor, which refuses tensors that are not on the device
// of the ranks with its own message. torch.ops and methods of torch.classes are called without Python's
// global lock.
#include <fmt/format.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "ops/torch/dispatch.h"
#include "ops/torch/errors.h"
#include "ops/torch/linear_op.h"
#include "ops/torch/moe_op.h"
#include "ops/torch/pending.h"
#include "ops/torch/ranks.h"
#include "ops/torch/tensors.h"
#include "ops/torch/traced_layers.h"
#include "ops/torch/weight_grads.h"
#include "runtime/base/encodings.h"
#include "runtime/program/program.h"
#include "runtime/routing/placement.h"

namespace {

using sluice::Layer;
using sluice::LinearLayer;
using sluice::Network;
using sluice::Pending;
using sluice::Ranks;
using sluice::TokenExchange;
using sluice::WeightGradQueue;

sluice::Encodings readEncodings(const std::string& text) {
  sluice::Expected<sluice::Encodings> read = sluice::parseEncodings(text);
  if (!read) sluice::throwValue(read.error().message);
  return *std::move(read);
}

// What sluice_torch.encodings.encodings needs to know of a text, in the order of its _Facts. Errors: from
// parseEncodings().
std::tuple<std::string, std::vector<std::string>, bool, bool, bool, std::string> describeEncodings(
    const std::string& text) {
  const sluice::Encodings read = readEncodings(text);
  std::vector<std::string> single;
  for (const auto& [name, encoding] : read.single) single.push_back(name);
  constexpr const char* kSources[] = {"step", "returned", "given"};
  return {sluice::printEncodings(read),
          std::move(single),
          read.hasCodes(),
          read.rows->rounds(),
          sluice::findInfo(read.rows->rounding).isScaled,
          kSources[static_cast<int>(read.rows->amax)]};
}

// What a weight is stored as, in the order of sluice_torch.encodings.stored.Stored.
std::tuple<std::string, std::string, int64_t, int64_t, int64_t, bool, std::string, bool> describeStored(
    const std::string& text, const std::string& weight) {
  const sluice::Encoding encoding = readEncodings(text).ofWeight(weight);
  return {std::string(encoding.name),
          std::string(sluice::dtypeName(encoding.element)),
          sluice::codesPerElement(encoding.element),
          encoding.across,
          encoding.along,
          encoding.zeros,
          std::string(sluice::dtypeName(encoding.scale)),
          encoding.factor};
}

// choosePlaces() (runtime/routing/placement.h) for the rows [experts] (F64) that each expert is expected to
// get: the expert at each of the places (I32 [places]), which are dealt over groups of ranks. Throws for
// rows that are negative or not finite, and fewer places than experts.
at::Tensor choosePlacesFor(const at::Tensor& rows, int64_t places, int64_t groups) {
  sluice::checkTensor("rows", rows, at::kDouble, {sluice::kAnySize});
  if (rows.size(0) < 1 || places < rows.size(0) || places > sluice::kMaxExperts)
    sluice::throwValue(
        fmt::format("{} places for {} experts, expected one per expert or more, and at most {}", places,
                    rows.size(0), sluice::kMaxExperts));
  if (groups < 1 || groups > sluice::kMaxRanks)
    sluice::throwValue(fmt::format("{} groups of ranks, expected 1 to {}", groups, sluice::kMaxRanks));
  const std::span<const double> expected(rows.data_ptr<double>(), static_cast<size_t>(rows.size(0)));
  for (size_t expert = 0; expert < expected.size(); ++expert)
    if (!(expected[expert] >= 0 && std::isfinite(expected[expert])))
      sluice::throwValue(
          fmt::format("rows[{}] is {}, expected a finite number from 0 on", expert, expected[expert]));
  const sluice::Mesh mesh{static_cast<int32_t>(groups)};
  const std::vector<int32_t> chosen = sluice::choosePlaces(expected, {mesh, static_cast<int32_t>(places)});
  at::Tensor expertAt = sluice::makeTensor(sluice::DType::kI32, {places});
  std::copy(chosen.begin(), chosen.end(), expertAt.data_ptr<int32_t>());
  return expertAt;
}

}  // namespace

TORCH_LIBRARY(sluice, m) {
  m.class_<Ranks>("Ranks")
      .def(torch::init<const std::string&, int64_t, int64_t, int64_t, double, const std::string&>(), "",
           {torch::arg("job"), torch::arg("rank"), torch::arg("size"), torch::arg("threads"),
            torch::arg("timeout"), torch::arg("device") = "cpu"})
      .def("rank", &Ranks::rank)
      .def("size", &Ranks::size)
      .def("threads", &Ranks::threads)
      .def("refuse", &Ranks::refuse)
      .def("refuse_beside", &Ranks::refuseBeside)
      .def("largest", &Ranks::largest)
      .def("bytes", &Ranks::bytes)
      .def("grad_bytes", &Ranks::gradBytes)
      .def("trim", &Ranks::trim);
  m.class_<Network>("Network")
      .def(torch::init<>())
      .def("address", &Network::address)
      .def("join", &Network::join);
  m.class_<Layer>("Layer")
      .def(torch::init<c10::intrusive_ptr<Ranks>, const std::string&, const std::vector<std::string>&,
                       const std::string&>(),
           "", {torch::arg("ranks"), torch::arg("path"), torch::arg("weights"), torch::arg("arguments") = ""})
      .def("describe", &Layer::describe)
      .def("amaxes", &Layer::amaxes)
      .def("saved_sets", &Layer::savedSets)
      .def("saved_in_use", &Layer::savedInUse)
      .def("saved_bytes", &Layer::savedBytes)
      .def("packed_bytes", &Layer::packedBytes)
      .def("pack_frozen", &Layer::packFrozen);
  m.class_<Pending>("Pending")
      .def("wait", &Pending::wait)
      .def("done", &Pending::done)
      .def("cancel", &Pending::cancel);
  m.class_<WeightGradQueue>("WeightGradQueue")
      .def(torch::init<>())
      .def("size", &WeightGradQueue::size)
      .def("check", &WeightGradQueue::check)
      .def("compute", &WeightGradQueue::compute);
  const std::string arguments =
      "(__torch__.torch.classes.sluice.Layer layer, Tensor x, Tensor expert_ids, Tensor expert_weights, "
      "Tensor[] weights";
  const std::string amaxes = ", Tensor[]? amaxes_used=None, Tensor[]? amaxes=None";
  const std::string delayed = ", __torch__.torch.classes.sluice.WeightGradQueue? delayed=None)";
  const std::string placement = ", Tensor? placement=None" + amaxes + delayed;
  m.def(("moe" + arguments + ", Tensor?[] main_grads" + placement + " -> Tensor").c_str(), sluice::moe);
  m.def(("submit_moe" + arguments + ", Tensor?[] main_grads" + placement +
         " -> (Tensor y, __torch__.torch.classes.sluice.Pending step)")
            .c_str(),
        sluice::submitMoe);
  m.def(("submit_training" + arguments + ", Tensor? placement=None)" +
         " -> __torch__.torch.classes.sluice.Pending[]")
            .c_str(),
        sluice::submitTraining);
  m.def("trace_start() -> ()", [] { sluice::throwIfFailed(sluice::tracedLayers().start()); });
  m.def("trace_write(str path, bool only_failed) -> ()", [](const std::string& path, bool onlyFailed) {
    sluice::throwIfFailed(sluice::tracedLayers().write(path, onlyFailed));
  });
  m.def(
      "encodings(str text) -> (str text, str[] single, bool has_codes, bool rounds, bool has_scales, str "
      "amax)",
      describeEncodings);
  m.def(
      "stored(str text, str weight) -> (str name, str element, int per_element, int across, int along, "
      "bool zeros, str scale, bool factor)",
      describeStored);
  m.def("spelled_now(str name, str value) -> str",
        [](const std::string& name, const std::string& value) { return sluice::spelledNow(name, value); });
  m.def("choose_places(Tensor rows, int places, int groups) -> Tensor", choosePlacesFor);
  m.class_<LinearLayer>("Linear")
      .def(torch::init<c10::intrusive_ptr<Ranks>, const std::string&, const std::string&>(), "",
           {torch::arg("ranks"), torch::arg("path"), torch::arg("arguments") = ""})
      .def("amaxes", &LinearLayer::describeAmaxes)
      .def("saved_sets", &LinearLayer::savedSets)
      .def("saved_in_use", &LinearLayer::savedInUse)
      .def("saved_bytes", &LinearLayer::savedBytes);
  const std::string linear =
      "linear(__torch__.torch.classes.sluice.Linear layer, Tensor x, Tensor weight, Tensor? bias, "
      "Tensor? main_grad, int tokens, int width, Tensor? weight_amax=None";
  m.def((linear + amaxes + delayed + " -> Tensor").c_str(), sluice::linear);
  m.class_<TokenExchange>("Exchange")
      .def(torch::init<c10::intrusive_ptr<Ranks>, const std::string&, int64_t, int64_t, const std::string&>(),
           "",
           {torch::arg("ranks"), torch::arg("path"), torch::arg("first_expert"), torch::arg("experts"),
            torch::arg("arguments") = ""})
      .def("saved_sets", &TokenExchange::savedSets)
      .def("saved_in_use", &TokenExchange::savedInUse)
      .def("saved_bytes", &TokenExchange::savedBytes);
  const std::string pending = "__torch__.torch.classes.sluice.Pending? step)";
  const std::string exchange = "(__torch__.torch.classes.sluice.Exchange exchange, ";
  m.def(("dispatch" + exchange +
         "Tensor x, Tensor expert_ids, Tensor probs, int rows, int multiple, bool submit) -> "
         "(Tensor rows, Tensor row_experts, Tensor row_probs, Tensor counts, Tensor handle, " +
         pending)
            .c_str(),
        sluice::dispatchRows);
  m.def(("combine" + exchange + "Tensor rows, Tensor handle, bool submit) -> (Tensor tokens, " + pending)
            .c_str(),
        sluice::combineRows);
}

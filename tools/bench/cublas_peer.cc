#include <fmt/format.h>

#include <utility>

#include "runtime/base/clock.h"
#include "tools/bench/cublas.h"
#include "tools/bench/product_peer.h"

namespace sluice::tools {
namespace {

Status toStatus(cublas::Failure failure) {
  return failure == nullptr ? Status() : Status(Error{fmt::format("cuBLAS: {}", failure)});
}

using LibraryPointer = std::shared_ptr<cublas::Library>;

class Cublas final : public ProductPeer {
 public:
  Cublas(GpuBackend& backend, LibraryPointer library, bool isGrouped)
      : backend_(backend), library_(std::move(library)), isGrouped_(isGrouped) {}

  Expected<size_t> add(const GroupedProduct& product) override {
    Made made;
    made.product = product;
    std::vector<const void*> lefts, rights;
    std::vector<void*> results;
    for (const OneProduct& one : product.experts) {
      made.sizes.push_back(
          {static_cast<int>(one.rows), static_cast<int>(one.columns), static_cast<int>(one.sum)});
      lefts.push_back(one.left);
      rights.push_back(one.right);
      results.push_back(one.result);
    }
    Status copied;
    if (isGrouped_) copied = copy(lefts, made.lefts);
    if (isGrouped_ && copied) copied = copy(rights, made.rights);
    if (isGrouped_ && copied) copied = copy(results, made.results);
    if (!copied) return copied.error();
    made_.push_back(std::move(made));
    return made_.size() - 1;
  }

  Expected<StepSeconds> run(std::span<const size_t> numbers) override {
    StepSeconds seconds;
    const double begin = secondsNow();
    Status ok = toStatus(cublas::begin(library_.get()));
    for (const size_t number : numbers)
      if (ok) ok = multiply(made_[number]);
    // also after an error, so that nothing runs any more
    const Status ended = toStatus(cublas::end(library_.get(), &seconds.launch));
    if (ok) ok = ended;
    seconds.step = secondsNow() - begin;
    if (!ok) return ok.error();
    return seconds;
  }

 private:
  struct Made {
    GroupedProduct product;
    std::vector<cublas::Sizes> sizes;
    DeviceMemory lefts, rights, results;  // pointers, if grouped
  };

  template <class Pointer>
  Status copy(const std::vector<Pointer>& pointers, DeviceMemory& memory) {
    const size_t bytes = pointers.size() * sizeof(Pointer);
    auto made = backend_.reserve(bytes);
    if (!made) return made.error();
    memory = std::move(*made);
    return backend_.copyIn(memory.data, pointers.data(), bytes);
  }

  Status multiply(const Made& made) {
    const GroupedProduct& product = made.product;
    const cublas::Layout layout{product.isLeftTransposed, product.isRightTransposed, product.isResultFloat};
    const auto count = static_cast<int>(made.sizes.size());
    if (count == 0) return {};
    if (isGrouped_)
      return toStatus(cublas::multiplyGroups(library_.get(), layout, count, made.sizes.data(),
                                             reinterpret_cast<const void* const*>(made.lefts.data),
                                             reinterpret_cast<const void* const*>(made.rights.data),
                                             reinterpret_cast<void* const*>(made.results.data)));
    for (size_t i = 0; i < made.sizes.size(); ++i) {
      const OneProduct& one = product.experts[i];
      if (Status ok = toStatus(
              cublas::multiply(library_.get(), layout, made.sizes[i], one.left, one.right, one.result));
          !ok)
        return ok;
    }
    return {};
  }

  GpuBackend& backend_;
  const LibraryPointer library_;
  const bool isGrouped_;
  std::vector<Made> made_;
};

}  // namespace

Expected<std::vector<NamedPeer>> makeCublasPeers(GpuBackend& backend) {
  cublas::Library* opened = nullptr;
  if (Status ok = toStatus(cublas::open(&opened)); !ok) return ok.error();
  const LibraryPointer library(opened, &cublas::close);
  const int version = cublas::readVersion(opened);
  const std::string name =
      fmt::format("cuBLAS {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  std::vector<NamedPeer> peers;
  peers.push_back({name + ", a loop", std::make_unique<Cublas>(backend, library, false)});
  if (cublas::multipliesGroups(opened))
    peers.push_back({name + ", grouped", std::make_unique<Cublas>(backend, library, true)});
  return peers;
}

}  // namespace sluice::tools

#include "runtime/comm/ucx/worker.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "runtime/base/hash.h"

namespace sluice::ucx {
namespace {

constexpr const char* kLibrary = "libucp.so.0";

// How often UCX checks that idle ranks still exist; its own default is 20 s.
constexpr const char* kKeepalive = "2s";

// What an address ends with, after the bytes of UCX.
std::string makeSeal(std::string_view bytes) {
  const uint64_t hash = hashContent(bytes);
  return {reinterpret_cast<const char*>(&hash), sizeof(hash)};
}

}  // namespace

bool isAddress(std::string_view bytes) {
  if (bytes.size() <= sizeof(uint64_t)) return false;
  const size_t length = bytes.size() - sizeof(uint64_t);
  return makeSeal(bytes.substr(0, length)) == bytes.substr(length);
}

Expected<std::unique_ptr<Worker>> Worker::open() {
  std::unique_ptr<Worker> worker(new Worker);
  Status ok = worker->load();
  if (ok) ok = worker->start();
  if (!ok) return Error{fmt::format("UCX: {}", ok.error().message)};
  return worker;
}

Worker::~Worker() {
  if (worker_) library_.workerDestroy(worker_);
  if (context_) library_.cleanup(context_);
}

Status Worker::load() {
  // never closed: UCX has threads and handlers of its own
  void* const loaded = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!loaded) return Error{fmt::format("cannot load it (Debian: libucx0): {}", dlerror())};
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(loaded, name));
    if (!function) missing = name;
  };
  find("ucp_config_read", library_.configRead);
  find("ucp_config_modify", library_.configModify);
  find("ucp_config_release", library_.configRelease);
  find("ucp_init_version", library_.init);
  find("ucp_cleanup", library_.cleanup);
  find("ucp_worker_create", library_.workerCreate);
  find("ucp_worker_destroy", library_.workerDestroy);
  find("ucp_worker_get_address", library_.workerAddress);
  find("ucp_worker_release_address", library_.workerReleaseAddress);
  find("ucp_worker_get_efd", library_.workerFile);
  find("ucp_worker_arm", library_.workerArm);
  find("ucp_worker_progress", library_.workerProgress);
  find("ucp_worker_set_am_recv_handler", library_.setReceiver);
  find("ucp_ep_create", library_.connect);
  find("ucp_ep_close_nbx", library_.close);
  find("ucp_am_send_nbx", library_.send);
  find("ucp_am_recv_data_nbx", library_.receive);
  find("ucp_request_check_status", library_.requestStatus);
  find("ucp_request_free", library_.requestFree);
  find("ucs_status_string", library_.statusText);
  if (missing) return Error{fmt::format("{} has no function {}", kLibrary, missing)};
  return {};
}

Status Worker::start() {
  ucp_config_t* config = nullptr;
  if (Status ok = checked(library_.configRead(nullptr, nullptr, &config), "settings"); !ok) return ok;
  // a version that does not know the setting keeps its own
  if (!std::getenv("UCX_KEEPALIVE_INTERVAL"))
    static_cast<void>(library_.configModify(config, "KEEPALIVE_INTERVAL", kKeepalive));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "sluice";
  const ucs_status_t started = library_.init(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  library_.configRelease(config);
  if (Status ok = checked(started, "start"); !ok) return ok;

  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (Status ok = checked(library_.workerCreate(context_, &worker, &worker_), "worker"); !ok) return ok;
  if (Status ok = checked(library_.workerFile(worker_, &file_), "file of events"); !ok) return ok;
  ucp_address_t* address = nullptr;
  size_t length = 0;
  if (Status ok = checked(library_.workerAddress(worker_, &address, &length), "address"); !ok) return ok;
  address_.assign(reinterpret_cast<const char*>(address), length);
  address_ += makeSeal(address_);
  library_.workerReleaseAddress(worker_, address);
  return {};
}

Status Worker::checked(ucs_status_t status, const char* what) const {
  if (status == UCS_OK) return {};
  return Error{fmt::format("{}: {}", what, library_.statusText(status))};
}

}  // namespace sluice::ucx

// Worker: UCX's context and worker of this process, and the functions of its library.
//
// Resource type; one thread at a time calls UCX.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"

namespace sluice::ucx {

// Found in libucp.so.0 and the libraries that this needs, so that nothing here is linked with them.
struct Library {
  decltype(&::ucp_config_read) configRead;
  decltype(&::ucp_config_modify) configModify;
  decltype(&::ucp_config_release) configRelease;
  decltype(&::ucp_init_version) init;
  decltype(&::ucp_cleanup) cleanup;
  decltype(&::ucp_worker_create) workerCreate;
  decltype(&::ucp_worker_destroy) workerDestroy;
  decltype(&::ucp_worker_get_address) workerAddress;
  decltype(&::ucp_worker_release_address) workerReleaseAddress;
  decltype(&::ucp_worker_get_efd) workerFile;
  decltype(&::ucp_worker_arm) workerArm;
  decltype(&::ucp_worker_progress) workerProgress;
  decltype(&::ucp_worker_set_am_recv_handler) setReceiver;
  decltype(&::ucp_ep_create) connect;
  decltype(&::ucp_ep_close_nbx) close;
  decltype(&::ucp_am_send_nbx) send;
  decltype(&::ucp_am_recv_data_nbx) receive;
  decltype(&::ucp_request_check_status) requestStatus;
  decltype(&::ucp_request_free) requestFree;
  decltype(&::ucs_status_string) statusText;
};

// Whether these are an address() of any worker. UCX must not be given others: it reads past their end.
bool isAddress(std::string_view bytes);

class Worker {
 public:
  static Expected<std::unique_ptr<Worker>> open();
  // All connections must have been closed.
  ~Worker();

  // Any bytes: what other ranks need to reach this process.
  const std::string& address() const { return address_; }
  const Library& library() const { return library_; }
  ucp_worker_h get() const { return worker_; }
  // Becomes readable when there is work, after it was armed.
  int file() const { return file_; }

  // An error that names the attempted operation, unless `status` is UCS_OK.
  Status checked(ucs_status_t status, const char* what) const;

 private:
  Worker() = default;
  Status load();
  Status start();

  Library library_{};
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int file_ = -1;
  std::string address_;
};

}  // namespace sluice::ucx

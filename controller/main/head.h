// Head: the controller as one object on one loop: its journal, its logic (core/core.h), and the services through which
// agents, workers, libraries and the command line reach it.
//
//   RUN_DIR/journal.db           what must survive a kill of this process (and .lock: who holds it)
//   RUN_DIR/controller.address   where it listens; a head that is started again listens there again if it can
//   RUN_DIR/controller.pid
//   RUN_DIR/logs/audit.log       calls that change something, and what was refused (common/rpc/audit_log.h)
//
// Belongs to the loop, which must outlive it. A process that ends does not destroy it (see RunController): Shutdown
// ends what runs on the cluster, and the process leaves.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "controller/core/core.h"
#include "controller/journal/sqlite_journal.h"
#include "controller/service/run_service.h"
#include "grpcpp/channel.h"

namespace manta::controller {

class DurableCaller;  // controller/calls

struct HeadOptions {
  std::filesystem::path run_dir;  // exists; logs/<role>-<rank>.log lie below it
  std::filesystem::path token_file;  // where it is one role's (rpc/keys.h), token.worker lies beside it: the workers'
  std::string listen = "127.0.0.1:0";
  std::filesystem::path journal_dir;  // empty: run_dir
  bool discard_journal = false;       // begin anew where the journal is damaged
  core::CoreOptions core;             // what the head itself knows (incarnation, addresses, token) is filled in
};

class Head {
 public:
  // The code of jobs and their events; given to the core and to the services. `attach` is called once the head is up.
  class Jobs : public core::JobPort, public RunService::Runs {
   public:
    virtual void Attach(Head* head) = 0;
  };

  // `on_shutdown`: someone has asked the cluster to end, and it has. `jobs` must outlive the head.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Head>> Start(EventLoop& loop, HeadOptions options, Jobs* jobs,
                                                                   std::function<void(const std::string&)> on_shutdown);
  ~Head();
  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;

  core::Core& core();
  journal::SqliteJournal& journal();
  // For calls of jobs to actors that must survive a kill of this process.
  DurableCaller& calls();
  const std::string& address() const;
  uint64_t incarnation() const;
  // A channel to a worker, with the job's credentials; null where the address cannot be reached with them.
  std::shared_ptr<grpc::Channel> Connect(const std::string& address) const;
  // Whether an earlier head has left rows of this job.
  bool HasRowsOf(const std::string& job) const;

  // Takes no new calls, lets those that run go on for `grace`, then cancels them. False where some have not returned:
  // then the head must not be destroyed.
  bool StopServing(absl::Duration grace);

 private:
  class Impl;
  explicit Head(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace manta::controller

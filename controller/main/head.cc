#include "controller/main/head.h"

#include <unistd.h>

#include <set>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/keys.h"
#include "common/rpc/refusals.h"
#include "common/rpc/server.h"
#include "common/rpc/token.h"
#include "controller/calls/durable_caller.h"
#include "controller/node/captured_log.h"
#include "controller/service/cluster_service.h"
#include "controller/service/node_service.h"
#include "controller/service/run_service.h"
#include "spdlog/spdlog.h"

namespace manta::controller {
namespace {

constexpr char kAddressFile[] = "controller.address";
constexpr char kPidFile[] = "controller.pid";
constexpr int kMaxReceiveBytes = 64 << 20;  // an agent that comes back tells of all its exits, with their last lines
constexpr absl::Duration kHandlersEnd = absl::Seconds(1);  // for cancelled calls to return

// Where an earlier head of this folder listened; empty if none did.
std::string LastAddress(const std::filesystem::path& run_dir) {
  const absl::StatusOr<std::string> text = ReadFile(run_dir / kAddressFile, 256);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

// What workers show and go by: the token of their role. Where one token is everyone's it is theirs too.
absl::StatusOr<std::string> WorkerToken(const std::filesystem::path& token_file, const std::string& token) {
  MANTA_ASSIGN_OR_RETURN(const rpc::Keys keys, rpc::Keys::Parse(token));
  if (!keys.by_role()) return token;
  return rpc::ReadTokenFile(token_file.parent_path() / "token.worker");
}

// Who listens on every address is reached by its host's name.
std::string Reachable(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  char name[256] = {};
  if ((host != "0.0.0.0" && host != "[::]") || gethostname(name, sizeof(name) - 1) != 0) return address;
  return absl::StrCat(name, address.substr(colon));
}

}  // namespace

class Head::Impl {
 public:
  Impl(EventLoop& loop, HeadOptions options, Jobs* jobs, std::function<void(const std::string&)> on_shutdown)
      : loop_(loop), options_(std::move(options)), jobs_(jobs), on_shutdown_(std::move(on_shutdown)) {}

  absl::Status Start() {
    MANTA_ASSIGN_OR_RETURN(token_, rpc::ReadTokenFile(options_.token_file));
    const std::filesystem::path journal_dir = options_.journal_dir.empty() ? options_.run_dir : options_.journal_dir;
    MANTA_ASSIGN_OR_RETURN(
        journal::SqliteJournal::Opened opened,
        journal::SqliteJournal::Open(journal_dir / "journal.db", loop_, {.discard_damaged = options_.discard_journal}));
    if (!opened.discarded.empty()) {
      spdlog::warn("the journal was damaged: it lies in {}, and this head begins anew", opened.discarded.string());
    }
    journal_ = std::move(opened.journal);
    incarnation_ = opened.incarnation;
    for (const core::JournalEntry& entry : opened.entries) {
      if (entry.kind == core::Journal::Kind::kGroup) jobs_with_rows_.insert(entry.key.substr(0, entry.key.find('/')));
    }
    calls_ = std::make_unique<DurableCaller>(
        loop_, *journal_,
        DurableCaller::Options{.id = absl::HexStringToBytes(opened.cluster_id),
                               .incarnation = incarnation_,
                               .token = token_,
                               .connect = [this](const std::string& address) { return Connect(address); }},
        opened.entries);
    core::CoreOptions core = options_.core;
    core.incarnation = incarnation_;
    core.run_dir = options_.run_dir.string();
    MANTA_ASSIGN_OR_RETURN(core.worker_token, WorkerToken(options_.token_file, token_));
    core.seed = incarnation_;
    core.unix_ms = [] { return absl::ToUnixMillis(absl::Now()); };
    core.node_last_lines = [logs = options_.run_dir / "logs"](const std::string& node) {
      std::vector<std::string> lines = node::LastLinesOf((logs / absl::StrCat("node-", node, ".log")).string());
      if (lines.empty()) lines = node::LastLinesOf((logs / "node.log").string());  // as `manta run` calls it
      return lines;
    };
    core_ = std::make_unique<core::Core>(loop_, *journal_, jobs_, std::move(core), std::move(opened.entries));
    nodes_ = std::make_unique<NodeService>(loop_, core_.get(), options_.core.wait_on_controller_loss);
    cluster_ = std::make_unique<ClusterService>(
        loop_, core_.get(), ClusterService::Hooks{.ended = on_shutdown_, .counters = [this] { return Counters(); }});
    runs_ = std::make_unique<RunService>(loop_, core_.get(), jobs_);
    MANTA_RETURN_IF_ERROR(Listen());
    address_ = Reachable(server_->address());
    MANTA_RETURN_IF_ERROR(WriteFileAtomically(options_.run_dir / kPidFile, absl::StrCat(getpid(), "\n")));
    MANTA_RETURN_IF_ERROR(WriteFileAtomically(options_.run_dir / kAddressFile, address_ + "\n"));
    spdlog::info("listening on {} incarnation={} folder={}", address_, incarnation_, options_.run_dir.string());
    return absl::OkStatus();
  }

  std::shared_ptr<grpc::Channel> Connect(const std::string& address) const {
    absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = rpc::OpenChannel(address, token_);
    if (channel.ok()) return *std::move(channel);
    spdlog::error("{}", std::string(channel.status().message()));
    return nullptr;
  }

  // In a thread of its own: gRPC waits for every handler, and one whose answer nobody gives any more would be waited
  // for without end.
  bool StopServing(absl::Duration grace) {
    if (server_ == nullptr) return true;
    auto done = std::make_shared<absl::Notification>();
    std::thread([done, server = server_.get(), grace] {
      server->Shutdown(grace);
      done->Notify();
    }).detach();
    return done->WaitForNotificationWithTimeout(grace + kHandlersEnd);
  }

  EventLoop& loop_;
  const HeadOptions options_;
  Jobs* const jobs_;
  const std::function<void(const std::string&)> on_shutdown_;
  std::string token_, address_;
  std::unique_ptr<journal::SqliteJournal> journal_;
  uint64_t incarnation_ = 0;
  std::set<std::string> jobs_with_rows_;
  std::unique_ptr<DurableCaller> calls_;
  std::unique_ptr<core::Core> core_;
  std::unique_ptr<NodeService> nodes_;
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<RunService> runs_;
  std::unique_ptr<rpc::Server> server_;  // the first to go

 private:
  // Those who know the last head's address find this one there.
  absl::Status Listen() {
    const std::string last = LastAddress(options_.run_dir);
    const std::string host = options_.listen.substr(0, options_.listen.rfind(':'));
    const size_t port = last.rfind(':');
    if (absl::EndsWith(options_.listen, ":0") && port != std::string::npos &&
        last == Reachable(host + last.substr(port))) {
      absl::StatusOr<std::unique_ptr<rpc::Server>> server = Serve(host + last.substr(port));
      if (server.ok()) {
        server_ = *std::move(server);
        return absl::OkStatus();
      }
      spdlog::warn("{} is taken: listening elsewhere", last);
    }
    MANTA_ASSIGN_OR_RETURN(server_, Serve(options_.listen));
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<rpc::Server>> Serve(const std::string& listen) {
    rpc::ServerOptions options{.listen = listen, .token = token_};
    const std::filesystem::path logs = options_.run_dir / "logs";
    std::error_code ignored;  // opening the log says why it cannot be there
    std::filesystem::create_directories(logs, ignored);
    options.audit_log = logs / "audit.log";
    options.max_receive_bytes = kMaxReceiveBytes;
    return rpc::Server::Start(options, {nodes_.get(), cluster_.get(), runs_.get()});
  }

  std::map<std::string, double> Counters() const {
    const journal::SqliteJournal::Stats stats = journal_->stats();
    std::map<std::string, double> counters = rpc::RefusalCounters();
    counters["manta_journal_commits_total"] = static_cast<double>(stats.commits);
    counters["manta_journal_rows_total"] = static_cast<double>(stats.rows);
    counters["manta_journal_failures_total"] = static_cast<double>(stats.failures);
    counters["manta_head_incarnation"] = static_cast<double>(incarnation_);
    return counters;
  }
};

Head::Head(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Head::~Head() {
  if (!impl_->StopServing(absl::ZeroDuration())) (void)impl_.release();  // handlers still refer to it
}

absl::StatusOr<std::unique_ptr<Head>> Head::Start(EventLoop& loop, HeadOptions options, Jobs* jobs,
                                                  std::function<void(const std::string&)> on_shutdown) {
  auto impl = std::make_unique<Impl>(loop, std::move(options), jobs, std::move(on_shutdown));
  MANTA_RETURN_IF_ERROR(impl->Start());
  std::unique_ptr<Head> head(new Head(std::move(impl)));
  jobs->Attach(head.get());
  return head;
}

core::Core& Head::core() {
  return *impl_->core_;
}
DurableCaller& Head::calls() {
  return *impl_->calls_;
}
journal::SqliteJournal& Head::journal() {
  return *impl_->journal_;
}
const std::string& Head::address() const {
  return impl_->address_;
}
uint64_t Head::incarnation() const {
  return impl_->incarnation_;
}
std::shared_ptr<grpc::Channel> Head::Connect(const std::string& address) const {
  return impl_->Connect(address);
}
bool Head::HasRowsOf(const std::string& job) const {
  return impl_->jobs_with_rows_.count(job) > 0;
}
bool Head::StopServing(absl::Duration grace) {
  return impl_->StopServing(grace);
}

}  // namespace manta::controller

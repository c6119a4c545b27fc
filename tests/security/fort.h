// A head's server with everything that secures it, for tests that attack it: its services, tokens a role, certificates
// of a job, an audit log, tight limits; and a good client that calls it all the while.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/rpc/audit_log.h"
#include "common/rpc/certificates.h"
#include "common/rpc/channel.h"
#include "common/rpc/keys.h"
#include "common/rpc/refusals.h"
#include "common/rpc/server.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "manta/v1/controller.grpc.pb.h"

namespace manta::testing {

class FakeHead : public v1::ControllerService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest*,
                                      v1::GetStatusReply* reply) override {
    saw_token = saw_token || context->client_metadata().count("x-manta-token") > 0;
    reply->set_algorithm("fake");
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* StopRun(grpc::CallbackServerContext* context, const v1::StopRunRequest*,
                                    v1::StopRunReply*) override {
    saw_token = saw_token || context->client_metadata().count("x-manta-token") > 0;
    ++stops;
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  std::atomic<int> stops = 0;
  std::atomic<bool> saw_token = false;
};

struct FortOptions {
  bool tls = true;
  std::string listen = "0.0.0.0:0";
};

class Fort {
 public:
  explicit Fort(const FortOptions& options = {}) : tls_(options.tls), tokens_("this job's secret") {
    static int counter = 0;
    dir_ = std::filesystem::path(::testing::TempDir()) / absl::StrCat("fort.", getpid(), ".", ++counter);
    std::filesystem::create_directories(dir_);
    EXPECT_TRUE(rpc::InitCertificates(certificates(), {.job = "job", .nodes = {"n0"}}).ok());
    rpc::ServerOptions server{.listen = options.listen, .token = tokens_.KeysOf(v1::ROLE_ADMIN)};
    if (tls_) server.tls = Files("admin");
    server.audit_log = dir_ / "audit.log";
    server.max_receive_bytes = 1 << 20;
    server.max_connections = 400;
    server.handshake_timeout = absl::Seconds(1);
    server_ = rpc::Server::Start(server, {&head}).value();
    address_ = absl::StrCat("127.0.0.1", server_->address().substr(server_->address().rfind(':')));
  }
  ~Fort() {
    server_.reset();
    if (!::testing::Test::HasFailure()) std::filesystem::remove_all(dir_);
  }

  std::filesystem::path certificates() const { return dir_ / "certificates"; }
  rpc::TlsFiles Files(const std::string& name) const { return rpc::TlsFilesIn(certificates(), name).value(); }
  const std::string& address() const { return address_; }
  int port() const { return std::stoi(address_.substr(address_.rfind(':') + 1)); }
  const std::filesystem::path& dir() const { return dir_; }
  const rpc::RoleTokens& tokens() const { return tokens_; }
  rpc::Server& server() { return *server_; }

  // As a process in `role` calls; where `token` or `files` is given, with those instead.
  std::unique_ptr<v1::ControllerService::Stub> Connect(v1::Role role, std::string token = "",
                                                       std::optional<rpc::TlsFiles> files = std::nullopt) {
    rpc::Identity identity{.token = token.empty() ? tokens_.KeysOf(role) : token};
    if (tls_) identity.tls = files.has_value() ? *files : Files(std::string(rpc::RoleName(role)));
    return v1::ControllerService::NewStub(rpc::OpenChannel(address_, identity).value());
  }
  static grpc::Status GetStatus(v1::ControllerService::Stub& stub, absl::Duration deadline = absl::Seconds(10)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    v1::GetStatusReply reply;
    return stub.GetStatus(&context, {}, &reply);
  }
  static grpc::Status Stop(v1::ControllerService::Stub& stub, const std::string& reason,
                           absl::Duration deadline = absl::Seconds(10)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    v1::StopRunRequest request;
    request.set_reason(reason);
    v1::StopRunReply reply;
    return stub.StopRun(&context, request, &reply);
  }

  std::string AuditLog() const {
    rpc::AuditLog::Process().Flush(absl::Seconds(5));
    return ReadFile(dir_ / "audit.log").value_or("");
  }

  FakeHead head;

 private:
  const bool tls_;
  const rpc::RoleTokens tokens_;
  std::filesystem::path dir_;
  std::unique_ptr<rpc::Server> server_;
  std::string address_;
};

// Calls every few milliseconds, on one channel and now and then on a new one, until it is stopped.
class GoodClient {
 public:
  explicit GoodClient(Fort& fort) : fort_(fort), thread_([this] { Run(); }) {}
  ~GoodClient() { Stop(); }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // The median of what was measured since the last call, in milliseconds.
  double Median() {
    std::lock_guard lock(mutex_);
    if (latencies_.empty()) return 0;
    std::sort(latencies_.begin(), latencies_.end());
    const double median = latencies_[latencies_.size() / 2];
    latencies_.clear();
    return median;
  }
  int calls() const { return calls_; }
  std::vector<std::string> errors() {
    std::lock_guard lock(mutex_);
    return errors_;
  }

 private:
  void Run() {
    auto kept = fort_.Connect(v1::ROLE_READER);
    while (!stop_) {
      const bool fresh = ++calls_ % 20 == 0;
      auto channel = fresh ? fort_.Connect(v1::ROLE_READER) : nullptr;
      const absl::Time start = absl::Now();
      const grpc::Status status = Fort::GetStatus(fresh ? *channel : *kept);
      const double ms = absl::ToDoubleMilliseconds(absl::Now() - start);
      {
        std::lock_guard lock(mutex_);
        if (!fresh) latencies_.push_back(ms);
        if (!status.ok()) errors_.push_back(absl::StrCat(fresh ? "new channel: " : "", status.error_message()));
      }
      absl::SleepFor(absl::Milliseconds(3));
    }
  }

  Fort& fort_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> calls_ = 0;
  std::mutex mutex_;
  std::vector<double> latencies_;
  std::vector<std::string> errors_;
  std::thread thread_;
};

// Waits until the reason's count has risen by `more` since `before`.
inline bool WaitRefused(rpc::Refusal reason, uint64_t before, uint64_t more, absl::Duration patience) {
  const absl::Time end = absl::Now() + patience;
  while (rpc::RefusalCount(reason) < before + more && absl::Now() < end) absl::SleepFor(absl::Milliseconds(10));
  return rpc::RefusalCount(reason) >= before + more;
}

}  // namespace manta::testing

#include "common/rpc/call_guard.h"

#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/rpc/audit_log.h"
#include "common/rpc/certificate_name.h"
#include "common/rpc/refusals.h"
#include "grpc/grpc_security_constants.h"

namespace manta::rpc {
namespace {

constexpr absl::Duration kLongestUpload = absl::Seconds(10);
constexpr absl::Duration kSweepEvery = absl::Seconds(1);

absl::string_view View(grpc::string_ref ref) {
  return {ref.data(), ref.size()};
}

absl::string_view Property(const grpc::AuthContext& context, const char* name) {
  const std::vector<grpc::string_ref> values = context.FindPropertyValues(name);
  return values.empty() ? absl::string_view() : View(values[0]);
}

// gRPC keeps a property's bytes where they are as long as the connection lives, and every connection has this one.
uintptr_t ConnectionOf(const grpc::AuthContext& context) {
  return reinterpret_cast<uintptr_t>(Property(context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME).data());
}

// "2980m": at most eight digits and a unit.
absl::Duration ParseTimeout(absl::string_view text) {
  int64_t number;
  if (text.size() < 2 || !absl::SimpleAtoi(text.substr(0, text.size() - 1), &number)) return absl::InfiniteDuration();
  switch (text.back()) {
    case 'n':
      return absl::Nanoseconds(number);
    case 'u':
      return absl::Microseconds(number);
    case 'm':
      return absl::Milliseconds(number);
    case 'S':
      return absl::Seconds(number);
    case 'M':
      return absl::Minutes(number);
    default:
      return absl::Hours(number);
  }
}

bool CanBeLost(const MethodPolicy::Method& method) {
  return !method.client_streaming;  // of the others the handler itself reads
}

}  // namespace

class GuardProcessor : public grpc::AuthMetadataProcessor {
 public:
  explicit GuardProcessor(std::shared_ptr<CallGuard> guard) : guard_(std::move(guard)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata* consumed,
                       OutputMetadata*) override {
    CallGuard::Call call;
    if (const auto it = metadata.find(":path"); it != metadata.end()) call.path = View(it->second);
    if (const auto it = metadata.find("grpc-timeout"); it != metadata.end()) call.timeout = View(it->second);
    if (const auto it = metadata.find(CallGuard::kTokenKey); it != metadata.end()) {
      call.token = View(it->second);
      call.has_token = true;
    }
    call.certificate = Property(*context, GRPC_PEER_URI_PROPERTY_NAME);
    call.connection = ConnectionOf(*context);
    bool audited = false;
    grpc::Status status = guard_->Judge(call, &audited);
    // Handlers do not see it. From an audited call its interceptor takes it, which writes down whose it is.
    if (status.ok() && !audited) consumed->emplace(CallGuard::kTokenKey, std::string(call.token));
    return status;
  }

 private:
  const std::shared_ptr<CallGuard> guard_;
};

// Of one call, where its audit line or its beginning is still to be noted.
class CallInterceptor : public grpc::experimental::Interceptor {
 public:
  // `on_begin` may be null.
  CallInterceptor(std::shared_ptr<CallGuard> guard, const MethodPolicy::Method& method,
                  grpc::experimental::ServerRpcInfo* info, std::function<void(uintptr_t connection)> on_begin)
      : guard_(std::move(guard)), method_(method), info_(info), on_begin_(std::move(on_begin)) {}
  ~CallInterceptor() override {
    if (method_.audit && !told_) Tell("outcome=CANCELLED");
  }
  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (batch->QueryInterceptionHookPoint(Point::POST_RECV_INITIAL_METADATA)) Begins(*batch);
    if (method_.audit && batch->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS)) {
      const auto code = static_cast<absl::StatusCode>(batch->GetSendStatus().error_code());
      Tell(absl::StrCat("outcome=", code == absl::StatusCode::kOk ? "OK" : absl::StatusCodeToString(code)));
      told_ = true;
    }
    batch->Proceed();
  }

 private:
  void Begins(grpc::experimental::InterceptorBatchMethods& batch) {
    const auto context = info_->server_context()->auth_context();
    if (on_begin_ && context != nullptr) on_begin_(ConnectionOf(*context));
    if (!method_.audit) return;
    const absl::string_view certificate = context == nullptr ? "" : Property(*context, GRPC_PEER_URI_PROPERTY_NAME);
    RoleSet roles = 0;
    auto* metadata = batch.GetRecvInitialMetadata();
    if (const auto token = metadata->find(CallGuard::kTokenKey); token != metadata->end()) {
      roles = guard_->RolesOf(method_, View(token->second), certificate);
    }
    metadata->erase(CallGuard::kTokenKey);
    who_ = absl::StrCat("role=", RoleNames(roles), " peer=", info_->server_context()->peer());
    if (!certificate.empty()) absl::StrAppend(&who_, " certificate=", certificate);
    if (method_.client_streaming || method_.server_streaming) Tell("begins");
  }
  void Tell(absl::string_view what) {
    AuditLog::Process().Called(absl::StrCat("method=", method_.path, " ", who_, " ", what));
  }

  const std::shared_ptr<CallGuard> guard_;

  const MethodPolicy::Method& method_;  // the policy lives as long as its server
  grpc::experimental::ServerRpcInfo* const info_;
  const std::function<void(uintptr_t)> on_begin_;
  std::string who_;
  bool told_ = false;
};

class GuardInterceptors : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit GuardInterceptors(std::shared_ptr<CallGuard> guard) : guard_(std::move(guard)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    const auto policy = guard_->policy();
    const MethodPolicy::Method* method = policy == nullptr ? nullptr : policy->Find(info->method());
    if (method == nullptr) return nullptr;
    std::function<void(uintptr_t)> on_begin;
    if (CanBeLost(*method)) {
      // Of services with completion queues of their own, gRPC binds the call to its context only after this.
      if (const auto context = info->server_context()->auth_context(); context != nullptr) {
        guard_->Started(*method, ConnectionOf(*context));
      } else {
        on_begin = [guard = guard_, method](uintptr_t connection) { guard->Started(*method, connection); };
      }
    }
    if (!method->audit && !on_begin) return nullptr;
    return new CallInterceptor(guard_, *method, info, std::move(on_begin));
  }

 private:
  const std::shared_ptr<CallGuard> guard_;
};

void CallGuard::SetPolicy(std::shared_ptr<MethodPolicy> policy) {
  absl::MutexLock lock(&mutex_);
  policy_ = std::move(policy);
}

std::shared_ptr<MethodPolicy> CallGuard::policy() const {
  absl::MutexLock lock(&mutex_);
  return policy_;
}

std::shared_ptr<grpc::AuthMetadataProcessor> CallGuard::Processor() {
  return std::make_shared<GuardProcessor>(shared_from_this());
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CallGuard::Interceptors() {
  return std::make_unique<GuardInterceptors>(shared_from_this());
}

RoleSet CallGuard::RolesOf(const MethodPolicy::Method& method, absl::string_view token,
                           absl::string_view certificate) const {
  RoleSet roles = keys_.RolesOf(token) & method.roles;
  if (!certificates_) return roles;
  const auto name = CertificateName::Parse(certificate);
  return name.has_value() ? roles & RoleBit(name->role) : 0;
}

grpc::Status CallGuard::Judge(const Call& call, bool* audited) {
  const auto refuse = [&](Refusal reason, grpc::StatusCode code, const std::string& why) {
    std::string who = absl::StrCat("method=", call.path);
    if (!call.certificate.empty()) absl::StrAppend(&who, " certificate=", call.certificate);
    Refuse(reason, absl::StrCat(who, " because ", why));
    return grpc::Status(code, why);
  };
  if (!call.has_token) {
    return refuse(Refusal::kNoToken, grpc::StatusCode::UNAUTHENTICATED, "the call carries no job token");
  }
  RoleSet roles = keys_.RolesOf(call.token);
  if (roles == 0) {
    return refuse(Refusal::kWrongToken, grpc::StatusCode::UNAUTHENTICATED, "the call carries another job's token");
  }
  const auto policy = this->policy();
  const MethodPolicy::Method* method = policy == nullptr ? nullptr : policy->Find(call.path);
  if (method == nullptr) {
    return refuse(Refusal::kMethod, grpc::StatusCode::UNIMPLEMENTED,
                  absl::StrCat("no such method is served here: ", call.path.substr(0, 200)));
  }
  if ((roles & method->roles) == 0) {
    return refuse(Refusal::kRole, grpc::StatusCode::PERMISSION_DENIED,
                  absl::StrCat(method->path, " is for ", RoleNames(method->roles), ", not for ", RoleNames(roles)));
  }
  if (certificates_) {
    const auto name = CertificateName::Parse(call.certificate);
    const RoleSet shown = name.has_value() ? RoleBit(name->role) : 0;
    if ((roles & shown & method->roles) == 0) {
      return refuse(Refusal::kCertificate, grpc::StatusCode::PERMISSION_DENIED,
                    absl::StrCat(method->path, " is for ", RoleNames(method->roles), "; the certificate is of ",
                                 RoleNames(shown), ", the token of ", RoleNames(roles)));
    }
  }
  const absl::Time now = absl::Now();
  const std::string caller = call.certificate.empty() ? RoleNames(roles) : std::string(call.certificate);
  if (!policy->TakeTurn(*method, caller, now)) {
    return refuse(Refusal::kRate, grpc::StatusCode::RESOURCE_EXHAUSTED,
                  absl::StrCat(method->path, " may be called ", method->max_per_second, " times a second"));
  }
  if (CanBeLost(*method)) {
    const absl::Time deadline = now + std::min(ParseTimeout(call.timeout), kLongestUpload);
    absl::MutexLock lock(&mutex_);
    on_their_way_[{call.connection, method}].push_back(deadline);
  }
  *audited = method->audit;
  return grpc::Status::OK;
}

void CallGuard::Started(const MethodPolicy::Method& method, uintptr_t connection) {
  absl::MutexLock lock(&mutex_);
  const auto it = on_their_way_.find({connection, &method});
  if (it == on_their_way_.end()) return;
  it->second.pop_front();
  if (it->second.empty()) on_their_way_.erase(it);
}

void CallGuard::Sweep(absl::Time now) {
  std::vector<const MethodPolicy::Method*> lost;
  {
    absl::MutexLock lock(&mutex_);
    if (now - swept_ < kSweepEvery) return;
    swept_ = now;
    absl::erase_if(on_their_way_, [&](auto& entry) {
      std::deque<absl::Time>& deadlines = entry.second;
      for (size_t i = 0; i < deadlines.size();) {
        if (deadlines[i] + kSweepEvery > now) {
          ++i;
          continue;
        }
        lost.push_back(entry.first.second);
        deadlines.erase(deadlines.begin() + static_cast<std::ptrdiff_t>(i));
      }
      return deadlines.empty();
    });
  }
  for (const MethodPolicy::Method* method : lost) {
    Refuse(Refusal::kMessage, absl::StrCat("method=", method->path,
                                           " because its message was too large, or its caller gave up while sending"));
  }
}

}  // namespace manta::rpc

// Nine who should not come in: each is refused, logged and counted, and a good client does not notice.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "tests/security/fort.h"
#include "tests/security/stranger.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Attackers : public ::testing::TestWithParam<bool> {
 protected:
  Attackers() : fort_({.tls = GetParam(), .listen = GetParam() ? "0.0.0.0:0" : "127.0.0.1:0"}), good_(fort_) {
    absl::SleepFor(absl::Milliseconds(200));
    quiet_ = good_.Median();
  }

  // Runs the attack; it must be counted `times` times under `reason`, and told in the log.
  template <typename Attack>
  void ExpectRefused(rpc::Refusal reason, uint64_t times, Attack attack, absl::Duration patience = absl::Seconds(10)) {
    const uint64_t before = rpc::RefusalCount(reason);
    (void)good_.Median();
    attack();
    EXPECT_TRUE(WaitRefused(reason, before, times, patience))
        << rpc::RefusalName(reason) << ": " << rpc::RefusalCount(reason) - before << " of " << times;
    const double during = good_.Median();
    std::printf("%s: %llu refused; the good client's median: %.2f ms before, %.2f ms meanwhile\n",
                std::string(rpc::RefusalName(reason)).c_str(),
                static_cast<unsigned long long>(rpc::RefusalCount(reason) - before), quiet_, during);
    good_.Stop();
    EXPECT_THAT(good_.errors(), IsEmpty());
    EXPECT_GT(good_.calls(), 10);
    EXPECT_LT(during, 2 * quiet_ + 20) << "the good client was disturbed";  // 20 ms: of a busy machine
    const std::string line = absl::StrCat("refused reason=", rpc::RefusalName(reason));
    for (int i = 0; i < 40 && !absl::StrContains(fort_.AuditLog(), line); ++i) {  // of many, some are told together
      absl::SleepFor(absl::Milliseconds(100));
    }
    EXPECT_THAT(fort_.AuditLog(), HasSubstr(line));
    EXPECT_EQ(fort_.head.stops, 0);
    EXPECT_FALSE(fort_.head.saw_token);
  }

  int Dial(const char* from = "127.0.0.1") {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in source{}, to{};
    source.sin_family = AF_INET;
    inet_pton(AF_INET, from, &source.sin_addr);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&source), sizeof(source)), 0) << strerror(errno);
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(fort_.port()));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0) << strerror(errno);
    return fd;
  }
  // Until the other side has closed.
  static bool WaitClosed(int fd, absl::Duration patience) {
    const absl::Time end = absl::Now() + patience;
    while (absl::Now() < end) {
      pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
      if (poll(&p, 1, 50) <= 0) continue;
      char bytes[256];
      const ssize_t count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
    }
    return false;
  }

  Fort fort_;
  GoodClient good_;
  double quiet_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Over, Attackers, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Tls" : "Loopback"; });

TEST_P(Attackers, NoToken) {
  ExpectRefused(rpc::Refusal::kNoToken, 1, [&] {
    auto credentials = GetParam() ? rpc::TlsChannel(fort_.Files("admin"), rpc::kEveryRole).value()
                                  : grpc::experimental::LocalCredentials(LOCAL_TCP);
    auto stub = v1::ControllerService::NewStub(grpc::CreateChannel(fort_.address(), credentials));
    const grpc::Status status = Fort::Stop(*stub, "no token");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
  });
}

TEST_P(Attackers, WrongToken) {
  ExpectRefused(rpc::Refusal::kWrongToken, 1, [&] {
    const grpc::Status status = Fort::Stop(*fort_.Connect(v1::ROLE_ADMIN, "a guess of some length"), "guess");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
  });
}

TEST_P(Attackers, AnotherJobsToken) {
  ExpectRefused(rpc::Refusal::kWrongToken, 1, [&] {
    const rpc::RoleTokens others("another job's secret");
    const grpc::Status status =
        Fort::Stop(*fort_.Connect(v1::ROLE_ADMIN, others.KeysOf(v1::ROLE_ADMIN)), "another job");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
  });
}

TEST_P(Attackers, AWorkerAtAnAdminsMethod) {
  ExpectRefused(rpc::Refusal::kRole, 1, [&] {
    const grpc::Status status = Fort::Stop(*fort_.Connect(v1::ROLE_WORKER), "I am a worker");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(status.error_message(), "/manta.v1.ControllerService/StopRun is for admin, not for worker");
  });
}

TEST_P(Attackers, AnAdminsTokenWithAWorkersCertificate) {
  if (!GetParam()) GTEST_SKIP() << "certificates are for TLS";
  ExpectRefused(rpc::Refusal::kCertificate, 1, [&] {
    auto stub = fort_.Connect(v1::ROLE_ADMIN, fort_.tokens().KeysOf(v1::ROLE_ADMIN), fort_.Files("worker"));
    EXPECT_EQ(Fort::Stop(*stub, "a stolen token").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  });
}

TEST_P(Attackers, ACertificateOfAnotherCa) {
  if (!GetParam()) GTEST_SKIP() << "certificates are for TLS";
  ExpectRefused(rpc::Refusal::kTls, 1, [&] {
    const auto other = fort_.dir() / "other";
    ASSERT_TRUE(rpc::InitCertificates(other, {.job = "job"}).ok());
    rpc::TlsFiles files = rpc::TlsFilesIn(other, "admin").value();
    files.ca = fort_.certificates() / "ca.pem";
    const std::string keys = fort_.tokens().KeysOf(v1::ROLE_ADMIN);
    auto stub = v1::ControllerService::NewStub(StrangersChannel(fort_.address(), files, keys));
    EXPECT_EQ(Fort::Stop(*stub, "another CA", absl::Seconds(2)).error_code(), grpc::StatusCode::UNAVAILABLE);
    // No process of ours would start with files that do not fit.
    rpc::Identity identity{.token = keys, .tls = files};
    EXPECT_THAT(std::string(rpc::OpenChannel(fort_.address(), identity).status().message()),
                HasSubstr("was not signed by"));
  });
}

TEST_P(Attackers, ACertificateThatHasExpired) {
  if (!GetParam()) GTEST_SKIP() << "certificates are for TLS";
  ExpectRefused(rpc::Refusal::kTls, 1, [&] {
    const auto old = fort_.dir() / "old";
    std::filesystem::create_directories(old);
    for (const char* name : {"ca.pem", "ca.key"}) std::filesystem::copy_file(fort_.certificates() / name, old / name);
    ASSERT_TRUE(
        rpc::InitCertificates(old, {.job = "job", .valid = absl::Hours(1), .from = absl::Now() - absl::Hours(2)}).ok());
    auto stub = v1::ControllerService::NewStub(StrangersChannel(
        fort_.address(), rpc::TlsFilesIn(old, "admin").value(), fort_.tokens().KeysOf(v1::ROLE_ADMIN)));
    EXPECT_EQ(Fort::Stop(*stub, "expired", absl::Seconds(2)).error_code(), grpc::StatusCode::UNAVAILABLE);
  });
}

TEST_P(Attackers, ACertificateOfAnotherJob) {
  if (!GetParam()) GTEST_SKIP() << "certificates are for TLS";
  ExpectRefused(rpc::Refusal::kCertificate, 1, [&] {  // by the same CA: only the names differ
    const auto other = fort_.dir() / "job2";
    std::filesystem::create_directories(other);
    for (const char* name : {"ca.pem", "ca.key"}) std::filesystem::copy_file(fort_.certificates() / name, other / name);
    ASSERT_TRUE(rpc::InitCertificates(other, {.job = "job2"}).ok());
    auto stub = fort_.Connect(v1::ROLE_ADMIN, "", rpc::TlsFilesIn(other, "admin").value());
    EXPECT_EQ(Fort::Stop(*stub, "another job", absl::Seconds(2)).error_code(), grpc::StatusCode::UNAVAILABLE);
  });
}

TEST_P(Attackers, AnOversizedMessage) {
  ExpectRefused(rpc::Refusal::kMessage, 1, [&] {
    const grpc::Status status = Fort::Stop(*fort_.Connect(v1::ROLE_ADMIN), std::string(2 << 20, 'x'), absl::Seconds(2));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  });
}

TEST_P(Attackers, ASlowLoris) {
  constexpr int kSilent = 100, kDripping = 20;
  ExpectRefused(rpc::Refusal::kSlow, kSilent + kDripping, [&] {
    std::vector<int> fds;
    for (int i = 0; i < kSilent + kDripping; ++i) fds.push_back(Dial());
    const std::string begin = GetParam() ? std::string("\x16\x03\x01\x02\x00", 5) : "PRI * HTTP/2";
    for (int round = 0; round < 8; ++round) {  // a byte at a time, for longer than they are given
      for (int i = kSilent; i < kSilent + kDripping; ++i) {
        const char byte = round < static_cast<int>(begin.size()) ? begin[static_cast<size_t>(round)] : 0;
        (void)!send(fds[static_cast<size_t>(i)], &byte, 1, MSG_NOSIGNAL);
      }
      absl::SleepFor(absl::Milliseconds(100));
    }
    for (const int fd : fds) {
      EXPECT_TRUE(WaitClosed(fd, absl::Seconds(10)));
      close(fd);
    }
  });
}

TEST_P(Attackers, AThousandGarbageConnections) {
  constexpr int kConnections = 1000;
  ExpectRefused(rpc::Refusal::kFirstBytes, kConnections, [&] {
    std::vector<int> fds;
    for (int i = 0; i < kConnections; ++i) {
      const int fd = Dial();
      const std::string words = i % 2 == 0 ? "GET / HTTP/1.1\r\n\r\n" : std::string("\0\1\2\3garbage", 11);
      (void)!send(fd, words.data(), words.size(), MSG_NOSIGNAL);
      fds.push_back(fd);
      if (fds.size() < 50) continue;
      for (const int sent : fds) {
        EXPECT_TRUE(WaitClosed(sent, absl::Seconds(10)));
        close(sent);
      }
      fds.clear();
    }
  });
}

TEST_P(Attackers, TooManyConnections) {
  ExpectRefused(rpc::Refusal::kTooManyConnections, 1, [&] {
    std::vector<int> fds;  // each opens HTTP/2 as it should, as far as the gate can see, and then does nothing
    const std::string begin = GetParam() ? std::string("\x16\x03\x01", 3) : "PRI";
    for (int i = 0; i < 300; ++i) {
      fds.push_back(Dial("127.0.0.2"));  // one address has at most half of them
      (void)!send(fds.back(), begin.data(), begin.size(), MSG_NOSIGNAL);
    }
    for (const int fd : fds) EXPECT_TRUE(WaitClosed(fd, absl::Seconds(10)));
    for (const int fd : fds) close(fd);
    const absl::Time end = absl::Now() + absl::Seconds(5);
    while (fort_.server().open_connections() > 10 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_LE(fort_.server().open_connections(), 10);  // the gate knows that they are gone
  });
}

TEST_P(Attackers, PlainTextWhereTlsIsServed) {
  if (!GetParam()) GTEST_SKIP() << "loopback is served in plain text";
  ExpectRefused(rpc::Refusal::kFirstBytes, 1, [&] {
    auto stub = v1::ControllerService::NewStub(
        grpc::CreateChannel(fort_.address(), grpc::experimental::LocalCredentials(LOCAL_TCP)));
    EXPECT_EQ(Fort::Stop(*stub, "plain", absl::Seconds(2)).error_code(), grpc::StatusCode::UNAVAILABLE);
  });
}

}  // namespace
}  // namespace manta::testing

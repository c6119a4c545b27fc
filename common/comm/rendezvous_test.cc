#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/comm/group_for_test.h"
#include "common/comm/socket.h"
#include "gtest/gtest.h"

namespace manta::comm {
namespace {

using Transport = CpuCollectiveOptions::Transport;

// A port that was free a moment ago.
std::string FreeAddress() {
  auto listener = Listen("127.0.0.1:0");
  EXPECT_TRUE(listener.ok());
  return BoundAddress(*listener);
}

TEST(Rendezvous, OverTcp) {
  for (const Transport transport : {Transport::kAuto, Transport::kSockets}) {
    const std::string address = FreeAddress();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([=] {
        CpuCollectiveOptions options = GroupOptionsForTest(rank, 3, "tcp", transport);
        options.rendezvous = address;
        auto c = CreateCpuCollective(options);
        ASSERT_TRUE(c.ok()) << c.status();
        std::vector<float> data(100000, static_cast<float>(rank));
        ASSERT_TRUE((*c)->AllReduceSum(absl::MakeSpan(data)).ok());
        EXPECT_EQ(data[99999], 3);
        EXPECT_TRUE((*c)->Barrier().ok());
      });
    }
    for (std::thread& t : threads) t.join();
  }
}

TEST(Rendezvous, NamesWhoDidNotCome) {
  CpuCollectiveOptions options = GroupOptionsForTest(0, 4, "absent", Transport::kAuto);
  options.join_timeout = absl::Milliseconds(300);
  std::thread one([=]() mutable {
    options.rank = 2;
    options.join_timeout = absl::Seconds(10);
    const absl::Status status = CreateCpuCollective(options).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_NE(status.message().find("1, 3"), std::string::npos) << status;
  });
  const absl::Status status = CreateCpuCollective(options).status();
  one.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(status.message().find("ranks 1, 3 of 4"), std::string::npos) << status;
}

TEST(Rendezvous, TurnsStrangersAwayAndGoesOn) {
  CpuCollectiveOptions options = GroupOptionsForTest(0, 2, "strangers", Transport::kAuto);
  std::thread host([=] {
    auto c = CreateCpuCollective(options);
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_TRUE((*c)->Barrier().ok());
  });
  options.rank = 1;
  {
    CpuCollectiveOptions wrong = options;
    wrong.nonce = "another job";
    const absl::Status status = CreateCpuCollective(wrong).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    wrong = options;
    wrong.epoch = 0;
    EXPECT_TRUE(absl::IsPermissionDenied(CreateCpuCollective(wrong).status()));
    wrong = options;
    wrong.size = 3;
    EXPECT_TRUE(absl::IsPermissionDenied(CreateCpuCollective(wrong).status()));
    auto garbage = Connect(options.rendezvous, absl::Now() + absl::Seconds(1));
    ASSERT_TRUE(garbage.ok());
    EXPECT_TRUE(WriteAll(*garbage, "GET / HTTP/1.1\r\n\r\n", 18, absl::Now() + absl::Seconds(1)).ok());
  }
  auto c = CreateCpuCollective(options);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_TRUE((*c)->Barrier().ok());
  host.join();
}

// Silent ones, slow ones and ones that talk nonsense sit at rank 0's port before the first rank comes, and stay.
TEST(Rendezvous, StrangersOnTheNetworkKeepNobodyOut) {
  const std::string address = FreeAddress();
  std::atomic<bool> over{false};
  std::thread strangers([&] {
    constexpr std::string_view nonsense =
        "GET / HTTP/1.1\r\nHost: nobody\r\nAccept: */*, and so on for longer than a greeting\r\n\r\n";
    std::vector<Fd> silent;
    const absl::Time until = absl::Now() + absl::Seconds(10);
    for (int i = 0; !over && absl::Now() < until; ++i) {
      auto fd = ConnectRetrying(address, absl::Now() + absl::Milliseconds(200));
      if (fd.ok()) {
        if (i % 3 == 1) (void)WriteAll(*fd, nonsense.data(), nonsense.size(), absl::Now());
        if (i % 3 == 2) (void)WriteAll(*fd, "x", 1, absl::Now());
        silent.push_back(*std::move(fd));
      }
      absl::SleepFor(absl::Milliseconds(2));
    }
  });
  const absl::Time start = absl::Now();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      absl::SleepFor(absl::Milliseconds(300 * rank));
      CpuCollectiveOptions options = GroupOptionsForTest(rank, 3, "tcp", Transport::kSockets);
      options.rendezvous = address;
      auto c = CreateCpuCollective(options);
      ASSERT_TRUE(c.ok()) << c.status();
      std::vector<float> data(1000, static_cast<float>(rank));
      EXPECT_TRUE((*c)->AllReduceSum(absl::MakeSpan(data)).ok());
      EXPECT_EQ(data[7], 3);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  over = true;
  strangers.join();
}

TEST(Rendezvous, OverIpv6) {
  auto listener = Listen("[::1]:0");
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here: " << listener.status();
  const std::string address = BoundAddress(*listener);
  listener->Close();
  std::thread host([=] {
    CpuCollectiveOptions options = GroupOptionsForTest(0, 2, "v6", Transport::kSockets);
    options.rendezvous = address;
    EXPECT_TRUE(CreateCpuCollective(options).ok());
  });
  CpuCollectiveOptions options = GroupOptionsForTest(1, 2, "v6", Transport::kSockets);
  options.rendezvous = address;
  const absl::Status joined = CreateCpuCollective(options).status();
  EXPECT_TRUE(joined.ok()) << address << ": " << joined;
  host.join();
}

TEST(Rendezvous, ASecretIsNeeded) {
  CpuCollectiveOptions options = GroupOptionsForTest(0, 2, "none", Transport::kAuto);
  options.nonce = "";
  EXPECT_TRUE(absl::IsInvalidArgument(CreateCpuCollective(options).status()));
}

TEST(Rendezvous, BadAddresses) {
  CpuCollectiveOptions options = GroupOptionsForTest(0, 2, "bad", Transport::kAuto);
  for (const std::string address : {"", "nowhere", ":80", "127.0.0.1:x", "127.0.0.1:70000", "unix:@"}) {
    options.rendezvous = address;
    const absl::Status status = CreateCpuCollective(options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << address << ": " << status;
  }
  options.rank = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(CreateCpuCollective(options).status()));
}

// Processes, not threads: one is killed in the middle, and the others learn who within a moment.
TEST(Rendezvous, AKilledProcessIsNamed) {
  for (const Transport transport : {Transport::kAuto, Transport::kSockets}) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < 3; ++rank) {
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        alarm(20);
        CpuCollectiveOptions options = GroupOptionsForTest(rank, 3, "", transport);
        options.rendezvous = absl::StrCat("unix:@manta-test-killed-", getppid());
        auto c = CreateCpuCollective(options);
        if (!c.ok()) _exit(10);
        std::vector<float> data(300000, 1);
        if (!(*c)->AllReduceSum(absl::MakeSpan(data)).ok() || data[7] != 3) _exit(11);
        if (rank == 1) kill(getpid(), SIGKILL);
        const absl::Time start = absl::Now();
        const absl::Status status = (*c)->AllReduceSum(absl::MakeSpan(data));
        if (absl::Now() - start > absl::Seconds(1)) _exit(12);
        const bool named = status.message().find("rank 1 is gone") != std::string::npos ||
                           status.message().find(rank == 0 ? "rank 2" : "rank 0") != std::string::npos;
        _exit(named ? 0 : 13);
      }
      children.push_back(pid);
    }
    for (int rank = 0; rank < 3; ++rank) {
      int status = 0;
      ASSERT_EQ(waitpid(children[rank], &status, 0), children[rank]);
      if (rank == 1) {
        EXPECT_TRUE(WIFSIGNALED(status));
      } else {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " status " << status;
      }
    }
  }
}

}  // namespace
}  // namespace manta::comm

// A proxy between callers and their actor cuts every connection again and again, at any byte: calls go on as if
// nothing had been: each runs once and is answered.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/call/call_fixture_for_test.h"
#include "common/call/core/outcome.h"
#include "gtest/gtest.h"

namespace manta::call {
namespace {

// Listens on a port of its own and passes everything on to another, until it cuts: then all connections are reset where
// they are, in the middle of a frame as a rule.
class CuttingProxy {
 public:
  explicit CuttingProxy(const std::string& target) {
    MANTA_CHECK(absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &target_port_)) << target;
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    MANTA_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    MANTA_CHECK(listen(listener_, 64) == 0);
    MANTA_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~CuttingProxy() {
    stop_ = true;
    thread_.join();
    close(listener_);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // From the next byte on that passes: of `bytes` more, both ways together.
  void CutAfter(int64_t bytes) { budget_ = bytes; }
  int cuts() const { return cuts_; }

 private:
  struct Pair {
    int caller, actor;
  };
  void Run() {
    std::vector<Pair> pairs;
    std::vector<char> buffer(64 << 10);
    while (!stop_) {
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs) {
        fds.push_back({pair.caller, POLLIN, 0});
        fds.push_back({pair.actor, POLLIN, 0});
      }
      if (poll(fds.data(), fds.size(), 5) < 0) continue;
      bool cut = false;
      for (size_t i = 0; i < pairs.size() && !cut; ++i) {
        cut |= !Pass(fds[1 + 2 * i], pairs[i].actor, buffer) || !Pass(fds[2 + 2 * i], pairs[i].caller, buffer);
      }
      if (cut) {
        for (const Pair& pair : pairs) Reset(pair);
        pairs.clear();
      }
      if ((fds[0].revents & POLLIN) != 0) {
        const int caller = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        const int actor = ConnectToTarget();
        pairs.push_back({caller, actor});
      }
    }
    for (const Pair& pair : pairs) Reset(pair);
  }
  // False where the connections are to be cut now, or have ended.
  bool Pass(const pollfd& from, int to, std::vector<char>& buffer) {
    if (from.revents == 0) return true;
    const ssize_t got = read(from.fd, buffer.data(), buffer.size());
    if (got <= 0) return false;
    const int64_t left = budget_.fetch_sub(got);
    const ssize_t pass = left < got ? std::max<int64_t>(left, 0) : got;
    for (ssize_t done = 0; done < pass;) {
      const ssize_t wrote = send(to, buffer.data() + done, pass - done, MSG_NOSIGNAL);
      if (wrote <= 0) return false;
      done += wrote;
    }
    if (pass == got) return true;
    ++cuts_;
    budget_ = INT64_MAX;
    return false;
  }
  int ConnectToTarget() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(target_port_));
    MANTA_CHECK(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    return fd;
  }
  static void Reset(const Pair& pair) {
    for (const int fd : {pair.caller, pair.actor}) {
      const linger hard{1, 0};
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
      close(fd);
    }
  }

  int target_port_ = 0, listener_ = -1, port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> budget_{INT64_MAX};
  std::atomic<int> cuts_{0};
  std::thread thread_;
};

TEST(ClientResume, CallsGoOnOverConnectionsThatAreCut) {
  std::mutex mu;
  std::map<int, int> executed;
  TestActor actor;
  actor.server.AddLane("work", {.concurrency = 2, .capacity = 4096});
  actor.server.AddMethod("count", {}, [&](CallContext& context, std::string* reply) {
    const std::string payload(context.payload());
    int number = -1;
    if (!absl::SimpleAtoi(payload.substr(0, payload.find(' ')), &number)) return absl::DataLossError("no number");
    {
      std::lock_guard lock(mu);
      ++executed[number];
    }
    if (number % 16 == 0) absl::SleepFor(absl::Milliseconds(3));  // some run while the connection is cut
    reply->assign(payload);
    return absl::OkStatus();
  });
  actor.Start();
  CuttingProxy proxy(actor.rpc->address());
  auto client = CallClient::Create({.token = TestActor::kToken, .reconnect_for = absl::Seconds(30)}).value();
  auto peer = client->Connect(proxy.address(), "a-0", 1).value();
  ASSERT_TRUE(peer->WaitOpen(absl::Seconds(20)).ok());

  const uint64_t seed = std::random_device()();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::atomic<bool> stop{false};
  std::atomic<int> next{0}, failed{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      while (!stop) {
        const int number = next++;
        const size_t size = random() % 8 == 0 ? random() % 60'000 : random() % 100;
        const std::string payload = absl::StrCat(number, " ", std::string(size, 'x'));
        const auto reply = peer->CallBlocking("count", payload, {.deadline = absl::Seconds(30)});
        if (reply.ok()) {
          EXPECT_EQ(*reply, payload);
        } else {
          ++failed;
          ADD_FAILURE() << "call " << number << ": " << reply.status();
        }
      }
    });
  }
  std::mt19937_64 random(seed);
  const absl::Time until = absl::Now() + absl::Seconds(4);
  while (absl::Now() < until) {
    proxy.CutAfter(static_cast<int64_t>(random() % 20'000));
    absl::SleepFor(absl::Milliseconds(20 + random() % 60));
  }
  proxy.CutAfter(INT64_MAX);
  stop = true;
  for (std::thread& caller : callers) caller.join();
  std::printf("%d calls, %d cuts\n", next.load(), proxy.cuts());
  EXPECT_GT(proxy.cuts(), 10);
  EXPECT_GT(next.load(), 200);
  EXPECT_EQ(failed.load(), 0);
  std::lock_guard lock(mu);
  for (int number = 0; number < next; ++number) EXPECT_EQ(executed[number], 1) << "call " << number;
}

}  // namespace
}  // namespace manta::call

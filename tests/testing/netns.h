// Two hosts on one machine, for tests that need root: a network namespace joined to this one by a cable (a veth pair)
// that can be cut, and relays, since servers listen on loopback alone and each namespace has its own.
//
//   if (auto why = NetworkNamespace::Missing(); !why.empty()) GTEST_SKIP() << "netns: " << why;
//   NetworkNamespace host("t1", 7);                    // 10.213.7.1 here, 10.213.7.2 there
//   host.Run({"/path/program", "--flag"});             // argv that runs it there
//   host.Cut();  host.Heal();
//
// A test that uses Relay calls MaybeRelay(argc, argv) first in its main.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "controller/node/process.h"
#include "gtest/gtest.h"

namespace manta::testing {

inline const char* IpTool() {
  for (const char* path : {"/sbin/ip", "/usr/sbin/ip", "/bin/ip"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return nullptr;
}

inline bool RunIp(std::vector<std::string> args) {
  auto ip = Process::Spawn({.executable = IpTool(), .args = std::move(args)});
  const auto exit = ip.ok() ? ip->WaitFor(absl::Seconds(10)) : std::nullopt;
  return exit.has_value() && exit->code == 0;
}

class NetworkNamespace {
 public:
  // Empty where they can be made.
  static std::string Missing() {
    if (geteuid() != 0) return "needs root";
    if (IpTool() == nullptr) return "iproute2 is not installed";
    const std::string probe = absl::StrCat("mantaprobe", getpid());
    if (!RunIp({"netns", "add", probe})) return "`ip netns add` is refused";
    RunIp({"netns", "del", probe});
    return "";
  }
  NetworkNamespace(const std::string& name, int subnet)
      : name_(absl::StrCat("manta", getpid(), name)),
        cable_(absl::StrCat("mv", getpid() % 100000, name)),
        prefix_(absl::StrCat("10.213.", subnet, ".")) {
    EXPECT_TRUE(RunIp({"netns", "add", name_}));
    EXPECT_TRUE(RunIp({"link", "add", cable_, "type", "veth", "peer", "name", "eth0", "netns", name_}));
    EXPECT_TRUE(RunIp({"addr", "add", here() + "/30", "dev", cable_}));
    EXPECT_TRUE(RunIp({"link", "set", cable_, "up"}));
    EXPECT_TRUE(RunIp({"-n", name_, "addr", "add", there() + "/30", "dev", "eth0"}));
    EXPECT_TRUE(RunIp({"-n", name_, "link", "set", "eth0", "up"}));
    EXPECT_TRUE(RunIp({"-n", name_, "link", "set", "lo", "up"}));
  }
  ~NetworkNamespace() {
    RunIp({"link", "del", cable_});
    RunIp({"netns", "del", name_});
  }
  std::string here() const { return prefix_ + "1"; }
  std::string there() const { return prefix_ + "2"; }
  // ip executes the program in its own place: the process is the program's.
  std::vector<std::string> Run(const std::vector<std::string>& command) const {
    std::vector<std::string> argv = {IpTool(), "netns", "exec", name_};
    argv.insert(argv.end(), command.begin(), command.end());
    return argv;
  }
  void Cut() { EXPECT_TRUE(RunIp({"link", "set", cable_, "down"})); }
  void Heal() { EXPECT_TRUE(RunIp({"link", "set", cable_, "up"})); }

 private:
  const std::string name_, cable_, prefix_;
};

namespace internal {
inline sockaddr_in AddressOf(const std::string& text) {
  const size_t colon = text.rfind(':');
  sockaddr_in address{};
  int port = 0;
  address.sin_family = AF_INET;
  inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr);
  (void)absl::SimpleAtoi(text.substr(colon + 1), &port);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}
inline void CopyAll(int from, int to) {
  char buffer[16 << 10];
  for (ssize_t n; (n = read(from, buffer, sizeof(buffer))) > 0;) {
    for (ssize_t done = 0; done < n;) {
      const ssize_t written = send(to, buffer + done, static_cast<size_t>(n - done), MSG_NOSIGNAL);
      if (written <= 0) break;
      done += written;
    }
  }
  shutdown(to, SHUT_WR);
}
}  // namespace internal

// `PROGRAM --relay LISTEN TARGET`: passes each connection on, for as long as it lives; never returns then.
inline void MaybeRelay(int argc, char** argv) {
  if (argc != 4 || std::string(argv[1]) != "--relay") return;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const sockaddr_in own = internal::AddressOf(argv[2]), target = internal::AddressOf(argv[3]);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0 || listen(listener, 64) != 0) _exit(1);
  std::printf("relaying\n");
  std::fflush(stdout);
  while (true) {
    const int in = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (in < 0) continue;
    std::thread([in, target] {
      const int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(out, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0) {
        std::thread back([&] { internal::CopyAll(out, in); });
        internal::CopyAll(in, out);
        back.join();
      }
      close(in);
      close(out);
    }).detach();
  }
}

}  // namespace manta::testing

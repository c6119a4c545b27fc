// Runs a function on every rank of a group, each in a thread of its own. For tests and benchmarks.
#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/comm/cpu_collective.h"

namespace manta::comm {

inline CpuCollectiveOptions GroupOptionsForTest(int rank, int size, const std::string& name,
                                                CpuCollectiveOptions::Transport transport) {
  CpuCollectiveOptions options;
  options.rank = rank;
  options.size = size;
  options.rendezvous = absl::StrCat("unix:@manta-test-", getpid(), "-", name);
  options.nonce = "0123456789abcdef";
  options.epoch = 1;
  options.join_timeout = absl::Seconds(20);
  options.timeout = absl::Seconds(20);
  options.transport = transport;
  return options;
}

// `body(collective)` on every rank; the status of joining, or what body returned, by rank.
inline std::vector<absl::Status> RunGroupForTest(int size, CpuCollectiveOptions::Transport transport,
                                                 const std::function<absl::Status(Collective&)>& body,
                                                 absl::Duration timeout = absl::Seconds(20)) {
  static std::atomic<int> next{0};
  const std::string name = absl::StrCat(next++);
  std::vector<absl::Status> statuses(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      CpuCollectiveOptions options = GroupOptionsForTest(rank, size, name, transport);
      options.timeout = timeout;
      auto collective = CreateCpuCollective(options);
      statuses[rank] = collective.ok() ? body(**collective) : collective.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace manta::comm

#include "common/base/process_info.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace manta {
namespace {

TEST(ProcessInfo, NamesTheHostAndMeasuresItself) {
  EXPECT_EQ(HostId(), internal::FindHostId());
  EXPECT_GT(HostId().size(), 30u);
  EXPECT_GT(ResidentBytes(), 1u << 20);
}

TEST(ProcessInfo, CountsWhatAProcessComputes) {
  const absl::Duration before = CpuTimeOf(getpid());
  const absl::Time until = absl::Now() + absl::Seconds(5);
  while (CpuTimeOf(getpid()) - before < absl::Milliseconds(50)) ASSERT_LT(absl::Now(), until);
  EXPECT_EQ(CpuTimeOf(1 << 30), absl::ZeroDuration());
}

TEST(ProcessInfo, APidFdTellsOfTheEnd) {
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    close(gate[1]);
    char c;
    _exit(read(gate[0], &c, 1) == 0 ? 0 : 1);
  }
  close(gate[0]);
  const int fd = OpenPidFd(pid);
  ASSERT_GE(fd, 0);
  pollfd poll_fd{fd, POLLIN, 0};
  EXPECT_EQ(poll(&poll_fd, 1, 0), 0);
  close(gate[1]);
  EXPECT_EQ(poll(&poll_fd, 1, 5000), 1);
  waitpid(pid, nullptr, 0);
  close(fd);
  EXPECT_EQ(OpenPidFd(pid), -1);
}

}  // namespace
}  // namespace manta

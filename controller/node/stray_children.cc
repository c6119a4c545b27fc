#include "controller/node/stray_children.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/kill.h"

namespace manta::node {

void EndStrayChildren(const std::function<bool(pid_t)>& known, absl::Duration limit) {
  const absl::Time give_up = absl::Now() + limit;
  // Of the main thread, to which orphans come.
  const std::string path = absl::StrCat("/proc/self/task/", getpid(), "/children");
  while (true) {
    std::ifstream children(path);
    bool any = false;
    for (pid_t pid; children >> pid;) {
      if (known(pid) || waitpid(pid, nullptr, WNOHANG) == pid) continue;
      KillProcess(pid, SIGKILL);
      any = true;
    }
    if (!any || absl::Now() >= give_up) return;
    absl::SleepFor(absl::Milliseconds(2));
  }
}

}  // namespace manta::node

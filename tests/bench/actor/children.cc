#include "tests/bench/actor/children.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace manta::bench {

Child::Child(const std::vector<std::string>& args) {
  int out[2], in[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(in, O_CLOEXEC) != 0) std::abort();
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>("bench_actor"));
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const int parent = getpid();
  pid_ = vfork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(out[1], 1);
    dup2(in[0], 0);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(out[1]);
  close(in[0]);
  out_ = fdopen(out[0], "r");
  in_ = fdopen(in[1], "w");
}

Child::~Child() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::fclose(out_);
  std::fclose(in_);
}

std::string Child::Read(const std::string& word) {
  char line[4096];
  while (std::fgets(line, sizeof(line), out_) != nullptr) {
    std::string text = line;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (text.rfind(word + " ", 0) == 0) return text.substr(word.size() + 1);
  }
  std::fprintf(stderr, "a child process ended before it said \"%s\"\n", word.c_str());
  std::exit(69);
}

void Child::Write(const std::string& line) {
  std::fprintf(in_, "%s\n", line.c_str());
  std::fflush(in_);
}

int Child::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

}  // namespace manta::bench

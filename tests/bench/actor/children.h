// Child processes of a benchmark: this program again with other arguments, speaking over stdout. Not thread-safe.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace manta::bench {

class Child {
 public:
  // Runs /proc/self/exe with `args`.
  explicit Child(const std::vector<std::string>& args);
  ~Child();  // kills it
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The rest of the next line that begins with `word`; ends the program where the child ends first.
  std::string Read(const std::string& word);
  void Write(const std::string& line);  // to its stdin
  int pid() const { return pid_; }
  int Wait();

 private:
  int pid_ = -1;
  FILE* out_ = nullptr;
  FILE* in_ = nullptr;
};

}  // namespace manta::bench

// MANTA_CHECK(condition) << "detail": ends the process, with file and line, when something impossible has happened.
// For errors of the world (files, peers, users) return a Status instead.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace manta::internal {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition) {
    stream_ << file << ":" << line << ": check failed: " << condition << " ";
  }
  [[noreturn]] ~CheckFailure() {
    std::fprintf(stderr, "%s\n", stream_.str().c_str());
    std::abort();
  }
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace manta::internal

#define MANTA_CHECK(condition)  \
  (condition) ? (void)0         \
              : ::manta::internal::Voidify() & ::manta::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

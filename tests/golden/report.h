// What the golden_* programs print: a line a comparison, then the totals; and the exit code that follows from them.
//
//   PASS|FAIL|SKIP group/case tensor max_diff tolerance [reason]
//   passed=P failed=F skipped=S
//
// Not thread-safe.
#pragma once

#include <cstdio>
#include <string>

namespace manta::golden {

class Report {
 public:
  // With `strict`, what is not implemented fails instead of being skipped.
  explicit Report(bool strict) : strict_(strict) {}

  void Compare(const std::string& name, const std::string& tensor, double max_diff, double tolerance,
               const std::string& note = "") {
    const bool ok = max_diff <= tolerance;  // false for NaN
    Line(ok ? "PASS" : "FAIL", name, tensor, max_diff, tolerance, note);
    ++(ok ? passed_ : failed_);
  }
  void Fail(const std::string& name, const std::string& tensor, const std::string& reason) {
    Line("FAIL", name, tensor, 0, 0, reason);
    ++failed_;
  }
  // Not implemented yet.
  void NotImplemented(const std::string& name, const std::string& reason) {
    if (strict_) return Fail(name, "-", reason);
    Skip(name, reason);
  }
  // Not compared for a reason that more code would not change (a faulty original, say).
  void Skip(const std::string& name, const std::string& reason) {
    Line("SKIP", name, "-", 0, 0, reason);
    ++skipped_;
  }
  // Prints the totals; the process's exit code.
  int Finish() const {
    std::printf("passed=%d failed=%d skipped=%d\n", passed_, failed_, skipped_);
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }
  int failed() const { return failed_; }

 private:
  static void Line(const char* verdict, const std::string& name, const std::string& tensor, double max_diff,
                   double tolerance, const std::string& note) {
    std::printf("%s %s %s %.3g %.3g%s%s\n", verdict, name.c_str(), tensor.c_str(), max_diff, tolerance,
                note.empty() ? "" : " ", note.c_str());
  }

  bool strict_;
  int passed_ = 0, failed_ = 0, skipped_ = 0;
};

inline constexpr int kUsageError = 64;

}  // namespace manta::golden

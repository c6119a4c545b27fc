// What `manta` prints. Results and progress go to stdout; errors and warnings to stderr. One thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "manta/v1/controller.pb.h"

namespace manta::cli {

// "manta: error: MESSAGE", then the last lines of the process that died, if it says. Returns the exit code.
int PrintError(const absl::Status& status);
void PrintWarning(const std::string& text);
// Of a death that is not the end: with the last lines of who died. `then`: what comes of it.
void PrintDeath(const absl::Status& death, const std::string& then);

// Shows a run's events: a line a step, and in a terminal a passing line that says what goes on now.
class ProgressView {
 public:
  ProgressView();
  void Show(const v1::RunEvent& event);
  // Erases the passing line.
  void Clear();

 private:
  const bool terminal_;
  bool passing_ = false;
};

}  // namespace manta::cli

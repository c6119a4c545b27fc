// Where tests find Python with grpcio, and the package that is under test.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "controller/node/process.h"
#include "tests/testing/build_dir.h"

namespace manta::testing {

struct PythonProgram {
  std::string python, path;  // PYTHONPATH
  std::string missing;       // why it cannot be used; empty: it can

  static PythonProgram Find() {
    const std::filesystem::path packages = BuildDir() / "python";
    PythonProgram program;
    program.path = absl::StrCat(packages.string(), ":", std::filesystem::absolute(".deps/python").string());
    const char* given = std::getenv("MANTA_PYTHON");
    for (const char* python : {given != nullptr ? given : "", "/usr/bin/python3", "/usr/local/bin/python3"}) {
      if (program.python.empty() && access(python, X_OK) == 0) program.python = python;
    }
    auto look = Process::Spawn({.executable = program.python,
                                .args = {"-c", "import grpc, google.protobuf"},
                                .env = {{"PYTHONPATH", program.path}, {"PATH", "/usr/bin:/bin"}}});
    const auto exit = look.ok() ? look->WaitFor(absl::Seconds(30)) : std::nullopt;
    if (!exit.has_value() || exit->code != 0) program.missing = absl::StrCat(program.python, " has no grpcio");
    return program;
  }
};

}  // namespace manta::testing

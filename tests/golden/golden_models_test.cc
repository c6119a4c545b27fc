// Runs golden_models over the golden values of this repository, and over the shared ones where they are.
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/shared_data.h"

namespace manta {
namespace {

int RunProgram(const std::string& arguments) {
  const char* build = std::getenv("MANTA_BUILD_DIR");
  const std::string program = std::string(build == nullptr ? "build/release" : build) + "/bin/golden_models ";
  const int status = std::system((program + arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(GoldenModelsTest, OwnValues) {
  EXPECT_EQ(RunProgram("tests/golden/models --strict > /dev/null"), 0);
}

// The kernels that machines without AVX-512, or without AVX2, run.
TEST(GoldenModelsTest, OwnValuesWithOtherInstructionSets) {
  setenv("MANTA_ISA", "avx2", 1);
  EXPECT_EQ(RunProgram("tests/golden/models --strict > /dev/null"), 0);
  setenv("MANTA_ISA", "generic", 1);
  EXPECT_EQ(RunProgram("tests/golden/models --strict > /dev/null"), 0);
  unsetenv("MANTA_ISA");
}

TEST(GoldenModelsTest, SharedValues) {
  MANTA_NEED_SHARED("goldens/models");
  EXPECT_EQ(RunProgram((testing::SharedDir() / "goldens/models").string() + " > /dev/null"), 0);
}

TEST(GoldenModelsTest, WrongUsage) {
  EXPECT_EQ(RunProgram("2> /dev/null"), 64);
  EXPECT_EQ(RunProgram("no/such/folder 2> /dev/null"), 64);
  EXPECT_EQ(RunProgram("tests/golden/models --device quantum 2> /dev/null"), 64);
}

}  // namespace
}  // namespace manta

// Runs golden_tokenizers over the golden values of this repository, and over the shared ones where they are.
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/shared_data.h"

namespace manta {
namespace {

int RunProgram(const std::string& arguments) {
  const char* build = std::getenv("MANTA_BUILD_DIR");
  const std::string program = std::string(build == nullptr ? "build/release" : build) + "/bin/golden_tokenizers ";
  const int status = std::system((program + arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(GoldenTokenizersTest, OwnValues) {
  EXPECT_EQ(RunProgram("tests/golden/tokenizers --data tests/golden/tokenizers/data --strict > /dev/null"), 0);
}

TEST(GoldenTokenizersTest, SharedValues) {
  MANTA_NEED_SHARED("goldens/tokenizers");
  const std::filesystem::path shared = testing::SharedDir();
  EXPECT_EQ(RunProgram((shared / "goldens/tokenizers").string() + " --data " + (shared / "data").string() +
                       " --strict > /dev/null"),
            0);
}

TEST(GoldenTokenizersTest, WrongUsage) {
  EXPECT_EQ(RunProgram("2> /dev/null"), 64);
  EXPECT_EQ(RunProgram("no/such/folder 2> /dev/null"), 64);
  EXPECT_EQ(RunProgram("tests/golden/tokenizers --data 2> /dev/null"), 64);
}

}  // namespace
}  // namespace manta

// Runs golden_templates over the golden values of this repository, and over the shared ones where they are.
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/shared_data.h"

namespace manta {
namespace {

int RunProgram(const std::string& arguments) {
  const char* build = std::getenv("MANTA_BUILD_DIR");
  const std::string program = std::string(build == nullptr ? "build/release" : build) + "/bin/golden_templates ";
  const int status = std::system((program + arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(GoldenTemplatesTest, OwnValues) {
  EXPECT_EQ(RunProgram("tests/golden/templates --strict > /dev/null"), 0);
}

TEST(GoldenTemplatesTest, SharedValues) {
  MANTA_NEED_SHARED("goldens/chat-templates");
  EXPECT_EQ(RunProgram((testing::SharedDir() / "goldens/chat-templates").string() + " --data " +
                       (testing::SharedDir() / "data").string() + " --strict > /dev/null"),
            0);
}

TEST(GoldenTemplatesTest, WrongUsage) {
  EXPECT_EQ(RunProgram("2> /dev/null"), 64);
  EXPECT_EQ(RunProgram("no/such/folder 2> /dev/null"), 64);
}

}  // namespace
}  // namespace manta

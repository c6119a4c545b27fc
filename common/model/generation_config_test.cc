#include "common/model/generation_config.h"

#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::model {
namespace {

using ::testing::ElementsAre;

class GenerationConfigTest : public testing::Test {
 protected:
  absl::StatusOr<std::vector<int32_t>> Read(const std::string& json) {
    const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "generation_config_test";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    if (!json.empty()) {
      EXPECT_TRUE(WriteFileAtomically(folder / "generation_config.json", json).ok());
    }
    const std::vector<int64_t> from_config = {7};
    absl::StatusOr<std::vector<int32_t>> ids = ReadEosIds(folder, from_config);
    std::filesystem::remove_all(folder);
    return ids;
  }
};

TEST_F(GenerationConfigTest, ANumberAListOrWhatTheConfigSays) {
  EXPECT_THAT(*Read(R"({"eos_token_id": 2})"), ElementsAre(2));
  EXPECT_THAT(*Read(R"({"eos_token_id": [151645, 151643]})"), ElementsAre(151645, 151643));
  EXPECT_THAT(*Read(R"({"eos_token_id": null})"), ElementsAre(7));
  EXPECT_THAT(*Read("{}"), ElementsAre(7));
  EXPECT_THAT(*Read(""), ElementsAre(7));
}

TEST_F(GenerationConfigTest, BrokenFilesNameFileAndField) {
  EXPECT_THAT(std::string(Read(R"({"eos_token_id": "two"})").status().message()),
              testing::HasSubstr("generation_config.json: eos_token_id: expected"));
  EXPECT_THAT(std::string(Read("{").status().message()), testing::HasSubstr("not a JSON object"));
}

}  // namespace
}  // namespace manta::model

#include "common/config/key_docs.h"

#include "common/base/file.h"
#include "common/config/keys.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::config {
namespace {

using ::testing::HasSubstr;

TEST(KeyDocsTest, TheDocumentIsUpToDate) {
  const auto text = ReadFile("docs/configuration.md", uint64_t{1} << 20);  // ctest runs in the repository's root
  ASSERT_TRUE(text.ok()) << text.status();
  const auto fresh = WithKeyTables(*text);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_TRUE(*text == *fresh) << "run build/bin/config_docs docs/configuration.md";
}

TEST(KeyDocsTest, DefaultsOfEachAlgorithmAndTheClass) {
  const std::string tables = KeyTables();
  EXPECT_THAT(tables, HasSubstr("| `policy.train_global_batch_size` | `512`; sft: `32` | integer ≥ 1, ≤ 1048576 | implemented |"));
  EXPECT_THAT(tables, HasSubstr("| `grpo.max_rollout_turns` | `1` |  | pending |"));
  EXPECT_THAT(tables, HasSubstr("### `ppo`"));
}

TEST(KeyDocsTest, EveryKeyOfADatasetIsThereOnce) {
  const std::string tables = KeyTables();
  EXPECT_THAT(tables, HasSubstr("`data.train.data_path`"));
  EXPECT_THAT(tables, Not(HasSubstr("`data.validation.data_path`")));
  EXPECT_EQ(KeyMeaning("data.validation.data_path"), KeyMeaning("data.train.data_path"));
}

TEST(KeyDocsTest, ADocumentWithoutTheMarkerIsRefused) {
  EXPECT_FALSE(WithKeyTables("# Configuration\n").ok());
}

}  // namespace
}  // namespace manta::config

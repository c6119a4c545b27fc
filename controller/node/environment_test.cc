#include "controller/node/environment.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::node {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

TEST(Environment, LetsThroughWhatIsListed) {
  v1::StartActor start;
  start.add_env_allow("MY_*");
  start.add_env_allow("EXACT");
  const auto env = BuildEnvironment({"PATH=/bin", "LC_ALL=C", "OMP_NUM_THREADS=2", "MY_A=1", "EXACT=2", "EXACTLY=3",
                                     "AWS_REGION=x", "MANTA_TEST_MARK=m", "broken", "=odd", "HOME=/h=e"},
                                    start)
                       .variables;
  EXPECT_THAT(env, ::testing::UnorderedElementsAre(Pair("PATH", "/bin"), Pair("LC_ALL", "C"),
                                                   Pair("OMP_NUM_THREADS", "2"), Pair("MY_A", "1"), Pair("EXACT", "2"),
                                                   Pair("MANTA_TEST_MARK", "m"), Pair("HOME", "/h=e")));
}

TEST(Environment, HoldsSecretsBackUnlessNamed) {
  EXPECT_TRUE(SoundsSecret("HF_TOKEN"));
  EXPECT_TRUE(SoundsSecret("my_api_key"));
  EXPECT_TRUE(SoundsSecret("DB_PASSWORD"));
  EXPECT_FALSE(SoundsSecret("TOKENIZERS_PARALLELISM"));
  EXPECT_FALSE(SoundsSecret("MONKEY"));
  v1::StartActor start;
  start.add_env_allow("WANDB_*");
  start.add_env_allow("OTHER_KEY");
  const auto result = BuildEnvironment({"HF_TOKEN=abc", "WANDB_API_KEY=def", "OTHER_KEY=ghi", "HF_HOME=/x"}, start);
  EXPECT_THAT(result.variables, ::testing::UnorderedElementsAre(Pair("OTHER_KEY", "ghi"), Pair("HF_HOME", "/x")));
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_THAT(result.notes[0], HasSubstr("HF_TOKEN, WANDB_API_KEY"));
  EXPECT_THAT(result.notes[0], Not(HasSubstr("abc")));
}

TEST(Environment, TellsARankItsPlace) {
  v1::StartActor start;
  start.set_world_size(8);
  start.set_rank(5);
  start.set_local_rank(1);
  start.set_local_world_size(4);
  start.set_node_rank(1);
  start.set_master("[fd00::1]:29500");
  start.add_ports(20000);
  start.add_ports(20007);
  (*start.mutable_env())["RANK"] = "mine";
  (*start.mutable_env())["CUDA_VISIBLE_DEVICES"] = "GPU-a,GPU-b";
  const auto result = BuildEnvironment({"RANK=agent", "CUDA_VISIBLE_DEVICES=7"}, start);
  EXPECT_THAT(result.variables, Contains(Pair("RANK", "mine")));
  EXPECT_THAT(result.variables, Contains(Pair("WORLD_SIZE", "8")));
  EXPECT_THAT(result.variables, Contains(Pair("LOCAL_RANK", "1")));
  EXPECT_THAT(result.variables, Contains(Pair("NODE_RANK", "1")));
  EXPECT_THAT(result.variables, Contains(Pair("MASTER_ADDR", "fd00::1")));
  EXPECT_THAT(result.variables, Contains(Pair("MASTER_PORT", "29500")));
  EXPECT_THAT(result.variables, Contains(Pair("MANTA_PORTS", "20000,20007")));
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_THAT(result.notes[0], HasSubstr("CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"));
}

}  // namespace
}  // namespace manta::node

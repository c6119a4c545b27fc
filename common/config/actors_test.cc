#include <filesystem>

#include "common/config/run_config.h"
#include "common/config/tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

absl::StatusOr<RunConfig> Parse(const std::string& text) {
  absl::StatusOr<Tree> tree = TreeFromText(text);
  if (!tree.ok()) return tree.status();
  return ParseRunConfig(*tree);
}

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<RunConfig> run = Parse(text);
  return run.ok() ? "ok" : std::string(run.status().message());
}

TEST(ActorsConfigTest, AGroupHasItsDefaults) {
  const auto run = Parse("actors:\n  counter:\n    command: [sh, -c, exit 0]\n");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->algorithm, Algorithm::kActors);
  EXPECT_EQ(run->logger.log_dir, "logs");
  ASSERT_EQ(run->actors.size(), 1u);
  const ActorGroupConfig& group = run->actors[0];
  EXPECT_EQ(group.role, "counter");
  EXPECT_EQ(group.executable.back(), 'h');  // /bin/sh, out of PATH
  EXPECT_EQ(group.executable.front(), '/');
  EXPECT_THAT(group.args, ElementsAre("-c", "exit 0"));
  EXPECT_EQ(group.working_dir, std::filesystem::current_path().string());
  EXPECT_EQ(group.ranks, 1);
  EXPECT_EQ(group.cpus, 1);
  EXPECT_EQ(group.restart.policy, "fail_job");
  EXPECT_FALSE(group.name.has_value());
}

TEST(ActorsConfigTest, EveryKeyIsRead) {
  const auto run = Parse(
      "actors:\n  a:\n    command: [/bin/sh]\n    args: [x, 1]\n    working_dir: /tmp\n    env: {PORT: 80, B: ''}\n"
      "    env_allow: [KEY, 'AWS_*']\n    ranks: 4\n    cpus: 2\n    gpus: 1\n    gpu_slot: s\n    memory: 2 GiB\n"
      "    labels: {zone: a}\n    avoid: [n1]\n    strategy: strict_spread\n    segment: 2\n    placement_timeout_s: "
      "5\n"
      "    start_timeout_s: 1.5\n    progress_timeout_s: 9\n    name: A\n    detached: true\n    ports: 2\n"
      "    torchrun: true\n    prefork: true\n    restart: {policy: replace_one, max_restarts: -1, backoff_s: 0.1}\n"
      "    limits: {file_size: 10MiB, open_files: 100}\n");
  ASSERT_TRUE(run.ok()) << run.status();
  const ActorGroupConfig& g = run->actors[0];
  EXPECT_THAT(g.args, ElementsAre("x", "1"));
  EXPECT_EQ(g.working_dir, "/tmp");
  EXPECT_THAT(g.env, ElementsAre(Pair("B", ""), Pair("PORT", "80")));
  EXPECT_THAT(g.env_allow, ElementsAre("KEY", "AWS_*"));
  EXPECT_EQ(g.memory_bytes, uint64_t{2} << 30);
  EXPECT_THAT(g.labels, ElementsAre(Pair("zone", "a")));
  EXPECT_THAT(g.avoid, ElementsAre("n1"));
  EXPECT_EQ(g.strategy, "strict_spread");
  EXPECT_EQ(g.start_timeout_s, 1.5);
  EXPECT_EQ(g.name, "A");
  EXPECT_EQ(g.restart.max_restarts, -1);
  EXPECT_EQ(g.file_bytes, uint64_t{10} << 20);
  EXPECT_EQ(g.open_files, 100);
  EXPECT_TRUE(g.detached && g.torchrun && g.prefork && !g.plain);
}

TEST(ActorsConfigTest, WhatIsWrongIsSaidWithItsLine) {
  const auto with = [](const std::string& line) { return "actors:\n  a:\n    command: [sh]\n    " + line + "\n"; };
  EXPECT_THAT(ErrorOf("actors:\n  a:\n    comand: [sh]\n"),
              HasSubstr("text:3: unknown key 'actors.a.comand'; did you mean 'actors.a.command'?"));
  EXPECT_THAT(ErrorOf("actors:\n  a:\n    ranks: 2\n"), HasSubstr("actors.a.command: is missing"));
  EXPECT_THAT(ErrorOf("actors: {}\n"), HasSubstr("actors: names no group"));
  EXPECT_THAT(ErrorOf("actors:\n  a-b:\n    command: [sh]\n"),
              HasSubstr("text:2: actors.a-b: a group's name has letters"));
  EXPECT_THAT(ErrorOf("actors:\n  a:\n    command: [no-such-program]\n"),
              HasSubstr("text:3: actors.a.command: there is no program 'no-such-program' in PATH"));
  EXPECT_THAT(ErrorOf("actors:\n  a:\n    command: [./nowhere/x]\n"), HasSubstr("there is no program './nowhere/x'"));
  EXPECT_THAT(ErrorOf("actors:\n  a:\n    command: [/etc/passwd]\n"),
              HasSubstr("is not a program that may be executed"));
  EXPECT_THAT(ErrorOf(with("ranks: 0")), HasSubstr("text:4: actors.a.ranks: expected an integer of at least 1"));
  EXPECT_THAT(ErrorOf(with("memory: lots")), HasSubstr("text:4: actors.a.memory: expected a size as 512MiB or 2GiB"));
  EXPECT_THAT(ErrorOf(with("env: {A: [1]}")), HasSubstr("actors.a.env: A: expected text, got a list"));
  EXPECT_THAT(ErrorOf(with("strategy: wide")), HasSubstr("expected one of pack, spread, strict_pack, strict_spread"));
  EXPECT_THAT(ErrorOf(with("restart: {max_restarts: 0}")), HasSubstr("0 is restart.policy: fail_job"));
  EXPECT_THAT(ErrorOf(with("plain: true\n    progress_timeout_s: 3")), HasSubstr("reports no progress"));
  EXPECT_THAT(ErrorOf("acters:\n  a: 1\n"), HasSubstr("did you mean 'actors'?"));
}

TEST(ActorsConfigTest, WhatWasResolvedReadsBackAsItIs) {
  const auto tree = TreeFromText("actors:\n  a:\n    command: [sh]\n    working_dir: sub\n");
  ASSERT_TRUE(tree.ok()) << tree.status();
  const auto again = TreeFromText(tree->ToYaml());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(tree->ToYaml(), again->ToYaml());
}

TEST(ActorsConfigTest, BesideAnAlgorithmTheyDoNotReplaceIt) {
  const auto tree = TreeFromText(
      "grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 4}\n"
      "policy: {model_name: m, train_global_batch_size: 32}\n"
      "data: {train: {dataset_name: ResponseDataset, data_path: t.jsonl}}\n"
      "actors: {judge: {command: [sh]}}\n");
  ASSERT_TRUE(tree.ok()) << tree.status();
  const auto run = ParseRunConfig(*tree);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->algorithm, Algorithm::kGrpo);
  EXPECT_EQ(run->actors.size(), 1u);
}

}  // namespace
}  // namespace manta::config

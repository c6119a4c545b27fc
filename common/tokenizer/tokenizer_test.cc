#include "common/tokenizer/tokenizer.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/base/file.h"
#include "common/tokenizer/test_tokenizers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/shared_data.h"

namespace manta::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> Small() {
  auto tokenizer = Tokenizer::FromJson(SmallJson());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *tokenizer;
}

std::string ErrorOf(std::string_view edit, std::string_view with) {
  const auto tokenizer = Tokenizer::FromJson(SmallJson(edit, with));
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument) << edit << " -> " << with;
  return std::string(tokenizer.status().message());
}

TEST(TokenizerTest, EncodesAndDecodes) {
  const auto tokenizer = Small();
  EXPECT_THAT(*tokenizer->Encode("hello he", false), ElementsAre(11, 7, 8, 9));
  EXPECT_THAT(*tokenizer->Encode("é", true), ElementsAre(0, 1, 2));
  EXPECT_THAT(*tokenizer->Encode("he</s>l", false), ElementsAre(9, 12, 6));
  EXPECT_THAT(*tokenizer->Encode("z", false), ElementsAre(0)) << "a byte without a token: unknown";
  EXPECT_EQ(tokenizer->Decode(Ids{0, 11, 7, 8, 1, 2, 12}, true), "hello é");
  EXPECT_EQ(tokenizer->Decode(Ids{0, 11, 7, 8, 1, 2, 12}, false), "<s>hello é</s>");
  EXPECT_EQ(tokenizer->Decode(Ids{1, 9, 9999, -5}, false), "\xEF\xBF\xBDhe");
  EXPECT_THAT(*tokenizer->Encode("", true), ElementsAre(0));
}

TEST(TokenizerTest, Names) {
  const auto tokenizer = Small();
  EXPECT_EQ(tokenizer->vocab_size(), 13);
  EXPECT_EQ(tokenizer->IdOf("</s>"), 12);
  EXPECT_EQ(tokenizer->IdOf("hell"), 11);
  EXPECT_EQ(tokenizer->IdOf("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->TokenOf(8), "▁");
  EXPECT_EQ(tokenizer->TokenOf(13), std::nullopt);
  EXPECT_EQ(tokenizer->TokenOf(-1), std::nullopt);
  EXPECT_TRUE(tokenizer->IsSpecial(12));
  EXPECT_FALSE(tokenizer->IsSpecial(11));
  EXPECT_EQ(tokenizer->eos_id(), std::nullopt);
}

TEST(TokenizerTest, TextThatIsNotUtf8IsRefused) {
  const auto ids = Small()->Encode("he\xFFllo", false);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("byte 2"));
}

TEST(TokenizerTest, BrokenFilesGiveOneClearError) {
  const auto error = Tokenizer::FromJson("{\n\"model\": {]", "x/tokenizer.json").status();
  EXPECT_THAT(std::string(error.message()), HasSubstr("x/tokenizer.json: not JSON: parse error at line 2, column 11"));
  EXPECT_THAT(std::string(Tokenizer::FromJson("[]").status().message()), HasSubstr("expected an object, found a list"));
  EXPECT_THAT(std::string(Tokenizer::FromJson("").status().message()), HasSubstr("not JSON"));
  EXPECT_THAT(std::string(Tokenizer::FromJson("{}").status().message()), HasSubstr("\"model\" is missing"));
  EXPECT_THAT(std::string(Tokenizer::FromJson("{\"model\": {\"vocab\": {\"\xFF\": 0}}}").status().message()),
              HasSubstr("not JSON"));

  EXPECT_THAT(ErrorOf("\"BPE\"", "\"WordPiece\""), HasSubstr("model: models of type WordPiece are not supported"));
  EXPECT_THAT(ErrorOf("\"vocab\"", "\"words\""), HasSubstr("model: \"vocab\" is missing"));
  EXPECT_THAT(ErrorOf("\"o\": 7", "\"o\": 6"), HasSubstr("model.vocab: \"l\" and \"o\" have the same id, 6"));
  EXPECT_THAT(ErrorOf("\"o\": 7", "\"l\": 7"), HasSubstr("model.vocab: \"l\" appears twice"));
  EXPECT_THAT(ErrorOf("\"o\": 7", "\"o\": -7"), HasSubstr("model.vocab: the id of \"o\" is not a whole number from 0"));
  EXPECT_THAT(ErrorOf("\"o\": 7", "\"o\": 99999999999"), HasSubstr("the id of \"o\""));
  EXPECT_THAT(ErrorOf("\"o\": 7", "\"o\": \"7\""), HasSubstr("the id of \"o\""));
  EXPECT_THAT(ErrorOf("\"h e\"", "\"h  e\""), HasSubstr("model.merges[0]: expected"));
  EXPECT_THAT(ErrorOf("\"l l\"", "7"), HasSubstr("model.merges[1]: expected"));
  EXPECT_THAT(ErrorOf("[\"he\", \"ll\"]", "[\"he\", \"lo\"]"),
              HasSubstr("model.merges[2]: \"lo\" is not in the vocabulary"));
  EXPECT_THAT(ErrorOf("[\"he\", \"ll\"]", "[\"he\", \"h\"]"),
              HasSubstr("model.merges[2]: \"heh\" is not in the vocabulary"));
  EXPECT_THAT(ErrorOf("\"byte_fallback\": true", "\"byte_fallback\": 1"),
              HasSubstr("model.byte_fallback: expected true or false, found a number"));
  EXPECT_THAT(ErrorOf("\"byte_fallback\": true", "\"dropout\": 0.1"), HasSubstr("model.dropout"));
  EXPECT_THAT(ErrorOf("\"id\": 12", "\"id\": 14"),
              HasSubstr("added_tokens[1]: \"</s>\" has id 14, but the next free id is 12"));
  EXPECT_THAT(ErrorOf("\"id\": 12", "\"id\": 0"), HasSubstr("added_tokens[1]: \"</s>\" has the same id as \"<s>\""));
  EXPECT_THAT(ErrorOf("\"id\": 12", "\"id\": 5"), HasSubstr("which model.vocab gives to \"e\""));
  EXPECT_THAT(ErrorOf("\"</s>\"", "\"<s>\""), HasSubstr("added_tokens[1]: \"<s>\" appears twice"));
  EXPECT_THAT(ErrorOf("\"</s>\"", "\"\""), HasSubstr("added_tokens[1].content: is empty"));
  EXPECT_THAT(ErrorOf("\"normalizer\": {\"type\": \"Replace\"", "\"normalizer\": {\"type\": \"Precompiled\""),
              HasSubstr("normalizer: the normalizer Precompiled is not supported"));
  EXPECT_THAT(ErrorOf("\"pre_tokenizer\": null", R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"},
                       "behavior": "Isolated"})"),
              HasSubstr("pre_tokenizer.pattern.Regex: missing closing parenthesis"));
  EXPECT_THAT(ErrorOf("\"pre_tokenizer\": null", R"("pre_tokenizer": {"type": "Sequence", "pretokenizers":
                       [{"type": "Digits"}, {"type": "Split", "pattern": {"String": "a"}, "behavior": "Cut"}]})"),
              HasSubstr("pre_tokenizer.pretokenizers[1].behavior: unknown behavior \"Cut\""));
  EXPECT_THAT(ErrorOf("\"pre_tokenizer\": null", R"("pre_tokenizer": {"type": "Metaspace", "replacement": "ab"})"),
              HasSubstr("pre_tokenizer.replacement: expected a single character"));
  EXPECT_THAT(ErrorOf("{\"<s>\": {\"id\"", "{\"<x>\": {\"id\""), HasSubstr("post_processor.special_tokens: \"<s>\""));
  EXPECT_THAT(ErrorOf("\"ByteFallback\"", "\"CTC\""),
              HasSubstr("decoder.decoders[1]: the decoder CTC is not supported"));
}

TEST(TokenizerTest, MissingFolderIsNotFound) {
  EXPECT_EQ(Tokenizer::Load("/nonexistent").status().code(), absl::StatusCode::kNotFound);
}

TEST(TokenizerTest, SpecialTokensComeFromTheFilesBeside) {
  const std::filesystem::path dir = std::filesystem::path(::testing::TempDir()) / "manta_tokenizer_test";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "tokenizer.json") << SmallJson();
  std::ofstream(dir / "tokenizer_config.json")
      << R"({"bos_token": {"content": "<s>"}, "pad_token": null, "add_bos_token": true, "model_max_length": )"
      << "1000000000000000019884624838656}";
  std::ofstream(dir / "special_tokens_map.json") << R"({"eos_token": "</s>", "bos_token": "h"})";
  const auto tokenizer = Tokenizer::Load(dir);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos_id(), 0);
  EXPECT_EQ((*tokenizer)->eos_id(), 12);
  EXPECT_EQ((*tokenizer)->pad_id(), std::nullopt);
  EXPECT_EQ((*tokenizer)->special_tokens().add_bos, true);
  EXPECT_THAT((*tokenizer)->special_tokens().Named(),
              ElementsAre(std::pair("bos_token", "<s>"), std::pair("eos_token", "</s>")));
  std::ofstream(dir / "tokenizer_config.json") << R"({"bos_token": 7})";
  EXPECT_THAT(std::string(Tokenizer::Load(dir).status().message()),
              HasSubstr("tokenizer_config.json: bos_token: expected a token"));
  std::filesystem::remove_all(dir);
}

TEST(TokenizerTest, ManyThreadsShareOne) {
  const auto tokenizer = Small();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 500; ++n) EXPECT_EQ(tokenizer->Encode("hello hello", false)->size(), 5u);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Texts and ids of tokenizers in use; the texts are those of llama.cpp's tests.
class TokenizerVectorsTest : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(TokenizerVectorsTest, Agree) {
  MANTA_NEED_SHARED("data/tokenizer-vectors");
  const auto [vectors, folder] = GetParam();
  const auto dir = testing::SharedDir() / "data";
  const auto tokenizer = Tokenizer::Load(dir / folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto base = dir / "tokenizer-vectors" / (std::string("ggml-vocab-") + vectors + ".gguf");
  const auto input = ReadFile(base.string() + ".inp");
  const auto output = ReadFile(base.string() + ".out");
  ASSERT_TRUE(input.ok() && output.ok());
  std::istringstream lines(*output);
  const std::string marker = "\n__ggml_vocab_test__\n";
  int cases = 0;
  for (size_t at = 0; at <= input->size(); ++cases) {
    const size_t end = std::min(input->find(marker, at), input->size());
    const std::string text = input->substr(at, end - at);
    at = end + marker.size();
    std::string line;
    if (!std::getline(lines, line)) break;  // the last text may be the file's end
    std::istringstream numbers(line);
    const Ids want{std::istream_iterator<int32_t>(numbers), {}};
    EXPECT_EQ(*(*tokenizer)->Encode(text, false), want) << "text: " << text;
  }
  EXPECT_GT(cases, 40);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerVectorsTest,
                         ::testing::Values(std::pair("gpt-2", "gpt2"), std::pair("llama-bpe", "llama3"),
                                           std::pair("qwen2", "qwen2")));

}  // namespace
}  // namespace manta::tokenizer

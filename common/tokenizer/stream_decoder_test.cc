#include "common/tokenizer/stream_decoder.h"

#include "common/tokenizer/test_tokenizers.h"
#include "gtest/gtest.h"

namespace manta::tokenizer {
namespace {

std::shared_ptr<const Tokenizer> Load(const std::string& json) {
  auto tokenizer = Tokenizer::FromJson(json);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *tokenizer;
}

// Byte-level, with a token for each byte of "é" and one for "a".
std::shared_ptr<const Tokenizer> Bytes() {
  return Load(R"({"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"},
                  "model": {"vocab": {"a": 0, "Ã": 1, "©": 2, "Ġ": 3}, "merges": []}})");
}

TEST(StreamDecoderTest, BytesWaitForTheirCharacter) {
  StreamDecoder stream(Bytes(), true);
  EXPECT_EQ(stream.Push(0), "a");
  EXPECT_EQ(stream.Push(1), "");
  EXPECT_EQ(stream.Push(2), "é");
  EXPECT_EQ(stream.Push(3), " ");
  EXPECT_EQ(stream.Push(1), "");
  EXPECT_EQ(stream.Push(0),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream.Push(1), "");
  EXPECT_EQ(stream.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.Push(0), "a") << "starts anew";
}

TEST(StreamDecoderTest, ByteFallbackTokensWaitToo) {
  StreamDecoder stream(Load(SmallJson()), true);
  EXPECT_EQ(stream.Push(9), "he");
  EXPECT_EQ(stream.Push(8), " ");
  EXPECT_EQ(stream.Push(1), "");
  EXPECT_EQ(stream.Push(12), "") << "a special token is not seen";
  EXPECT_EQ(stream.Push(2), "é");
  EXPECT_EQ(stream.Push(3), "");
  EXPECT_EQ(stream.Push(6), "\xEF\xBF\xBDl");
  EXPECT_EQ(stream.Push(3), "");
  EXPECT_EQ(stream.Finish(), "\xEF\xBF\xBD");
}

TEST(StreamDecoderTest, LeadingSpaceIsStrippedOnlyAtTheBeginning) {
  StreamDecoder stream(Load(SmallJson("{\"type\": \"Fuse\"}", R"({"type": "Fuse"},
                                      {"type": "Strip", "content": " ", "start": 1, "stop": 0})")),
                       false);
  EXPECT_EQ(stream.Push(8), "");
  EXPECT_EQ(stream.Push(9), "he");
  EXPECT_EQ(stream.Push(8), " ");
  EXPECT_EQ(stream.Push(8), " ");
  EXPECT_EQ(stream.Push(9), "he");
}

TEST(StreamDecoderTest, EndlessInvalidBytesAreNotHeldBack) {
  StreamDecoder stream(Load(SmallJson()), true);
  std::string text;
  for (int i = 0; i < 1000; ++i) text += stream.Push(2);
  EXPECT_EQ(text.size(), 3000u);
}

}  // namespace
}  // namespace manta::tokenizer

// Reading and writing safetensors: what is written is read back, and every way to break a file gives its one clear
// error.
#include <fstream>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/checkpoint/reader.h"
#include "common/checkpoint/writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              (std::string("checkpoint_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void Write(const std::string& name, const std::string& content) { std::ofstream(folder_ / name) << content; }
  fs::path folder_;
};

std::string File(const std::string& json, const std::string& data) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(json.size() >> (8 * i));
  return bytes + json + data;
}

std::string ErrorOf(const std::string& bytes) {
  const auto header = ParseSafetensorsHeader(bytes, bytes.size(), "x.safetensors");
  if (header.ok()) return "";
  EXPECT_TRUE(absl::IsInvalidArgument(header.status()));
  EXPECT_THAT(std::string(header.status().message()), HasSubstr("x.safetensors: "));
  return std::string(header.status().message());
}

TEST_F(CheckpointTest, RoundTrip) {
  const std::string a(24, 'a'), b(6, 'b'), scalar(8, 's');
  ASSERT_TRUE(WriteCheckpoint(folder_, {{"a.weight", DType::kF32, {2, 3}, a},
                                        {"b", DType::kBF16, {3}, b},
                                        {"scalar", DType::kI64, {}, scalar},
                                        {"empty", DType::kF32, {0, 5}, ""}})
                  .ok());
  const auto checkpoint = Checkpoint::Open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->names(), ElementsAre("a.weight", "b", "empty", "scalar"));
  EXPECT_EQ(checkpoint->Find("a.weight")->bytes, a);
  EXPECT_EQ(checkpoint->Find("b")->bytes, b);
  EXPECT_EQ(checkpoint->Find("b")->info->dtype, DType::kBF16);
  EXPECT_EQ(checkpoint->Find("scalar")->info->numel(), 1);
  EXPECT_EQ(checkpoint->Find("empty")->info->numel(), 0);
  EXPECT_EQ(checkpoint->Find("c"), nullptr);
  EXPECT_THAT(checkpoint->metadata(), ElementsAre(std::pair("format", "pt")));
  // The header ends on a multiple of 8, and nothing temporary is left.
  EXPECT_EQ((fs::file_size(folder_ / "model.safetensors") - 24 - 6 - 8) % 8, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(CheckpointTest, ShardsAndStaleFiles) {
  const std::string bytes(400, 'x');
  const std::vector<TensorSource> tensors = {
      {"a", DType::kF32, {100}, bytes}, {"b", DType::kF32, {100}, bytes}, {"c", DType::kF32, {100}, bytes}};
  ASSERT_TRUE(WriteCheckpoint(folder_, tensors).ok());
  ASSERT_TRUE(WriteCheckpoint(folder_, tensors, 800).ok());
  EXPECT_FALSE(fs::exists(folder_ / "model.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "model-00002-of-00002.safetensors"));
  auto checkpoint = Checkpoint::Open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->names().size(), 3);
  fs::remove(folder_ / "model-00002-of-00002.safetensors");
  checkpoint = Checkpoint::Open(folder_);
  EXPECT_THAT(std::string(checkpoint.status().message()),
              HasSubstr("tensor \"c\": shard model-00002-of-00002.safetensors is missing"));
}

TEST_F(CheckpointTest, BrokenIndex) {
  ASSERT_TRUE(WriteSafetensors(folder_ / "s.safetensors", {{"a", DType::kU8, {1}, "x"}}).ok());
  const std::pair<const char*, const char*> cases[] = {
      {R"({"weight_map": {"a": "s.safetensors", "b": "s.safetensors"}})",
       "tensor \"b\": not in its shard s.safetensors"},
      {R"({"weight_map": {"a": "s.safetensors", "a": "s.safetensors"}})", "duplicate key \"a\""},
      {R"({"weight_map": {"a": "../s.safetensors"}})", "expected a file name in the same folder"},
      {R"({"weight_map": {"a": 1}})", "expected a file name"},
      {R"({"weight_map": {}})", "at least one tensor"},
      {R"({})", "weight_map: expected an object"},
      {R"({"weight_map")", "not JSON"},
  };
  for (const auto& [text, message] : cases) {
    Write("model.safetensors.index.json", text);
    EXPECT_THAT(std::string(Checkpoint::Open(folder_).status().message()), HasSubstr(message));
  }
}

TEST_F(CheckpointTest, NoWeights) {
  EXPECT_THAT(std::string(Checkpoint::Open(folder_).status().message()),
              HasSubstr("no weights: expected model.safetensors"));
  EXPECT_TRUE(absl::IsNotFound(Checkpoint::Open(folder_ / "none").status()));
}

TEST(SafetensorsTest, BrokenHeaders) {
  const std::string f4 = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_EQ(ErrorOf(File(f4 + "}", "1234")), "");
  EXPECT_EQ(ErrorOf(File(f4 + "}   ", "1234")), "");
  EXPECT_EQ(ErrorOf(File(R"({})", "")), "");
  const std::pair<std::string, const char*> cases[] = {
      {"", "truncated: 0 bytes, expected 8"},
      {"1234567", "truncated: 7 bytes"},
      {File(f4 + "}", "123"), "tensor \"a\": ends at byte 4 of the data, the file has only 3: truncated"},
      {File(f4 + "}", "12345"), "1 bytes after the last tensor belong to none"},
      {File(f4, "1234"), "bad JSON in the header"},
      {File("[]", ""), "does not start with {"},
      {File("", ""), "does not start with {"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "above its cap of 100000000"},
      {std::string("\x40\0\0\0\0\0\0\0{}", 10), "the header should have 64 bytes, 2 are there"},
      {File("{\"a\xff\":1}", ""), "not UTF-8 at byte 3"},
      {File(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "1234"), "\"F31\" is no type of the format"},
      {File(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "1234"), "dtype: absent"},
      {File(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "1234"), "shape: absent"},
      {File(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"), "data_offsets: absent"},
      {File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"),
       "hold 4 bytes, expected 8 for shape [2] of F32"},
      {File(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234"), "got a negative number"},
      {File(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", "1234"), "got a number with a fraction"},
      {File(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "1234"), "too large"},
      {File(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234"), "run backwards"},
      {File(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "1234"), "expected 2 numbers, got 1"},
      {File(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", "1234"),
       "expected dtype, shape or data_offsets"},
      {File(f4 + R"(,"a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})", "12345"), "duplicate key \"a\""},
      {File(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"), "duplicate key"},
      {File(f4 + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", "12345"),
       "tensor \"b\": overlaps tensor \"a\""},
      {File(f4 + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[6,7]}})", "1234567"),
       "tensor \"b\": a hole of 2 bytes"},
      {File(R"({"__metadata__":{"x":1}})", ""), "__metadata__: \"x\": expected a string, got a number"},
      {File(R"({"a":3})", ""), "tensor \"a\": expected an object, got a number"},
      {File(R"({"a":{"dtype":{},"shape":[1],"data_offsets":[0,4]}})", "1234"), "got an object"},
  };
  for (const auto& [bytes, message] : cases) EXPECT_THAT(ErrorOf(bytes), HasSubstr(message)) << bytes;
}

TEST_F(CheckpointTest, WriterRefusesWhatItCannotWrite) {
  const fs::path path = folder_ / "x.safetensors";
  EXPECT_THAT(std::string(WriteSafetensors(path, {{"a", DType::kF32, {2}, "1234"}}).message()),
              HasSubstr("4 bytes do not fit"));
  EXPECT_THAT(std::string(WriteSafetensors(path, {{"a", DType::kU8, {1}, "1"}, {"a", DType::kU8, {1}, "1"}}).message()),
              HasSubstr("given twice"));
  EXPECT_FALSE(WriteSafetensors(folder_ / "no" / "x.safetensors", {{"a", DType::kU8, {1}, "1"}}).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 0);
}

}  // namespace
}  // namespace manta::checkpoint

// golden_tokenizers DIR [--data D] [--strict]
//
// For each NAME.jsonl in DIR: encodes and decodes its texts with the tokenizer in D/NAME (by default ../shared/data)
// and compares with what Hugging Face `tokenizers` gave. A line of the file is an object with `text`; `ids`;
// `ids_with_special` where adding special tokens changes the ids; `decoded` where it differs from `text`;
// `decoded_skip_special` where that differs again. Streaming each decoding token by token must give the same text.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/golden/report.h"

namespace manta::golden {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;
using TokenizerPtr = std::shared_ptr<const tokenizer::Tokenizer>;

// The number of places in which `got` differs from `want`, missing and surplus ones included.
template <typename T>
double Differences(const T& got, const T& want) {
  const size_t shorter = std::min(got.size(), want.size());
  double differences = static_cast<double>(std::max(got.size(), want.size()) - shorter);
  for (size_t i = 0; i < shorter; ++i) differences += got[i] != want[i];
  return differences;
}

template <typename T>
std::string FirstDifference(const T& got, const T& want) {
  size_t i = 0;
  while (i < got.size() && i < want.size() && got[i] == want[i]) ++i;
  if (i == got.size() && i == want.size()) return "";
  return "first difference at " + std::to_string(i);
}

std::string Streamed(const TokenizerPtr& tokenizer, const Ids& ids, bool skip_special) {
  tokenizer::StreamDecoder stream(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) text += stream.Push(id);
  return text + stream.Finish();
}

void RunCase(const TokenizerPtr& tokenizer, const std::string& name, const nlohmann::json& golden, Report* report) {
  const std::string text = golden.at("text");
  const Ids ids = golden.at("ids");
  const Ids ids_with_special = golden.value("ids_with_special", ids);
  const std::string decoded = golden.value("decoded", text);
  const std::string decoded_skip_special = golden.value("decoded_skip_special", decoded);
  for (const bool special : {false, true}) {
    const std::string tensor = special ? "ids_with_special" : "ids";
    const absl::StatusOr<Ids> got = tokenizer->Encode(text, special);
    if (!got.ok()) {
      report->Fail(name, tensor, std::string(got.status().message()));
      continue;
    }
    const Ids& want = special ? ids_with_special : ids;
    report->Compare(name, tensor, Differences(*got, want), 0, FirstDifference(*got, want));
  }
  for (const bool skip : {false, true}) {
    const std::string tensor = skip ? "decoded_skip_special" : "decoded";
    const std::string& want = skip ? decoded_skip_special : decoded;
    const std::string got = tokenizer->Decode(ids, skip);
    report->Compare(name, tensor, Differences(got, want), 0, FirstDifference(got, want));
    const std::string streamed = Streamed(tokenizer, ids, skip);
    report->Compare(name, tensor + "_streamed", Differences(streamed, want), 0, FirstDifference(streamed, want));
  }
}

void RunFile(const fs::path& file, const fs::path& data, Report* report) {
  const std::string group = file.stem().string();
  const absl::StatusOr<TokenizerPtr> tokenizer = tokenizer::Tokenizer::Load(data / group);
  if (!tokenizer.ok()) {
    report->Fail(group + "/load", "-", std::string(tokenizer.status().message()));
    return;
  }
  std::ifstream in(file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const std::string name = group + "/" + std::to_string(number);
    try {
      RunCase(*tokenizer, name, nlohmann::json::parse(line), report);
    } catch (const std::exception& e) {
      report->Fail(name, "-", e.what());
    }
  }
}

int Usage() {
  std::fprintf(stderr, "usage: golden_tokenizers DIR [--data D] [--strict]\n");
  return kUsageError;
}

int Main(int argc, char** argv) {
  fs::path dir, data = "../shared/data";
  bool strict = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--strict") {
      strict = true;
    } else if (argument == "--data" && i + 1 < argc) {
      data = argv[++i];
    } else if (dir.empty() && !argument.starts_with("-")) {
      dir = argument;
    } else {
      return Usage();
    }
  }
  std::error_code error;
  if (dir.empty() || !fs::is_directory(dir, error)) return Usage();
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Report report(strict);
  for (const fs::path& file : files) RunFile(file, data, &report);
  return report.Finish();
}

}  // namespace
}  // namespace manta::golden

int main(int argc, char** argv) {
  return manta::golden::Main(argc, argv);
}

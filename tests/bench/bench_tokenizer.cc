// bench_tokenizer TOKENIZER_DIR TEXTS [IDS]
//
// Encodes the documents of the file TEXTS, which are separated by a zero byte, one after another on one thread, and
// prints a line: bytes, tokens, seconds, of the loading, of a first pass (nothing cached) and of a second. Where IDS is
// given, writes all ids there as little-endian int32. tokenizer_vs_hf.py compares with Hugging Face's.
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file.h"
#include "common/tokenizer/tokenizer.h"

namespace manta {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::string_view> Documents(std::string_view texts) {
  std::vector<std::string_view> documents;
  for (size_t at = 0; at < texts.size();) {
    const size_t end = std::min(texts.find('\0', at), texts.size());
    documents.push_back(texts.substr(at, end - at));
    at = end + 1;
  }
  return documents;
}

int Run(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: bench_tokenizer TOKENIZER_DIR TEXTS [IDS]\n");
    return 64;
  }
  double start = Seconds();
  const auto tokenizer = tokenizer::Tokenizer::Load(argv[1]);
  const double load_seconds = Seconds() - start;
  const auto texts = ReadFile(argv[2]);
  for (const absl::Status& status : {tokenizer.status(), texts.status()}) {
    if (status.ok()) continue;
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  const std::vector<std::string_view> documents = Documents(*texts);
  double seconds[2];
  std::vector<int32_t> ids;
  for (double& pass : seconds) {
    ids.clear();
    ids.reserve(texts->size() / 2);
    start = Seconds();
    for (const std::string_view document : documents) {
      const auto encoded = (*tokenizer)->Encode(document, false);
      if (!encoded.ok()) {
        std::fprintf(stderr, "%s\n", std::string(encoded.status().message()).c_str());
        return 1;
      }
      ids.insert(ids.end(), encoded->begin(), encoded->end());
    }
    pass = Seconds() - start;
  }
  std::printf("bytes=%zu documents=%zu tokens=%zu load_seconds=%.4f first_seconds=%.4f second_seconds=%.4f\n",
              texts->size(), documents.size(), ids.size(), load_seconds, seconds[0], seconds[1]);
  if (argc == 4) {
    const std::string bytes(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t));
    if (const absl::Status status = WriteFileAtomically(argv[3], bytes); !status.ok()) {
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace manta

int main(int argc, char** argv) {
  return manta::Run(argc, argv);
}

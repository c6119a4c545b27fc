// A fuzzer's main: feeds mutated inputs to LLVMFuzzerTestOneInput, keeps those that reach new code, saves what crashes.
//
//   fuzz_yaml --seconds 60 --artifacts DIR SEED_FILE_OR_FOLDER...
//   fuzz_yaml --replay FILE                                    runs one input
//
// Coverage comes from GCC's -fsanitize-coverage=trace-pc, with which the code under test is compiled (CMakeLists.txt),
// together with AddressSanitizer and UBSan. An input that takes longer than 10 s, or over 2 GiB at once, is a finding,
// too. The random numbers come from --seed; it is printed.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kMapSize = size_t{1} << 20;
uint8_t g_seen[kMapSize];      // buckets of program counters that any input has reached
size_t g_num_seen = 0;
bool g_count = false;          // whether code runs for an input

std::string g_input;           // the one that runs
char g_artifact[4096] = "crash.input";
std::atomic<int64_t> g_started_ms{0};  // 0: none runs

int64_t NowMs() { return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count(); }

void SaveInput() {
  static std::atomic<bool> saved{false};
  if (saved.exchange(true)) return;
  if (FILE* file = std::fopen(g_artifact, "wb")) {
    std::fwrite(g_input.data(), 1, g_input.size(), file);
    std::fclose(file);
    std::fprintf(stderr, "\nfinding: the input is in %s (%zu bytes)\n", g_artifact, g_input.size());
  }
}
void OnSignal(int number) {
  SaveInput();
  signal(number, SIG_DFL);
  raise(number);
}
void WatchTime() {
  while (true) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const int64_t started = g_started_ms;
    if (started == 0 || NowMs() - started < 10000) continue;
    std::fprintf(stderr, "finding: an input has run for over 10 s\n");
    SaveInput();
    _exit(1);
  }
}

// Whether the input reached code that none before it had.
bool RunOne(const std::string& input) {
  g_input = input;
  const size_t before = g_num_seen;
  g_started_ms = NowMs();
  g_count = true;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(g_input.data()), g_input.size());
  g_count = false;
  g_started_ms = 0;
  return g_num_seen > before;
}

class Mutator {
 public:
  Mutator(uint64_t seed, size_t max_bytes) : random_(seed), max_bytes_(max_bytes) {}

  void Learn(const std::string& text) {  // words of the seeds are good bricks
    std::string word;
    for (char c : text + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
        word.push_back(c);
      } else {
        if (word.size() > 1 && word.size() < 40 && words_.size() < 4000) words_.push_back(word);
        word.clear();
      }
    }
  }
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }

  std::string Mutate(const std::vector<std::string>& corpus) {
    std::string text = corpus[Below(corpus.size())];
    for (size_t rounds = 1 + Below(6); rounds > 0; --rounds) Step(text, corpus);
    if (text.size() > max_bytes_) text.resize(max_bytes_);
    return text;
  }

 private:
  void Step(std::string& text, const std::vector<std::string>& corpus) {
    static const std::string kMarks = "{}[]()<>\"'\\:,;.|&*!%#@`~?/-+=_ \n\r\t$";
    static const char* const kNumbers[] = {"0", "-1", "1", "255", "65536", "2147483648", "-9223372036854775808",
                                           "18446744073709551615", "1e308", "1e-400", "nan", "null", "0x7fffffff"};
    const size_t at = Below(text.size() + 1);
    switch (Below(11)) {
      case 0: if (!text.empty()) text[Below(text.size())] ^= static_cast<char>(1 << Below(8)); break;
      case 1: if (!text.empty()) text[Below(text.size())] = static_cast<char>(Below(256)); break;
      case 2: text.insert(at, 1, kMarks[Below(kMarks.size())]); break;
      case 3: text.erase(std::min(at, text.size()), 1 + Below(16)); break;
      case 4: if (!words_.empty()) text.insert(at, words_[Below(words_.size())]); break;
      case 5: text.insert(at, kNumbers[Below(std::size(kNumbers))]); break;
      case 6: {  // a piece again
        const size_t from = Below(text.size() + 1);
        text.insert(at, text.substr(from, 1 + Below(64)));
        break;
      }
      case 7: {  // a piece of another
        const std::string& other = corpus[Below(corpus.size())];
        text.insert(at, other.substr(Below(other.size() + 1), 1 + Below(128)));
        break;
      }
      case 8: text.resize(at); break;
      case 9: {  // the digits of a number
        for (size_t i = at; i < text.size(); ++i) {
          if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) continue;
          size_t end = i;
          while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
          text.replace(i, end - i, kNumbers[Below(std::size(kNumbers))]);
          break;
        }
        break;
      }
      default: {  // many of the same
        text.insert(at, std::string(1 + Below(200), text.empty() ? '[' : text[Below(text.size())]));
      }
    }
  }
  std::mt19937_64 random_;
  size_t max_bytes_;
  std::vector<std::string> words_;
};

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int Usage() {
  std::fprintf(stderr, "usage: [--seconds N] [--seed S] [--max-bytes N] [--artifacts DIR] SEED...  or  --replay FILE\n");
  return 64;
}

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
  if (!g_count) return;
  const auto pc = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  uint8_t& seen = g_seen[(pc ^ (pc >> 20)) & (kMapSize - 1)];
  if (seen == 0) {
    seen = 1;
    ++g_num_seen;
  }
}

extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=2048:detect_leaks=0:handle_abort=0"; }

int main(int argc, char** argv) {
  double seconds = 60;
  uint64_t seed = static_cast<uint64_t>(NowMs());
  size_t max_bytes = 1 << 16;
  fs::path artifacts = ".";
  std::vector<std::string> corpus;
  std::string replay;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--", 0) == 0) {
      if (i + 1 >= argc) return Usage();
      const char* value = argv[++i];
      if (arg == "--seconds") seconds = std::atof(value);
      else if (arg == "--seed") seed = std::strtoull(value, nullptr, 10);
      else if (arg == "--max-bytes") max_bytes = std::strtoull(value, nullptr, 10);
      else if (arg == "--artifacts") artifacts = value;
      else if (arg == "--replay") replay = value;
      else return Usage();
      continue;
    }
    std::error_code error;
    if (fs::is_directory(arg, error)) {
      for (const auto& entry : fs::recursive_directory_iterator(arg)) {
        if (entry.is_regular_file()) corpus.push_back(ReadAll(entry.path()));
      }
    } else if (fs::exists(arg, error)) {
      corpus.push_back(ReadAll(arg));
    } else {
      std::fprintf(stderr, "there is no seed %s\n", arg.c_str());
      return 64;
    }
  }
  const std::string name = fs::path(argv[0]).filename().string();
  for (int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, OnSignal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(SaveInput);
  std::thread(WatchTime).detach();
  if (!replay.empty()) {
    RunOne(ReadAll(replay));
    return 0;
  }
  if (corpus.empty()) return Usage();
  std::sort(corpus.begin(), corpus.end());
  std::snprintf(g_artifact, sizeof(g_artifact), "%s/%s-%llu.input", artifacts.c_str(), name.c_str(),
                static_cast<unsigned long long>(seed));
  Mutator mutator(seed, max_bytes);
  size_t runs = 0;
  for (const std::string& input : corpus) {
    mutator.Learn(input);
    RunOne(input);
    ++runs;
  }
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    for (int i = 0; i < 50; ++i, ++runs) {
      std::string input = mutator.Mutate(corpus);
      if (RunOne(input) && corpus.size() < 20000) corpus.push_back(std::move(input));
    }
  }
  std::printf("%s: %zu runs in %.0f s, %zu inputs kept, %zu places of code reached, no finding (seed %llu)\n", name.c_str(), runs,
              seconds, corpus.size(), g_num_seen, static_cast<unsigned long long>(seed));
  return 0;
}

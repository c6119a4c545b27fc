// bench_journal [DIR] [SECONDS]: what the journal carries on the disk of DIR: commits a second of one row each, and
// placements made and removed, a window of 512 in flight, each acknowledged after its commit.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "controller/journal/sqlite_journal.h"

namespace manta::journal {
namespace {

using Kind = controller::core::Journal::Kind;

void Measure(const char* name, const std::filesystem::path& file, double seconds, int window) {
  EventLoop loop;
  auto opened = SqliteJournal::Open(file, loop, {});
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
    std::exit(1);
  }
  SqliteJournal& journal = *opened->journal;
  const std::string value(220, 'p');  // as long as a placement of a few ranks
  uint64_t made = 0, pairs = 0;
  bool stopping = false;
  std::function<void()> make = [&] {
    if (stopping) return;
    const std::string key = absl::StrCat(++made);
    journal.Put(Kind::kPlacement, key, value);
    journal.WhenDurable(journal.last_sequence(), [&, key] {  // acknowledged: now it may be removed
      journal.Erase(Kind::kPlacement, key);
      journal.WhenDurable(journal.last_sequence(), [&] {
        ++pairs;
        make();
      });
    });
  };
  const absl::Time start = absl::Now();
  for (int i = 0; i < window; ++i) loop.Post([&] { make(); });
  loop.RunFor(absl::Seconds(seconds));
  stopping = true;
  const double took = absl::ToDoubleSeconds(absl::Now() - start);
  std::printf("%-28s %8.0f pairs/s  %6.0f commits/s  %8.0f rows/s  %5.2f ms a commit\n", name,
              static_cast<double>(pairs) / took, static_cast<double>(journal.stats().commits) / took,
              static_cast<double>(journal.stats().rows) / took,
              1e3 * took / static_cast<double>(std::max<uint64_t>(1, journal.stats().commits)));
}

}  // namespace
}  // namespace manta::journal

int main(int argc, char** argv) {
  const std::filesystem::path base = argc > 1 ? argv[1] : ".";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 3;
  const std::filesystem::path dir = base / absl::StrCat("bench-journal-", getpid());
  std::filesystem::create_directories(dir);
  manta::journal::Measure("one at a time", dir / "one.db", seconds, 1);
  manta::journal::Measure("window of 512", dir / "many.db", seconds, 512);
  manta::journal::Measure("window of 4096", dir / "more.db", seconds, 4096);
  std::filesystem::remove_all(dir);
  return 0;
}

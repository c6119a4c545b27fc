// A SQLite VFS for tests: a disk that forgets what was not synced.
//
// Files are written through to the system's VFS, and beside that an image of each is kept of what a power cut would
// leave: at xSync all writes since the last one enter it. PowerCut writes the images to another folder, with a random
// part of the unsynced writes in them, sector by sector, as disks do. It can also be slow, full, or lie about syncs.
// One connection at a time; the setters may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace manta::journal {

class PowerLossVfs {
 public:
  explicit PowerLossVfs(std::string name);  // registers it; never unregistered
  ~PowerLossVfs();

  const std::string& name() const { return name_; }
  // What would be found in `folder` after a cut of power now: files by their own names in `to`. Unsynced sectors are
  // kept with probability `kept`.
  void PowerCut(const std::filesystem::path& to, uint64_t seed, double kept);

  std::atomic<bool> full{false};  // writes answer SQLITE_FULL
  std::atomic<bool> lies{false};  // syncs answer OK and do nothing
  std::atomic<int> sync_delay_ms{0};
  std::atomic<int> syncs{0};

  struct Impl;
  Impl* impl() { return impl_.get(); }

 private:
  const std::string name_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace manta::journal

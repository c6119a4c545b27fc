#include "controller/journal/power_loss_vfs.h"

#include <sqlite3.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "common/base/check.h"

namespace manta::journal {
namespace {

constexpr size_t kSector = 512;

struct Write {
  size_t offset = 0;
  std::string data;
  bool truncate = false;  // to `offset`
};

void Apply(std::string* image, size_t offset, std::string_view data) {
  if (image->size() < offset + data.size()) image->resize(offset + data.size());
  std::memcpy(image->data() + offset, data.data(), data.size());
}

struct Disk {
  std::string durable;
  std::vector<Write> pending;
  void Sync() {
    for (const Write& write : pending) {
      if (write.truncate) {
        durable.resize(write.offset);
      } else {
        Apply(&durable, write.offset, write.data);
      }
    }
    pending.clear();
  }
};

}  // namespace

struct PowerLossVfs::Impl {
  sqlite3_vfs vfs{};
  sqlite3_vfs* base = nullptr;
  PowerLossVfs* owner = nullptr;
  std::mutex mu;
  std::map<std::string, Disk> disks;  // by path
};

namespace {

// The base's file follows this header in the memory that SQLite gives.
struct File {
  sqlite3_file base;
  PowerLossVfs* vfs;
  std::string* path;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

File* Of(sqlite3_file* file) {
  return reinterpret_cast<File*>(file);
}
PowerLossVfs::Impl* Of(sqlite3_vfs* vfs) {
  return static_cast<PowerLossVfs::Impl*>(vfs->pAppData);
}

int Close(sqlite3_file* file) {
  const int code = Of(file)->real()->pMethods->xClose(Of(file)->real());
  delete Of(file)->path;
  return code;
}
int Read(sqlite3_file* file, void* to, int n, sqlite3_int64 offset) {
  return Of(file)->real()->pMethods->xRead(Of(file)->real(), to, n, offset);
}
int WriteTo(sqlite3_file* file, const void* from, int n, sqlite3_int64 offset) {
  File* self = Of(file);
  if (self->vfs->full) return SQLITE_FULL;
  const int code = self->real()->pMethods->xWrite(self->real(), from, n, offset);
  if (code == SQLITE_OK) {
    std::lock_guard lock(self->vfs->impl()->mu);
    self->vfs->impl()->disks[*self->path].pending.push_back(
        {static_cast<size_t>(offset), std::string(static_cast<const char*>(from), static_cast<size_t>(n)), false});
  }
  return code;
}
int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  File* self = Of(file);
  const int code = self->real()->pMethods->xTruncate(self->real(), size);
  std::lock_guard lock(self->vfs->impl()->mu);
  self->vfs->impl()->disks[*self->path].pending.push_back({static_cast<size_t>(size), "", true});
  return code;
}
int Sync(sqlite3_file* file, int) {
  File* self = Of(file);
  ++self->vfs->syncs;
  if (const int delay = self->vfs->sync_delay_ms; delay > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  }
  if (self->vfs->lies) return SQLITE_OK;
  std::lock_guard lock(self->vfs->impl()->mu);
  self->vfs->impl()->disks[*self->path].Sync();  // the real file's fsync would only cost time
  return SQLITE_OK;
}
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Of(file)->real()->pMethods->xFileSize(Of(file)->real(), size);
}
int Lock(sqlite3_file* file, int level) {
  return Of(file)->real()->pMethods->xLock(Of(file)->real(), level);
}
int Unlock(sqlite3_file* file, int level) {
  return Of(file)->real()->pMethods->xUnlock(Of(file)->real(), level);
}
int CheckLock(sqlite3_file* file, int* out) {
  return Of(file)->real()->pMethods->xCheckReservedLock(Of(file)->real(), out);
}
int Control(sqlite3_file* file, int op, void* arg) {
  return Of(file)->real()->pMethods->xFileControl(Of(file)->real(), op, arg);
}
int SectorSize(sqlite3_file*) {
  return kSector;
}
int Characteristics(sqlite3_file*) {
  return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}  // as the system's VFS says

const sqlite3_io_methods kMethods = [] {
  sqlite3_io_methods methods{};
  methods.iVersion = 1;  // without shared memory: WAL works in exclusive mode only, which is the journal's
  methods.xClose = Close;
  methods.xRead = Read;
  methods.xWrite = WriteTo;
  methods.xTruncate = Truncate;
  methods.xSync = Sync;
  methods.xFileSize = FileSize;
  methods.xLock = Lock;
  methods.xUnlock = Unlock;
  methods.xCheckReservedLock = CheckLock;
  methods.xFileControl = Control;
  methods.xSectorSize = SectorSize;
  methods.xDeviceCharacteristics = Characteristics;
  return methods;
}();

int Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  PowerLossVfs::Impl* impl = Of(vfs);
  File* self = Of(file);
  self->vfs = impl->owner;
  const int code = impl->base->xOpen(impl->base, path, self->real(), flags, out_flags);
  self->base.pMethods = code == SQLITE_OK ? &kMethods : nullptr;
  if (code != SQLITE_OK) return code;
  self->path = new std::string(path == nullptr ? "" : path);
  return code;
}
int Delete(sqlite3_vfs* vfs, const char* path, int sync) {
  PowerLossVfs::Impl* impl = Of(vfs);
  std::lock_guard lock(impl->mu);
  impl->disks.erase(path);
  return impl->base->xDelete(impl->base, path, sync);
}

}  // namespace

PowerLossVfs::PowerLossVfs(std::string name) : name_(std::move(name)), impl_(std::make_unique<Impl>()) {
  impl_->owner = this;
  impl_->base = sqlite3_vfs_find(nullptr);
  impl_->vfs = *impl_->base;  // what is not replaced is the system's
  impl_->vfs.zName = name_.c_str();
  impl_->vfs.pAppData = impl_.get();
  impl_->vfs.szOsFile = static_cast<int>(sizeof(File)) + impl_->base->szOsFile;
  impl_->vfs.xOpen = Open;
  impl_->vfs.xDelete = Delete;
  MANTA_CHECK(sqlite3_vfs_register(&impl_->vfs, 0) == SQLITE_OK);
}

PowerLossVfs::~PowerLossVfs() {
  sqlite3_vfs_unregister(&impl_->vfs);
}

void PowerLossVfs::PowerCut(const std::filesystem::path& to, uint64_t seed, double kept) {
  std::lock_guard lock(impl_->mu);
  std::mt19937_64 random(seed);
  std::bernoulli_distribution keep(kept);
  std::filesystem::create_directories(to);
  for (const auto& [path, disk] : impl_->disks) {
    std::string image = disk.durable;
    for (const Write& write : disk.pending) {
      if (write.truncate) {
        if (keep(random)) image.resize(write.offset);
        continue;
      }
      for (size_t at = 0; at < write.data.size(); at += kSector) {
        if (keep(random)) Apply(&image, write.offset + at, std::string_view(write.data).substr(at, kSector));
      }
    }
    std::ofstream(to / std::filesystem::path(path).filename(), std::ios::binary) << image;
  }
}

}  // namespace manta::journal

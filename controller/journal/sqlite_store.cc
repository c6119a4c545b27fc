#include "controller/journal/sqlite_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/file_lock.h"
#include "common/base/status.h"

namespace manta::journal {
namespace {

constexpr int kSchema = 1;
constexpr int kPagesBeforeCheckpoint = 1000;
constexpr int kWalBytesKept = 16 << 20;

// One writer on one host is what WAL and file locks are made for; network file systems honour neither for sure.
absl::Status CheckFileSystem(const std::filesystem::path& folder) {
  struct statfs info;
  if (statfs(folder.c_str(), &info) != 0) return ErrnoError("use", folder, errno);
  const char* name = nullptr;
  switch (static_cast<uint32_t>(info.f_type)) {
    case 0x6969:
      name = "NFS";
      break;
    case 0x0BD00BD0:
      name = "Lustre";
      break;
    case 0xFF534D42:
    case 0xFE534D42:
    case 0x517B:
      name = "SMB";
      break;
    case 0x47504653:
      name = "GPFS";
      break;
    case 0x00C36400:
      name = "Ceph";
      break;
    case 0x19830326:
      name = "BeeGFS";
      break;
    default:
      return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("the journal cannot lie in ", folder.string(), ", which is on ",
                                                    name, ": give a folder on a local disk (--journal-dir)"));
}

// Beside SQLite's own lock: this one says who holds it.
absl::StatusOr<FileLock> Lock(const std::filesystem::path& journal) {
  absl::StatusOr<FileLock> lock = FileLock::Take(journal.string() + ".lock", absl::StrCat(getpid()));
  if (!absl::IsAlreadyExists(lock.status())) return lock;
  return absl::FailedPreconditionError(
      absl::StrCat("another controller (pid ", lock.status().message(), ") holds ", journal.string()));
}

std::string RandomHex(int bytes) {
  std::string data(static_cast<size_t>(bytes), '\0');
  MANTA_CHECK(getrandom(data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
  return absl::BytesToHexString(data);
}

bool IsDamage(int code) {
  const int primary = code & 0xff;
  return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB;
}

}  // namespace

// A connection with its prepared statements.
class SqliteStore::Database {
 public:
  explicit Database(std::filesystem::path path) : path_(std::move(path)) {}
  ~Database() {
    for (sqlite3_stmt* statement : {begin_, commit_, rollback_, put_, erase_}) sqlite3_finalize(statement);
    sqlite3_close(db_);
  }

  // `damaged` is set where the file is no journal, or a broken one.
  absl::Status Open(const std::string& vfs, bool* damaged) {
    if (vfs.empty()) MANTA_RETURN_IF_ERROR(MakePrivate());
    const int code =
        sqlite3_open_v2(path_.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        vfs.empty() ? nullptr : vfs.c_str());
    if (code != SQLITE_OK) return Error(code, "open");
    sqlite3_extended_result_codes(db_, 1);
    absl::Status status = Prepare();
    *damaged = IsDamage(last_code_) || absl::IsDataLoss(status);
    return status;
  }

  // Before SQLite opens it, whose other files take over its mode: groups' environments lie in it.
  absl::Status MakePrivate() const {
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return ErrnoError("open", path_, errno);
    (void)fchmod(fd, 0600);  // one of an earlier version
    close(fd);
    return absl::OkStatus();
  }

  absl::Status Execute(const char* sql) {
    last_code_ = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
    return last_code_ == SQLITE_OK ? absl::OkStatus() : Error(last_code_, "write");
  }

  // Calls `row` with each row of a query.
  absl::Status Query(const char* sql, const std::function<void(sqlite3_stmt*)>& row) {
    sqlite3_stmt* statement = nullptr;
    last_code_ = sqlite3_prepare_v2(db_, sql, -1, &statement, nullptr);
    while (last_code_ == SQLITE_OK || last_code_ == SQLITE_ROW) {
      last_code_ = sqlite3_step(statement);
      if (last_code_ == SQLITE_ROW) row(statement);
      if (last_code_ == SQLITE_DONE) break;
    }
    sqlite3_finalize(statement);
    return last_code_ == SQLITE_DONE ? absl::OkStatus() : Error(last_code_, "read");
  }

  absl::Status Write(const RowValues& rows) {
    MANTA_RETURN_IF_ERROR(Step(begin_));
    for (const auto& [key, value] : rows) {
      sqlite3_stmt* statement = value.has_value() ? put_ : erase_;
      sqlite3_bind_int(statement, 1, key.first);
      sqlite3_bind_blob64(statement, 2, key.second.data(), key.second.size(), SQLITE_STATIC);
      if (value.has_value()) sqlite3_bind_blob64(statement, 3, value->data(), value->size(), SQLITE_STATIC);
      if (absl::Status status = Step(statement); !status.ok()) return Undo(status);
    }
    if (absl::Status status = Step(commit_); !status.ok()) return Undo(status);
    return absl::OkStatus();
  }

  std::string cluster_id;

 private:
  absl::Status Prepare() {
    // EXCLUSIVE comes before WAL: the index of the log is then in this process's memory, not in a third file.
    MANTA_RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
    MANTA_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
    MANTA_RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
    MANTA_RETURN_IF_ERROR(Execute(absl::StrCat("PRAGMA wal_autocheckpoint=", kPagesBeforeCheckpoint).c_str()));
    MANTA_RETURN_IF_ERROR(Execute(absl::StrCat("PRAGMA journal_size_limit=", kWalBytesKept).c_str()));
    std::string check;
    MANTA_RETURN_IF_ERROR(Query("PRAGMA quick_check(1)", [&](sqlite3_stmt* s) { check = Text(s, 0); }));
    if (check != "ok") return Damaged(check);
    bool tables = false;
    MANTA_RETURN_IF_ERROR(
        Query("SELECT 1 FROM sqlite_master WHERE name='meta'", [&](sqlite3_stmt*) { tables = true; }));
    if (!tables) MANTA_RETURN_IF_ERROR(CreateTables());
    int schema = 0;
    MANTA_RETURN_IF_ERROR(Query("SELECT schema, cluster_id FROM meta", [&](sqlite3_stmt* s) {
      schema = sqlite3_column_int(s, 0);
      cluster_id = Text(s, 1);
    }));
    if (schema != kSchema) {
      return absl::FailedPreconditionError(absl::StrCat("the journal ", path_.string(), " has schema ", schema,
                                                        ", expected ", kSchema, ": another version of Manta wrote it"));
    }
    const std::array<std::pair<sqlite3_stmt**, const char*>, 5> statements = {{
        {&begin_, "BEGIN IMMEDIATE"},
        {&commit_, "COMMIT"},
        {&rollback_, "ROLLBACK"},
        {&put_, "INSERT INTO entry VALUES (?1, ?2, ?3) ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value"},
        {&erase_, "DELETE FROM entry WHERE kind = ?1 AND key = ?2"},
    }};
    for (const auto& [statement, sql] : statements) {
      last_code_ = sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, statement, nullptr);
      if (last_code_ != SQLITE_OK) return Error(last_code_, "use");
    }
    return absl::OkStatus();
  }

  absl::Status CreateTables() {
    const std::string sql = absl::StrCat(
        "BEGIN IMMEDIATE;"
        "CREATE TABLE meta (schema INTEGER NOT NULL, cluster_id TEXT NOT NULL);"
        "CREATE TABLE entry (kind INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,"
        " PRIMARY KEY (kind, key)) WITHOUT ROWID;"
        "INSERT INTO meta VALUES (",
        kSchema, ", '", RandomHex(16), "'); COMMIT");
    MANTA_RETURN_IF_ERROR(Execute(sql.c_str()));
    return SyncDirectory(path_.parent_path());
  }

  absl::Status Step(sqlite3_stmt* statement) {
    last_code_ = sqlite3_step(statement);
    const absl::Status status = last_code_ == SQLITE_DONE ? absl::OkStatus() : Error(last_code_, "write");
    sqlite3_reset(statement);
    return status;
  }
  absl::Status Undo(const absl::Status& status) {
    if (sqlite3_get_autocommit(db_) == 0) {  // SQLite may have rolled back by itself
      sqlite3_step(rollback_);
      sqlite3_reset(rollback_);
    }
    return status;
  }

  static std::string Text(sqlite3_stmt* statement, int column) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
    return text == nullptr ? "" : text;
  }

  absl::Status Damaged(const std::string& how) const {
    return absl::DataLossError(absl::StrCat("the journal ", path_.string(), " is damaged (", how,
                                            "): restore it, or start with --discard-journal to go on without it"));
  }
  absl::Status Error(int code, const char* what) const {
    if (IsDamage(code)) return Damaged(sqlite3_errstr(code));
    const int system = db_ == nullptr ? 0 : sqlite3_system_errno(db_);
    const std::string why = absl::StrCat("cannot ", what, " the journal ", path_.string(), ": ",
                                         db_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db_),
                                         system != 0 ? absl::StrCat(" (", std::strerror(system), ")") : "");
    switch (code & 0xff) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        return absl::FailedPreconditionError(absl::StrCat(why, ": another process has it open"));
      case SQLITE_FULL:
        return absl::ResourceExhaustedError(absl::StrCat("journal ", path_.string(), ": disk full"));
      case SQLITE_IOERR:
        if (system == ENOSPC || system == EDQUOT) {
          return absl::ResourceExhaustedError(
              absl::StrCat("journal ", path_.string(), ": disk full (", std::strerror(system), ")"));
        }
        return absl::UnavailableError(why);
      default:
        return absl::UnavailableError(why);
    }
  }

  const std::filesystem::path path_;
  sqlite3* db_ = nullptr;
  sqlite3_stmt *begin_ = nullptr, *commit_ = nullptr, *rollback_ = nullptr, *put_ = nullptr, *erase_ = nullptr;
  int last_code_ = SQLITE_OK;
};

namespace {

// PATH and its log, to PATH.damaged-N.
absl::StatusOr<std::filesystem::path> MoveAside(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path to;
  for (int n = 1;; ++n) {
    to = absl::StrCat(path.string(), ".damaged-", n);
    if (!std::filesystem::exists(to, error)) break;
  }
  std::filesystem::rename(path, to, error);
  if (error) return ErrnoError("move aside", path, error.value());
  for (const char* suffix : {"-wal", "-shm"}) {
    std::filesystem::rename(path.string() + suffix, to.string() + suffix, error);  // absent: nothing to move
  }
  MANTA_RETURN_IF_ERROR(SyncDirectory(path.parent_path()));
  return to;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::filesystem::path& relative,
                                                               const Options& options) {
  const std::filesystem::path path = std::filesystem::absolute(relative);
  MANTA_RETURN_IF_ERROR(CheckFileSystem(path.parent_path()));
  std::unique_ptr<SqliteStore> store(new SqliteStore());
  MANTA_ASSIGN_OR_RETURN(store->lock_, Lock(path));
  for (bool again = options.discard_damaged;; again = false) {
    store->db_ = std::make_unique<Database>(path);
    bool damaged = false;
    const absl::Status status = store->db_->Open(options.vfs, &damaged);
    if (status.ok()) break;
    if (!damaged || !again) return status;
    store->db_.reset();
    MANTA_ASSIGN_OR_RETURN(store->discarded_, MoveAside(path));
  }
  store->cluster_id_ = store->db_->cluster_id;
  return store;
}

SqliteStore::~SqliteStore() = default;

absl::Status SqliteStore::ReadAll(
    const std::function<void(uint8_t kind, std::string_view key, std::string_view value)>& row) {
  return db_->Query("SELECT kind, key, value FROM entry ORDER BY kind, key", [&](sqlite3_stmt* statement) {
    const auto blob = [&](int column) {
      return std::string_view(static_cast<const char*>(sqlite3_column_blob(statement, column)),
                              static_cast<size_t>(sqlite3_column_bytes(statement, column)));
    };
    row(static_cast<uint8_t>(sqlite3_column_int(statement, 0)), blob(1), blob(2));
  });
}

absl::Status SqliteStore::Commit(const RowValues& rows) {
  return db_->Write(rows);
}

}  // namespace manta::journal

// Reads many keys of a Tree into a struct, and remembers the first error: ask status() once at the end.
// A key that is absent (or null, where the target is not an optional) leaves its target as it was.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/tree.h"

namespace manta::config {

class Reader {
 public:
  explicit Reader(const Tree& tree) : tree_(tree) {}
  const Tree& tree() const { return tree_; }
  const absl::Status& status() const { return status_; }

  void Read(std::string_view path, bool& out) { Take(path, out, &Tree::GetBool); }
  void Read(std::string_view path, int64_t& out) { Take(path, out, &Tree::GetInt); }
  void Read(std::string_view path, double& out) { Take(path, out, &Tree::GetNumber); }
  void Read(std::string_view path, std::string& out) { Take(path, out, &Tree::GetText); }
  void Read(std::string_view path, std::vector<std::string>& out) { Take(path, out, &Tree::GetTexts); }
  void Read(std::string_view path, uint64_t& out) {
    auto value = static_cast<int64_t>(out);
    Read(path, value);
    out = static_cast<uint64_t>(value);
  }
  void Read(std::string_view path, std::optional<int64_t>& out) { TakeOptional(path, out, &Tree::GetOptionalInt); }
  void Read(std::string_view path, std::optional<double>& out) { TakeOptional(path, out, &Tree::GetOptionalNumber); }
  void Read(std::string_view path, std::optional<std::string>& out) { TakeOptional(path, out, &Tree::GetOptionalText); }

  // Records "file:line: path: message" unless there is an earlier error.
  void Fail(std::string_view path, std::string_view message) {
    if (status_.ok()) status_ = tree_.Error(path, message);
  }
  void Require(bool condition, std::string_view path, std::string_view message) {
    if (!condition) Fail(path, message);
  }

 private:
  template <typename T, typename Getter>
  void Take(std::string_view path, T& out, Getter getter) {
    if (!status_.ok() || tree_.Find(path) == nullptr) return;
    absl::StatusOr<T> value = (tree_.*getter)(path);
    if (value.ok()) {
      out = *std::move(value);
    } else {
      status_ = value.status();
    }
  }
  // A null that is written down empties the target; an absent key leaves it.
  template <typename T, typename Getter>
  void TakeOptional(std::string_view path, T& out, Getter getter) {
    if (!status_.ok() || FindPath(tree_.root(), path) == nullptr) return;
    absl::StatusOr<T> value = (tree_.*getter)(path);
    if (value.ok()) {
      out = *std::move(value);
    } else {
      status_ = value.status();
    }
  }

  const Tree& tree_;
  absl::Status status_;
};

// The parts of ParseRunConfig, each in its file.
void ReadAlgorithm(Reader& reader, RunConfig& run);   // grpo, sft, eval, loss_fn
void ReadPolicy(Reader& reader, RunConfig& run);      // policy, or an evaluation's generation and tokenizer
void ReadData(Reader& reader, RunConfig& run);        // data, env
void ReadActors(Reader& reader, RunConfig& run);      // actors
// policy.scheduler: null, one {name, kwargs}, or a list of them that ends in {milestones: [...]}.
void ReadScheduler(Reader& reader, std::string_view path, ScheduleConfig& schedule);

}  // namespace manta::config

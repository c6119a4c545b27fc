// What the cluster commands print: a table for people, one JSON object for programs (--json): the reply's message with
// its field names as in proto/manta/v1, every field present.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "manta/v1/actor.pb.h"
#include "manta/v1/cluster.pb.h"

namespace manta::cli {

// Columns as wide as their longest cell; the first row is the header.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string ToString() const;
  void Print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string ToJson(const google::protobuf::Message& message);
void PrintJson(const google::protobuf::Message& message);

std::string StateName(v1::ActorState state);   // "ready"
std::string ResultOf(const v1::JobInfo& job);  // "ok", "stopped", "exit 69", "-" while it runs
std::string Mebibytes(uint64_t bytes);         // "512 MiB", "-" for none
std::string Ago(int64_t unix_ms);              // "3m12s ago"
std::string JoinInts(const google::protobuf::RepeatedField<int>& values);  // "0,1", "-" for none

}  // namespace manta::cli

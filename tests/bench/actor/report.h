// What bench_actor found, as a table line by line, or as one JSON object at the end. Not thread-safe.
#pragma once

#include <string>

#include "nlohmann/json.hpp"

namespace manta::bench {

struct Figure {
  std::string key;
  double value = 0;
  double limit = 0;      // what is asked of it; 0: nothing is
  bool at_most = false;  // the limit is an upper one
  std::string raw_key;   // gRPC by itself at the same work in the same run; empty: there is no such thing
  double raw = 0;
  double raw_limit = 0;  // what is asked of value / raw
  double ratio = 0;      // value / raw, where it is not the quotient of the two figures (a median of pairs)
  std::string note = {};
};

class Report {
 public:
  explicit Report(bool json);
  // JSON: `key`, `raw_key`, and their quotient as `KEY_over_raw`.
  void Add(const Figure& figure);
  void Print();  // the JSON, where that was asked for

 private:
  const bool json_;
  nlohmann::ordered_json values_;
};

}  // namespace manta::bench

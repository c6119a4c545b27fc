// One golden case of the losses: GROUP/CASE.json with hyper-parameters and expected numbers, GROUP/CASE.safetensors
// with arrays. Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/golden/report.h"

namespace manta::golden {

struct LossTensor {
  std::vector<int64_t> shape;
  std::vector<double> data;  // whatever the file's type: float32, float64 and small integers all fit

  int64_t dim(size_t i) const { return shape.at(i); }
  template <typename T>
  std::vector<T> As() const {
    return std::vector<T>(data.begin(), data.end());
  }
};

struct Tolerance {
  double rtol = 1e-5, atol = 1e-6;
};

class LossCase {
 public:
  static absl::StatusOr<LossCase> Load(const std::filesystem::path& directory, const std::string& group,
                                       const std::string& name);

  const std::string& name() const { return name_; }  // group/case
  const std::string& group() const { return group_; }
  const nlohmann::json& json() const { return json_; }
  const nlohmann::json& hparams() const { return json_.at("hparams"); }
  const nlohmann::json& outputs() const { return json_.at("outputs"); }

  bool Has(const std::string& tensor) const { return tensors_.contains(tensor); }
  const LossTensor& Get(const std::string& tensor) const;  // throws std::out_of_range with the name
  const std::map<std::string, LossTensor>& tensors() const { return tensors_; }

  // The stated tolerance ("f32", "f64", ...), or the set's default.
  Tolerance tolerance(const std::string& kind) const;

 private:
  std::string name_, group_;
  nlohmann::json json_;
  std::map<std::string, LossTensor> tensors_;
};

// A number of a case's JSON; "inf", "-inf" and "nan" are strings there.
double Number(const nlohmann::json& value);

// An optional number: null and absent are empty.
std::optional<double> OptionalNumber(const nlohmann::json& object, const char* key);

// Collects the worst difference over elements and reports it with the tolerance at that element. Equal infinities
// agree.
class Comparison {
 public:
  explicit Comparison(Tolerance tolerance) : tolerance_(tolerance) {}
  void Add(double actual, double expected) {
    double difference = std::abs(actual - expected);
    const double bound = tolerance_.atol + (tolerance_.rtol > 0 ? tolerance_.rtol * std::abs(expected) : 0);
    if (actual == expected) difference = 0;
    if (std::isnan(difference) || std::isinf(bound)) {
      difference = actual == expected || (std::isnan(actual) && std::isnan(expected))
                       ? 0
                       : std::numeric_limits<double>::infinity();
    }
    const double badness = difference == 0 ? 0 : difference / (std::isinf(bound) || bound == 0 ? 1e-300 : bound);
    if (!any_ || badness > worst_) {
      worst_ = badness;
      difference_ = difference;
      bound_ = std::isinf(bound) ? 0 : bound;
    }
    any_ = true;
  }
  template <typename A, typename B>
  void AddAll(const A& actual, const B& expected) {
    if (actual.size() != expected.size()) {
      Add(std::numeric_limits<double>::quiet_NaN(), 0);
      return;
    }
    for (size_t i = 0; i < actual.size(); ++i) Add(actual[i], expected[i]);
  }
  bool ok() const { return difference_ <= bound_; }
  void Print(Report& report, const std::string& name, const std::string& tensor, const std::string& note = "") const {
    report.Compare(name, tensor, difference_, bound_, note);
  }

 private:
  Tolerance tolerance_;
  bool any_ = false;
  double worst_ = 0, difference_ = 0, bound_ = 0;
};

void CompareScalar(Report& report, const LossCase& c, const std::string& tensor, double actual, double expected,
                   Tolerance tolerance);

template <typename A>
void CompareTensor(Report& report, const LossCase& c, const std::string& tensor, const A& actual, Tolerance tolerance) {
  Comparison comparison(tolerance);
  comparison.AddAll(actual, c.Get(tensor).data);
  comparison.Print(report, c.name(), tensor);
}

inline constexpr Tolerance kExact{0, 0};

// Each runs the cases of its groups. They may throw nlohmann::json and std exceptions for malformed cases.
void RunClippedPg(Report& report, const LossCase& c);
void RunSft(Report& report, const LossCase& c);
void RunFilter(Report& report, const LossCase& c);
void RunPrimitive(Report& report, const LossCase& c);
void RunAdvantages(Report& report, const LossCase& c);
void RunRewards(Report& report, const LossCase& c);
void RunPacking(Report& report, const LossCase& c);
void RunLrSchedule(Report& report, const LossCase& c);

}  // namespace manta::golden

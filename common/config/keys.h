// Every configuration key that Manta knows, in one table: what it does with it, its type, range and default.
//
// The names and defaults are those that people who train language models already have in their files. A key is
// implemented; or ignored (it means nothing here: accepted, with a warning where it does not have its usual value); or
// pending (an error unless it has its default). A key that is not in the table is unknown, which is an error. The table
// is written in keys_*.cc, one file for each group of trees, and never changes. Thread-safe.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/node.h"
#include "common/config/run_config.h"

namespace manta::config {

enum class KeyClass { kImplemented, kIgnored, kQuiet, kPending };  // kQuiet: ignored without a warning
enum class ValueType { kAny, kBool, kInt, kNumber, kText, kIntList, kTextList, kMap };

struct Key {
  std::string path;  // "a.b"; a part "*" is any name, a last part "**" is anything below
  KeyClass key_class = KeyClass::kImplemented;
  ValueType type = ValueType::kAny;
  std::optional<std::string> value;                  // the default, as YAML
  std::optional<std::string> sft_value, eval_value;  // where it differs for that algorithm
  bool nullable = false;
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  std::string one_of;       // "a|b|c"
  bool input_path = false;  // names a file or folder that is read

  // Builders: Int("grpo.seed", "42").AtLeast(0)
  Key Null() && {
    nullable = true;
    return std::move(*this);
  }
  Key AtLeast(double m) && {
    min = m;
    return std::move(*this);
  }
  Key AtMost(double m) && {
    max = m;
    return std::move(*this);
  }
  Key OneOf(std::string names) && {
    one_of = std::move(names);
    return std::move(*this);
  }
  Key Path() && {
    input_path = true;
    return std::move(*this);
  }
  Key Sft(std::string v) && {
    sft_value = std::move(v);
    return std::move(*this);
  }
  Key Eval(std::string v) && {
    eval_value = std::move(v);
    return std::move(*this);
  }
};

using Default = std::optional<std::string>;
Key Bool(std::string path, Default value = std::nullopt);
Key Int(std::string path, Default value = std::nullopt);
Key Number(std::string path, Default value = std::nullopt);
Key Text(std::string path, Default value = std::nullopt);
Key IntList(std::string path, Default value = std::nullopt);
Key TextList(std::string path, Default value = std::nullopt);
Key AnyMap(std::string path, Default value = std::nullopt);
Key Any(std::string path, Default value = std::nullopt);
Key Ignored(std::string path, std::string value);  // a warning unless it is `value`
Key Quiet(std::string path);
Key Pending(std::string path, std::string value);  // an error unless it is `value`
Key NotYet(std::string path);                      // an error unless it is null

// Bounds far above what anybody asks for: what lies beyond them is a slip, and would overflow somewhere.
inline constexpr double kMostSamples = 1 << 20;  // of a batch
inline constexpr double kMostGroup = 4096;       // samples of one prompt, which a generator takes in one call
inline constexpr double kMostTokens = 1 << 24;   // of a sequence
inline constexpr double kMostSteps = 1e9;
inline constexpr double kMostTemperature = 1000;
inline constexpr double kMostProcesses = 1024;            // of a role
inline constexpr double kMostSeconds = 30.0 * 24 * 3600;  // of a time-out
inline constexpr double kMostThreads = 1024;              // of a process

using Keys = std::vector<Key>;
void AddAlgorithmKeys(Keys& keys);   // grpo, sft, eval, loss_fn
void AddPolicyKeys(Keys& keys);      // policy but for its generation
void AddGenerationKeys(Keys& keys);  // policy.generation, generation, tokenizer
void AddDataKeys(Keys& keys);        // data, env
void AddRunKeys(Keys& keys);         // logger, checkpointing, cluster
void AddActorKeys(Keys& keys);       // actors
void AddLaterKeys(Keys& keys);       // trees of algorithms that are not implemented yet

const Keys& AllKeys();

// A bound as people write it: 1048576, 0.01.
std::string BoundText(double bound);

// The key for a path of the configuration, or null; and whether some key lies below `path`.
const Key* FindKey(std::string_view path);
bool IsTree(std::string_view path);

// The default for one algorithm; empty where the key has none, or where its tree means nothing to that algorithm.
std::optional<std::string> DefaultFor(const Key& key, Algorithm algorithm);

// The known key nearest to an unknown one, or empty where none is near.
std::string NearestKey(std::string_view path);

}  // namespace manta::config

// The trees data and env into DataConfig and EnvConfig.
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/config/reader.h"

namespace manta::config {
namespace {

// One dataset's keys: those of its own tree over data.default over `data` itself (the flat form).
class DatasetReader {
 public:
  DatasetReader(Reader& r, std::string own) : r_(r), trees_{std::move(own), "data.default", "data"} {}

  // The path of the key that counts, or empty. A null that is written down counts, and means "none".
  std::string PathOf(const std::string& name) const {
    for (const std::string& tree : trees_) {
      const std::string path = absl::StrCat(tree, ".", name);
      if (FindPath(r_.tree().root(), path) != nullptr) return path;
    }
    return "";
  }
  template <typename T>
  void Read(const std::string& name, T& out) {
    if (const std::string path = PathOf(name); !path.empty()) r_.Read(path, out);
  }
  void Fail(const std::string& name, const std::string& message) {
    const std::string path = PathOf(name);
    r_.Fail(path.empty() ? absl::StrCat(trees_[0], ".", name) : path, message);
  }
  // The text of the file that key `name` names.
  void ReadTextFile(const std::string& name, std::optional<std::string>& out) {
    std::optional<std::string> file;
    Read(name, file);
    if (!file || !r_.status().ok()) return;
    absl::StatusOr<std::string> text = ReadFile(*file, uint64_t{1} << 20);
    if (!text.ok()) return Fail(name, std::string(text.status().message()));
    out = *std::move(text);
  }

 private:
  Reader& r_;
  std::vector<std::string> trees_;
};

void ReadDataset(Reader& r, const std::string& own, const char* flat_path, DatasetConfig& d) {
  DatasetReader reader(r, own);
  d.where = r.tree().Where(own);
  reader.Read("dataset_name", d.dataset_name);
  if (d.dataset_name.empty()) return reader.Fail("dataset_name", "is missing, expected openai_format, ResponseDataset or gsm8k");
  if (d.dataset_name != "openai_format" && d.dataset_name != "ResponseDataset" && d.dataset_name != "gsm8k") {
    return reader.Fail("dataset_name", absl::StrCat("'", d.dataset_name, "' is not implemented, expected openai_format, "
                                                    "ResponseDataset or gsm8k, with data_path naming a JSONL file"));
  }
  std::optional<std::string> path;
  std::string path_key;
  // In its own tree `data_path` comes first; in the flat form train_data_path or val_data_path does.
  for (const std::string& key : {absl::StrCat(own, ".data_path"), absl::StrCat(own, ".", flat_path),
                                 absl::StrCat("data.train.", flat_path), absl::StrCat("data.default.", flat_path),
                                 absl::StrCat("data.", flat_path), std::string("data.data_path")}) {
    if (path || r.tree().Find(key) == nullptr) continue;
    r.Read(key, path);
    path_key = key;
  }
  if (!path || path->empty()) {
    return r.Fail(absl::StrCat(own, own == "data" ? "." : ".", own == "data" ? flat_path : "data_path"),
                  "is missing, expected the path of a JSONL file");
  }
  d.data_path = *path;
  d.where = r.tree().Where(path_key);
  if (d.dataset_name == "gsm8k") {
    d.input_key = "question";
    d.output_key = "answer";
  }
  std::optional<std::string> text;
  const auto read_or_keep = [&](const char* name, std::string& out) {
    text.reset();
    reader.Read(name, text);
    if (text) out = *text;
  };
  read_or_keep("chat_key", d.chat_key);
  read_or_keep("input_key", d.input_key);
  read_or_keep("output_key", d.output_key);
  read_or_keep("env_name", d.env_name);
  reader.Read("system_key", d.system_key);
  reader.Read("system_prompt", d.system_prompt);
  reader.ReadTextFile("system_prompt_file", d.system_prompt);
  reader.ReadTextFile("prompt_file", d.prompt_template);
  reader.Read("repeat", d.repeat);
  std::optional<int64_t> seed;
  reader.Read("seed", seed);
  if (seed) d.split_seed = static_cast<uint64_t>(*seed);
}

void ReadEnvironments(Reader& r, RunConfig& run) {
  if (const Node* env = r.tree().Find("env"); env != nullptr && env->is_map()) {
    for (size_t i = 0; i < env->keys.size(); ++i) {
      const std::string path = absl::StrCat("env.", env->keys[i]);
      EnvConfig e;
      e.name = env->keys[i];
      e.verifier = e.name;
      r.Read(path + ".verifier", e.verifier);
      r.Read(path + ".num_workers", e.num_workers);
      r.Read(path + ".deadline_ms", e.deadline_ms);
      if (env->items[i].is_map()) e.options_json = ToJson(env->items[i]);
      run.env[e.name] = std::move(e);
    }
  }
  if (run.algorithm == Algorithm::kSft) return;
  std::vector<const DatasetConfig*> datasets{&run.data.train};
  if (run.data.validation) datasets.push_back(&*run.data.validation);
  for (const DatasetConfig* dataset : datasets) {
    if (run.env.count(dataset->env_name) > 0) continue;
    if (dataset->env_name == "math") {  // the usual one needs no tree
      EnvConfig math;
      math.name = math.verifier = "math";
      run.env["math"] = std::move(math);
    } else {
      r.Fail(absl::StrCat("env.", dataset->env_name), "is missing, but a dataset has it as its env_name");
    }
  }
}

}  // namespace

void ReadData(Reader& r, RunConfig& run) {
  DataConfig& d = run.data;
  d.max_input_seq_length = run.policy.max_total_sequence_length;
  r.Read("data.max_input_seq_length", d.max_input_seq_length);
  r.Read("data.shuffle", d.shuffle);
  r.Read("data.add_bos", d.add_bos);
  r.Read("data.add_eos", d.add_eos);
  r.Read("data.add_generation_prompt", d.add_generation_prompt);
  const bool nested = r.tree().Find("data.train") != nullptr;
  ReadDataset(r, nested ? "data.train" : "data", "train_data_path", d.train);
  bool has_validation = r.tree().Find("data.validation") != nullptr;
  for (const char* tree : {"data", "data.train", "data.default"}) {
    has_validation = has_validation || r.tree().Find(absl::StrCat(tree, ".val_data_path")) != nullptr;
  }
  if (has_validation) {
    const bool own = r.tree().Find("data.validation") != nullptr;
    d.validation.emplace();
    ReadDataset(r, own ? "data.validation" : nested ? "data.train" : "data", "val_data_path", *d.validation);
    if (!own && r.status().ok()) {
      // The flat form names both files: the validation set is the other one.
      for (const char* tree : {"data", "data.train", "data.default"}) {
        const std::string key = absl::StrCat(tree, ".val_data_path");
        std::string path;
        r.Read(key, path);
        if (path.empty()) continue;
        d.validation->data_path = path;
        d.validation->where = r.tree().Where(key);
      }
    }
  } else if (run.algorithm == Algorithm::kGrpo) {
    d.train.split_validation_size = 0.05;
  }
  DatasetReader train(r, nested ? "data.train" : "data");
  train.Read("split_validation_size", d.train.split_validation_size);
  ReadEnvironments(r, run);
}

}  // namespace manta::config

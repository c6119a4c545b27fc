// Datasets, in each of their forms.
#include "controller/data/dataset.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* form : {"openai_format", "ResponseDataset", "gsm8k"}) {
    manta::config::DatasetConfig config;
    config.dataset_name = form;
    config.data_path = "fuzz.jsonl";
    if (config.dataset_name == "gsm8k") {
      config.input_key = "question";
      config.output_key = "answer";
    }
    (void)manta::controller::ParseDataset(text, "fuzz.jsonl", config);
  }
  return 0;
}

// A model's config.json, and the parameter table that follows from one that is accepted.
#include "common/model/config.h"
#include "common/model/parameter_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto config = manta::model::ParseModelConfig({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!config.ok()) return 0;
  (void)manta::model::ModelConfigText(*config, "bfloat16");
  if (config->num_layers <= 1000) (void)manta::model::ParameterTable(*config);
  return 0;
}

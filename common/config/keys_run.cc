// Keys of the trees logger, checkpointing and cluster.
#include "common/config/keys.h"

namespace manta::config {

void AddRunKeys(Keys& keys) {
  for (Key& key : Keys{
           Text("logger.log_dir", "logs"),
           Int("logger.num_val_samples_to_print", "0").AtLeast(0).AtMost(1000),
           Bool("logger.tensorboard_enabled", "false").Sft("true"),
           Quiet("logger.tensorboard"),
           Quiet("logger.tensorboard.**"),  // the events are in the run's folder, under tb/
           Ignored("logger.wandb_enabled", "false"),
           Ignored("logger.mlflow_enabled", "false"),
           Ignored("logger.swanlab_enabled", "false"),
           Quiet("logger.wandb.**"),
           Quiet("logger.mlflow.**"),
           Quiet("logger.swanlab.**"),
           Ignored("logger.monitor_gpus", "true"),
           Quiet("logger.gpu_monitoring.**"),
           Bool("checkpointing.enabled", "true"),
           Text("checkpointing.checkpoint_dir", "results/grpo").Sft("results/sft"),
           Text("checkpointing.metric_name", "val:accuracy").Sft("val:val_loss").Null(),
           Bool("checkpointing.higher_is_better", "true").Sft("false"),
           Int("checkpointing.keep_top_k", "3").AtLeast(1).Null(),
           Int("checkpointing.save_period", "10").AtLeast(1),
           Bool("checkpointing.save_optimizer", "true"),
           Text("checkpointing.model_save_format", "safetensors").OneOf("safetensors").Null(),
           Quiet("checkpointing.save_consolidated"),  // what is written is always one consolidated model
           Pending("checkpointing.checkpoint_must_save_by", "null"),
           Text("cluster.device", "auto").OneOf("auto|cpu|cuda"),
           Int("cluster.trainer_ranks", "0").AtLeast(0).AtMost(kMostProcesses),
           Int("cluster.generators", "1").AtLeast(1).AtMost(kMostProcesses),
           Int("cluster.reward_workers", "1").AtLeast(1).AtMost(kMostProcesses),
           Int("cluster.trainer_threads", "0").AtLeast(0).AtMost(kMostThreads),
           Int("cluster.generator_threads", "0").AtLeast(0).AtMost(kMostThreads),
           Int("cluster.gpus_per_node", "null").AtLeast(0).Null(),
           Number("cluster.progress_timeout_s", "1800").AtLeast(0).AtMost(kMostSeconds),
           Text("cluster.on_controller_loss", "wait").OneOf("wait|stop"),
           Int("cluster.max_controller_restarts", "3").AtLeast(0).AtMost(1000),
           Int("cluster.max_worker_restarts", "0").AtLeast(0).AtMost(1000),
           Int("cluster.num_nodes", "1").AtLeast(1).AtMost(kMostProcesses),
           Int("cluster.wait_for_nodes_s", "600").AtLeast(1).AtMost(7 * 24 * 3600),
           Ignored("cluster.master_port_range_low", "1400"),
           Ignored("cluster.master_port_range_high", "1999"),
           Ignored("cluster.segment_size", "null"),
       }) {
    keys.push_back(std::move(key));
  }
}

}  // namespace manta::config

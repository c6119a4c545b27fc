// Keys of the tree actors: groups of a user's own programs.
#include "common/config/keys.h"

namespace manta::config {

void AddActorKeys(Keys& keys) {
  for (Key& key : Keys{
           TextList("actors.*.command"),
           TextList("actors.*.args", "[]"),
           Text("actors.*.working_dir", "null").Null(),
           AnyMap("actors.*.env", "{}"),
           TextList("actors.*.env_allow", "[]"),
           Bool("actors.*.plain", "false"),
           Int("actors.*.ranks", "1").AtLeast(1).AtMost(kMostProcesses),
           Int("actors.*.cpus", "1").AtLeast(0).AtMost(1 << 16),
           Int("actors.*.gpus", "0").AtLeast(0).AtMost(64),
           Text("actors.*.gpu_slot", "null").Null(),
           Text("actors.*.memory", "null").Null(),
           AnyMap("actors.*.labels", "{}"),
           TextList("actors.*.avoid", "[]"),
           Text("actors.*.strategy", "pack").OneOf("pack|spread|strict_pack|strict_spread"),
           Int("actors.*.segment", "0").AtLeast(0).AtMost(kMostProcesses),
           Number("actors.*.placement_timeout_s", "30").AtLeast(0).AtMost(kMostSeconds),
           Number("actors.*.start_timeout_s", "60").AtLeast(0.001).AtMost(kMostSeconds),
           Number("actors.*.progress_timeout_s", "0").AtLeast(0).AtMost(kMostSeconds),
           Text("actors.*.restart.policy", "fail_job").OneOf("fail_job|restart_group|replace_one"),
           Int("actors.*.restart.max_restarts", "3").AtLeast(-1).AtMost(1e9),
           Number("actors.*.restart.backoff_s", "0.5").AtLeast(0.001).AtMost(kMostSeconds),
           Number("actors.*.restart.backoff_max_s", "60").AtLeast(0.001).AtMost(kMostSeconds),
           Number("actors.*.restart.reset_after_s", "600").AtLeast(0.001).AtMost(kMostSeconds),
           Text("actors.*.name", "null").Null(),
           Bool("actors.*.detached", "false"),
           Int("actors.*.ports", "0").AtLeast(0).AtMost(64),
           Bool("actors.*.torchrun", "false"),
           Bool("actors.*.prefork", "false"),
           Text("actors.*.limits.file_size", "null").Null(),
           Int("actors.*.limits.open_files", "0").AtLeast(0).AtMost(1 << 20),
       }) {
    keys.push_back(std::move(key));
  }
}

}  // namespace manta::config

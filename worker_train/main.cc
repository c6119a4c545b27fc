// manta-train: one rank of a trainer.
#include "absl/strings/str_cat.h"
#include "common/actor/worker.h"
#include "common/base/allocation.h"
#include "common/base/status.h"
#include "common/comm/weight_source.h"
#include "worker_train/service.h"

int main(int argc, char** argv) {
  auto worker = manta::actor::Worker::Create(argc, argv);
  if (!worker.ok()) return manta::actor::Fail(worker.status());
  if (const auto& rest = (*worker)->args(); !rest.empty()) {
    return manta::actor::Fail(manta::UserError("unknown argument " + rest[0]));
  }
  manta::KeepFreedMemory();
  manta::comm::WeightStoreOptions store_options;
  store_options.rank = (*worker)->rank();
  manta::comm::WeightStore store(store_options);
  manta::comm::WeightSourceService weights(&store);
  manta::actor::Lane& lane = (*worker)->AddLane("train", /*num_threads=*/1, /*capacity=*/8);
  manta::train::TrainerServiceImpl service({.lane = &lane,
                                            .store = &store,
                                            .nonce = (*worker)->token(),
                                            .epoch = (*worker)->epoch(),
                                            .on_step = [&](int64_t step) { (*worker)->ReportProgress(step); }});
  (*worker)->OnBeat([&] { return manta::actor::Load{.done = service.work_done()}; });
  (*worker)->OnPeerLost([&](int rank, const std::string& reason) {
    service.Abort(absl::StrCat("rank ", rank, " of the trainer is lost: ", reason));
  });
  (*worker)->OnStop([&] { service.Abort("the trainer is stopping"); });
  (*worker)->Register(&service);
  (*worker)->Register(&weights);
  return (*worker)->Run();
}

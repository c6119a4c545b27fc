// manta-gen: the process of one generator. See common/actor/worker.h for its flags and its end.
#include "common/actor/worker.h"
#include "common/base/allocation.h"
#include "common/base/status.h"
#include "worker_gen/service/generator_service.h"

int main(int argc, char** argv) {
  manta::KeepFreedMemory();
  auto worker = manta::actor::Worker::Create(argc, argv);
  if (!worker.ok()) return manta::actor::Fail(worker.status());
  if (const auto& rest = (*worker)->args(); !rest.empty()) {
    return manta::actor::Fail(manta::UserError("unknown argument " + rest[0]));
  }
  manta::gen::GeneratorService service(&(*worker)->AddLane("control", /*num_threads=*/1, /*capacity=*/64),
                                       [&](const std::string& address) { return (*worker)->OpenChannel(address); });
  (*worker)->Register(&service);
  (*worker)->OnStop([&] { service.BeginStop(); });
  (*worker)->OnBeat([&] { return service.load(); });
  return (*worker)->Run();
}

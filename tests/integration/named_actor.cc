// An actor for tests of names: "who" answers with its process id, "hang" does not answer.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/actor/worker.h"

int main(int argc, char** argv) {
  auto worker = manta::actor::Worker::Create(argc, argv);
  if (!worker.ok()) return manta::actor::Fail(worker.status());
  std::fprintf(stderr, "the last words of %s\n", (*worker)->actor_id().c_str());
  (*worker)->HandleBytes("who",
                         [](manta::actor::CallContext&, std::string* reply) {
                           *reply = absl::StrCat(getpid());
                           return absl::OkStatus();
                         },
                         {.idempotent = true});
  (*worker)->HandleBytes("hang", [](manta::actor::CallContext& context, std::string*) {
    while (!context.cancelled()) absl::SleepFor(absl::Milliseconds(1));
    return absl::CancelledError("cancelled");
  });
  return (*worker)->Run();
}

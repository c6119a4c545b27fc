// An actor for tests of durability: each call "count" writes its argument as a line of the file that its first argument
// names, before it answers. So the file says how often each call has run, whatever its caller was told.
#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "absl/status/status.h"
#include "common/actor/worker.h"

int main(int argc, char** argv) {
  auto worker = manta::actor::Worker::Create(argc, argv);
  if (!worker.ok()) return manta::actor::Fail(worker.status());
  if ((*worker)->args().empty()) {
    return manta::actor::Fail(absl::InvalidArgumentError("counting_actor: expected a file's name"));
  }
  const int file = open((*worker)->args()[0].c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return manta::actor::Fail(absl::InternalError("cannot open the file"));
  (*worker)->HandleBytes("count", [file](manta::actor::CallContext& context, std::string* reply) {
    const auto argument = context.argument();
    *reply = std::string(reinterpret_cast<const char*>(argument.data()), argument.size());
    const std::string line = *reply + "\n";
    if (write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      return absl::InternalError("cannot write the file");
    }
    return absl::OkStatus();
  });
  return (*worker)->Run();
}

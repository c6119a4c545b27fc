// Python in a cluster with certificates: its actors and clients speak mutual TLS with those in C++ and with each other,
// through the renewal of all certificates; who is of another job, or in another role, is refused.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/actor/client.h"
#include "common/base/file.h"
#include "common/rpc/certificates.h"
#include "common/rpc/tls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/python_program.h"
#include "tests/testing/build_dir.h"
#include "tests/testing/launched_cluster.h"

namespace manta::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kActor[] = R"(
import manta


class Middle(manta.Actor):

    @manta.method(lane="ask")
    def ask(self, request, context):  # as the actor that it is
        return b"it says " + manta.Client().actor("cpp").call("who", timeout=20)

    @manta.method()
    def echo(self, request, context):
        return request


manta.serve(Middle())
)";

constexpr char kClient[] = R"(
import os, subprocess, sys, time
import manta

manta_program, other_certificates, address_of_cpp = sys.argv[1:]
client = manta.Client()
pid = client.actor("cpp").call("who", timeout=20)
assert pid.isdigit(), pid
assert client.actor("python").call("echo", b"x" * 100000, timeout=20) == b"x" * 100000
assert client.actor("python").call("ask", timeout=20) == b"it says " + pid

# All certificates are renewed: connections that stand go on, and new ones show the new.
before = dict(client._channels)
subprocess.run([manta_program, "init-certs", os.environ["MANTA_TLS_DIR"]], check=True, stdout=subprocess.DEVNULL)
for _ in range(12):
    assert client.actor("python").call("echo", b"y", timeout=20) == b"y"
    assert client.actor("cpp").call("who", timeout=20) == pid
    time.sleep(0.25)
assert all(client._channels[address] != channel for address, channel in before.items()), "new channels"
again = manta.Client()
assert again.actor("python").call("ask", timeout=20) == b"it says " + pid


def refused(certificates, address, mention):
    os.environ["MANTA_TLS_DIR"] = certificates
    stranger = manta.Client()
    stranger.address = address
    try:
        for reply in stranger._rpc(address, "unary_stream", "/manta.v1.ClusterService/Resolve",
                                   manta.client.cluster_pb2.ResolveReply)(
                                       manta.client.cluster_pb2.ResolveRequest(name="cpp"), timeout=5,
                                       metadata=stranger._metadata()):
            raise AssertionError("it was let in")
    except manta.client.grpc.RpcError as error:
        failure = manta.client._error_of(error)
        assert failure.code == "UNAVAILABLE" and mention in failure.message, failure


own = os.environ["MANTA_TLS_DIR"]
refused(other_certificates, client.address, "")
refused(own, address_of_cpp, "of this job and role")  # a worker's certificate, where the controller's is expected
print("done")
)";

TEST(PythonTls, ActorsAndClients) {
  const PythonProgram python = PythonProgram::Find();
  if (!python.missing.empty()) GTEST_SKIP() << "python-grpcio: " << python.missing;
  const fs::path dir = fs::path(::testing::TempDir()) / absl::StrCat("python-tls-", getpid());
  fs::create_directories(dir);
  ASSERT_TRUE(rpc::InitCertificates(dir / "certs", {.job = "job_1.test"}).ok());
  ASSERT_TRUE(rpc::InitCertificates(dir / "others", {.job = "job_1.test"}).ok());
  setenv("MANTA_TLS_DIR", (dir / "certs").c_str(), 1);
  ASSERT_TRUE(rpc::UseTlsFromEnvironment("", v1::ROLE_ADMIN).ok());
  const fs::path bin = BuildDir() / "bin";
  auto cluster = LaunchedCluster::Launch(bin, "python_tls", 4);
  ASSERT_TRUE(cluster.ok()) << cluster.status();

  std::ofstream(dir / "middle.py") << kActor;
  std::ofstream(dir / "client.py") << kClient;
  std::string address_of_cpp;
  for (const char* role : {"cpp", "python"}) {
    v1::GroupRequest request;
    request.set_role(role);
    request.set_name(role);
    const bool is_python = role == std::string("python");
    request.set_executable(is_python ? python.python : (bin / "named_actor").string());
    if (is_python) request.add_args((dir / "middle.py").string());
    (*request.mutable_env())["PYTHONPATH"] = python.path;
    request.mutable_restart()->set_kind(v1::RestartPolicy::FAIL_JOB);
    request.mutable_placement()->add_bundles()->set_cpu_slots(1);
    request.mutable_placement()->set_repeat(1);
    request.mutable_placement()->set_deadline_ms(20000);
    const auto reply = (*cluster)->CreateGroup(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    if (!is_python) address_of_cpp = reply->ranks(0).address();
  }
  auto client =
      actor::Client::Create({.token = (*cluster)->token(), .head = [&] { return (*cluster)->address(); }}).value();
  const auto asked = client->Actor("python").CallBytes("ask", "", {.deadline = absl::Seconds(20)});
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_THAT(*asked, ::testing::StartsWith("it says "));

  const fs::path out = dir / "client.out";
  const int log = open(out.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  auto process = Process::Spawn(
      {.executable = python.python,
       .args = {(dir / "client.py").string(), (bin / "manta").string(), (dir / "others").string(), address_of_cpp},
       .env = {{"PYTHONPATH", python.path}, {"MANTA_DIR", (*cluster)->dir().string()}},
       .stdout_fd = log,
       .stderr_fd = log});
  close(log);
  ASSERT_TRUE(process.ok()) << process.status();
  const auto exit = process->WaitFor(absl::Seconds(60));
  EXPECT_TRUE(exit.has_value() && exit->code == 0) << ReadFile(out).value_or("");
  if (!exit.has_value()) process->Signal(SIGKILL);
  client.reset();
  cluster->reset();
  if (!HasFailure()) fs::remove_all(dir);
}

}  // namespace
}  // namespace manta::testing

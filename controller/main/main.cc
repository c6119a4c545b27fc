// manta-controller: the head of a run.
#include "controller/algorithms/run.h"
#include "controller/main/run_controller.h"

int main(int argc, char** argv) {
  return manta::controller::ControllerMain(argc, argv, [](manta::controller::RunContext context) {
    return manta::controller::RunAlgorithm(std::move(context));
  });
}

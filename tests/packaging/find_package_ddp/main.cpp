// A user's first training program, with the installed library.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  auto group = lockstep::make_tensor_group(lockstep::ProcessGroup::create_threads(1).front());
  torch::nn::Linear model(4, 2);
  lockstep::DistributedDataParallel ddp(model, {.process_group = group});
  ddp(torch::ones({3, 4})).sum().backward();
  if (model->weight.grad()[0][0].item<float>() != 3) return 1;
  try {
    lockstep::broadcast(model->weight, /*src=*/7, {.group = group});
  } catch (const lockstep::Error& error) {
    std::printf("lockstep %s refused root 7: %s\n", LOCKSTEP_VERSION, error.what());
    return 0;
  }
  return 1;
}

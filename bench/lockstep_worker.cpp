// Lockstep, through its public interface only.
#include "lockstep/communicator/communicator.h"

#include "bench/worker/worker.h"

namespace lockstep::bench {
namespace {

class LockstepEngine final : public Engine {
 public:
  explicit LockstepEngine(const WorkerConfig& config)
      : group_(Communicator::create({.init_method = config.rendezvous,
                                     .rank = config.rank,
                                     .world_size = config.size,
                                     .group = {.network_interface = config.address}})) {}

  std::string refusal(Collective, DType) const override { return ""; }

  std::byte* allocate(std::size_t bytes, Memory memory) override {
    if (memory == Memory::private_memory) return Engine::allocate(bytes, memory);
    registered_.push_back(group_->allocate(bytes));
    return registered_.back()->data();
  }

  std::function<void()> bind(const Operation& operation) override {
    const ConstBuffer in(operation.input, operation.shape.input_count, operation.dtype);
    const Buffer out(operation.output, operation.shape.output_count, operation.dtype);
    Communicator* const group = group_.get();
    switch (operation.collective) {
      case Collective::all_reduce: return [=] { group->all_reduce(out); };
      case Collective::broadcast: return [=] { group->broadcast(out, kRoot); };
      case Collective::all_gather: return [=] { group->all_gather(in, out); };
      case Collective::reduce_scatter: return [=] { group->reduce_scatter(in, out); };
      case Collective::barrier: break;
    }
    return [=] { group->barrier(); };
  }

 private:
  std::shared_ptr<Communicator> group_;
  std::vector<std::shared_ptr<RegisteredMemory>> registered_;
};

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return worker_main(argc, argv, [](const WorkerConfig& config) { return std::make_unique<LockstepEngine>(config); });
}

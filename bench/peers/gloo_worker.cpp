// Gloo over TCP, its only transport on a plain machine.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <cstring>

#include "bench/worker/channel.h"
#include "bench/worker/worker.h"

namespace lockstep::bench {
namespace {

// Gloo took its store by reference until 2025, and takes it by pointer since then.
template <typename Context, typename Store, typename Device>
void connect(Context& context, const std::shared_ptr<Store>& store, Device& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(store, device);
  } else {
    context.connectFullMesh(*store, device);
  }
}

class GlooEngine final : public Engine {
 public:
  explicit GlooEngine(const WorkerConfig& config) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = config.address.empty() ? "127.0.0.1" : config.address;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    const auto store = std::make_shared<gloo::rendezvous::FileStore>(config.rendezvous);
    auto context = std::make_shared<gloo::rendezvous::Context>(config.rank, config.size);
    connect(*context, store, device);
    context_ = context;
  }

  std::string refusal(Collective collective, DType dtype) const override {
    if (dtype == DType::bf16) return "Gloo has no bf16";
    const bool power_of_two = (context_->size & (context_->size - 1)) == 0;
    if (collective == Collective::reduce_scatter && !power_of_two)
      return "Gloo's reduce-scatter (halving and doubling) needs a power of two as the number of ranks";
    return "";
  }

  std::function<void()> bind(const Operation& operation) override {
    switch (operation.dtype) {
      case DType::f32: return bind_as<float>(operation);
      case DType::f64: return bind_as<double>(operation);
      case DType::f16: return bind_as<gloo::float16>(operation);
      case DType::i8: return bind_as<std::int8_t>(operation);
      case DType::u8: return bind_as<std::uint8_t>(operation);
      case DType::i32: return bind_as<std::int32_t>(operation);
      case DType::i64: return bind_as<std::int64_t>(operation);
      case DType::bf16: break;
    }
    throw BenchError("Gloo has no bf16");
  }

 private:
  template <typename T>
  std::function<void()> bind_as(const Operation& operation) {
    T* const in = static_cast<T*>(operation.input);
    T* const out = static_cast<T*>(operation.output);
    const Shape& shape = operation.shape;
    switch (operation.collective) {
      case Collective::all_reduce: {
        auto options = std::make_shared<gloo::AllreduceOptions>(context_);
        options->setOutput(out, shape.output_count);
        void (*const sum)(void*, const void*, const void*, std::size_t) = &gloo::sum<T>;
        options->setReduceFunction(sum);
        return [options] { gloo::allreduce(*options); };
      }
      case Collective::broadcast: {
        auto options = std::make_shared<gloo::BroadcastOptions>(context_);
        options->setOutput(out, shape.output_count);
        options->setRoot(kRoot);
        return [options] { gloo::broadcast(*options); };
      }
      case Collective::all_gather: {
        auto options = std::make_shared<gloo::AllgatherOptions>(context_);
        options->setInput(in, shape.input_count);
        options->setOutput(out, shape.output_count);
        return [options] { gloo::allgather(*options); };
      }
      case Collective::reduce_scatter: {
        // It works in place and leaves this rank's part at the front, so that a caller must copy it to the output.
        const std::vector<int> parts(static_cast<std::size_t>(context_->size), static_cast<int>(shape.output_count));
        auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<T>>(
            context_, std::vector<T*>{in}, static_cast<int>(shape.input_count), parts);
        return [algorithm, in, out, bytes = shape.output_count * sizeof(T)] {
          algorithm->run();
          std::memcpy(static_cast<void*>(out), in, bytes);
        };
      }
      case Collective::barrier: break;
    }
    auto options = std::make_shared<gloo::BarrierOptions>(context_);
    return [options] { gloo::barrier(*options); };
  }

  std::shared_ptr<gloo::Context> context_;
};

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return worker_main(argc, argv, [](const WorkerConfig& config) { return std::make_unique<GlooEngine>(config); });
}

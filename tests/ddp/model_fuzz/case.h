// One case of the model fuzzer, as data: a model, DDP's options, and a training loop.
//
// A case is made from a seed (generate.h), made smaller by edits (shrink.h), run (run_case.h) and printed as C++
// (print_cpp.h). Nothing here depends on torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::fuzz {

enum class Type { f32, f64, bf16 };
std::int64_t bytes_of(Type type);

using Shape = std::vector<std::int64_t>;
// As the first dimension of a shape: the number of samples, which differs between ranks and steps.
inline constexpr std::int64_t kBatch = -1;

struct Parameter {
  Shape shape;
  Type type = Type::f32;
  bool frozen = false;     // requires no gradient
  bool ignored = false;    // in DdpOptions::parameters_to_ignore
  bool two_names = false;  // registered under a second name
  bool hooked = false;     // a tensor hook keeps its local gradients
  std::int64_t bytes() const;
};

// What forward() takes. The first one's rows are the samples.
struct Input {
  Shape shape;              // with kBatch first
  std::int64_t tokens = 0;  // > 0: integers below this; 0: floating point
  bool requires_grad = false;
};

enum class Op {
  // Leaves.
  parameter,  // numbers: its index
  input,      // numbers: its index
  data,       // a constant of the given shape, other on each rank and in each step
  hole,       // the argument of a checkpointed segment
  // Views. numbers as LibTorch's arguments; the shape is the node's.
  view,
  unsqueeze,
  squeeze,
  transpose,
  narrow,
  slice,  // every second element of a dimension
  select,
  expand,
  // Parts and types.
  index_select,  // of dimension 0, with constant indices: row i is (i * numbers[0] + numbers[1]) % size
  cat,           // along dimension numbers[0]
  to_type,
  contiguous,
  // Arithmetic, with broadcasting.
  add,
  mul,
  scale,  // by 0.5
  tanh,
  sigmoid,
  relu,
  mean,  // over dimension numbers[0]
  sum,
  // In place; the result is the first argument.
  relu_,
  add_,
  narrow_add_,  // in[0].narrow(numbers...).add_(in[1])
  // Layers.
  linear,     // x, weight [, bias]
  matmul,     // x, matrix
  embedding,  // tokens, table; numbers[0]: embedding, index_select or index
  conv1d,     // x, weight, bias; the length stays
  conv2d,     // x, weight
  layer_norm,
  batch_norm,  // x, weight, bias; numbers[0]: which one, for its buffers
  attention,   // x, query, key, value
  // Control.
  gate,        // in[1] on the ranks of the mask numbers[0], in[0] elsewhere; numbers[1]: other ranks in other steps
  checkpoint,  // in[0] through the segment whose hole is in[1] and whose result is in[2], run again in backward
};

struct Node {
  Op op = Op::input;
  std::vector<int> in;  // earlier nodes
  std::vector<std::int64_t> numbers;
  Shape shape;
  Type type = Type::f32;
  int segment = -1;     // >= 0: inside of a checkpointed segment
  bool retain = false;  // retain_grad()
  bool hooked = false;  // a tensor hook keeps the gradient
};

enum class Loss { sum, square, weighted };
struct Output {
  int node = 0;
  Loss loss = Loss::sum;
};

struct Model {
  std::vector<Parameter> parameters;
  std::vector<Input> inputs;
  std::vector<Node> nodes;  // evaluated in this order
  std::vector<Output> outputs;
};

enum class Hook { none, all_reduce, fp16, bf16, int8, power_sgd, noop, post_local_sgd };

struct Options {
  std::int64_t bucket_cap_bytes = 25 << 20;
  std::int64_t first_bucket_bytes = 1 << 20;
  bool broadcast_buffers = true;
  bool init_sync = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = false;
  bool sample_weighted = false;
  int verify_every = 0;
  Hook hook = Hook::none;
  std::int64_t hook_start = 1000;  // power_sgd's start_iteration, post_local_sgd's start_step
};

enum class Zero { none, to_undefined, in_place, in_own_memory };  // the last: views of memory of the program

struct Training {
  int world = 2;
  int steps = 1;
  int micro_batches = 1;        // all but the last under no_sync
  int forwards = 1;             // per backward
  bool backward_twice = false;  // over the same graph
  Zero zero = Zero::to_undefined;
  bool keep_gradients = false;  // the program keeps `auto g = p.grad()`
  bool mean_loss = false;       // NaN for an empty batch
  bool evaluate = false;        // a forward without gradients after each step
  bool momentum = false;
  std::vector<int> join_steps;  // by rank; empty: no join
  bool divide_by_world = true;  // JoinOptions
  std::vector<int> batches;     // samples, used in turn: see batch()
  int batch(int step, int micro, int rank) const {
    return batches[static_cast<std::size_t>((step * micro_batches + micro) * world + rank) % batches.size()];
  }
  bool equal_batches() const;  // and none is empty
  bool joins() const { return !join_steps.empty(); }
};

struct Case {
  std::uint64_t seed = 0;
  std::vector<int> edits;  // that were applied to what the seed gives
  Model model;
  Options options;
  Training training;
};

// Which parameters a step can use.
struct Usage {
  std::vector<bool> always;      // on every rank, in every step
  std::vector<bool> sometimes;   // behind a gate
  std::vector<int> accumulated;  // how many backward passes (the outer one, segments) reach it
};
Usage usage_of(const Model& model);
bool contains(const Model& model, Op op);

// Removes nodes and inputs that no output depends on. Parameters stay: they may be unused on purpose.
void remove_dead_nodes(Model& model);

const char* name_of(Op op);
const char* name_of(Hook hook);
const char* name_of(Type type);
// Options, training and sizes of the model, on one line.
std::string describe(const Case& item);

}  // namespace lockstep::fuzz

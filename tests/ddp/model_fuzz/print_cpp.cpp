#include "ddp/model_fuzz/print_cpp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::fuzz {

namespace {

const char* torch_name(Type type) {
  return type == Type::f32 ? "torch::kFloat" : type == Type::f64 ? "torch::kDouble" : "torch::kBFloat16";
}

class Printer {
 public:
  explicit Printer(const Case& item) : case_(item), model_(item.model) {}

  std::string print() {
    line(0, "// ddp_model_fuzz --one {}{}", case_.seed,
         case_.edits.empty() ? "" : fmt::format(" --edits {}", fmt::join(case_.edits, ",")));
    line(0, "// {}", describe(case_));
    module();
    test();
    return text_;
  }

 private:
  template <typename... Arguments>
  void line(int indent, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += std::string(static_cast<std::size_t>(2 * indent), ' ') +
             fmt::format(format, std::forward<Arguments>(arguments)...) + '\n';
  }

  bool watches() const {
    return std::any_of(model_.nodes.begin(), model_.nodes.end(), [](const Node& n) { return n.retain || n.hooked; }) ||
           std::any_of(model_.parameters.begin(), model_.parameters.end(), [](const Parameter& p) { return p.hooked; });
  }

  void module() {
    line(0, "struct FuzzedModel : torch::nn::Module {{");
    line(1, "FuzzedModel() {{");
    for (std::size_t p = 0; p < model_.parameters.size(); ++p) {
      const Parameter& parameter = model_.parameters[p];
      line(2, "p{} = register_parameter(\"p{}\", values({{{}}}, {}, {}), {});", p, p, fmt::join(parameter.shape, ", "),
           100 + p, torch_name(parameter.type), !parameter.frozen);
      if (parameter.two_names) line(2, "register_parameter(\"p{}_again\", p{}, {});", p, p, !parameter.frozen);
      if (parameter.hooked && !parameter.frozen) {
        line(2, "p{}.register_hook([this](const at::Tensor& gradient) {{ kept.push_back(gradient); }});", p);
      }
    }
    std::string members;
    for (const Node& node : model_.nodes) {
      if (node.op != Op::batch_norm) continue;
      const std::int64_t n = node.numbers[0];
      line(2, "mean{0} = register_buffer(\"mean{0}\", at::zeros({{{1}}}, {2}));", n, node.shape[1],
           torch_name(node.type));
      line(2, "variance{0} = register_buffer(\"variance{0}\", at::ones({{{1}}}, {2}));", n, node.shape[1],
           torch_name(node.type));
      members += fmt::format(", mean{0}, variance{0}", n);
    }
    line(1, "}}");
    line(1, "std::vector<at::Tensor> forward({}) {{", fmt::join(input_declarations(), ", "));
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      if (model_.nodes[i].segment < 0) node(2, i);
    }
    std::vector<std::string> outputs;
    for (const Output& output : model_.outputs) outputs.push_back(fmt::format("v{}", output.node));
    line(2, "return {{{}}};", fmt::join(outputs, ", "));
    line(1, "}}");
    line(1, "int rank = 0, step = 0;");
    if (watches()) line(1, "std::vector<at::Tensor> kept, retained;  // gradients, values with gradients");
    for (std::size_t p = 0; p < model_.parameters.size(); ++p) members += fmt::format(", p{}", p);
    line(1, "at::Tensor {};", members.substr(2));
    line(0, "}};\n");
  }

  std::vector<std::string> input_declarations() const {
    std::vector<std::string> result;
    for (std::size_t i = 0; i < model_.inputs.size(); ++i) result.push_back(fmt::format("const at::Tensor& x{}", i));
    return result;
  }

  void node(int indent, std::size_t i) {
    const Node& n = model_.nodes[i];
    if (n.op == Op::hole) return;
    if (n.op == Op::checkpoint) {
      const auto hole = static_cast<std::size_t>(n.in[1]);
      line(indent, "const at::Tensor v{} = checkpoint([this](const at::Tensor& v{}) {{", i, hole);
      for (std::size_t k = hole; k <= static_cast<std::size_t>(n.in[2]); ++k) {
        if (model_.nodes[k].segment == model_.nodes[hole].segment) node(indent + 1, k);
      }
      line(indent + 1, "return v{};", n.in[2]);
      line(indent, "}}, v{});", n.in[0]);
    } else if (n.op == Op::narrow_add_) {
      line(indent, "v{}.narrow({}).add_(v{});", n.in[0], fmt::join(n.numbers, ", "), n.in[1]);
      line(indent, "const at::Tensor v{} = v{};", i, n.in[0]);
    } else {
      line(indent, "const at::Tensor v{} = {};", i, expression(n));
    }
    if (n.retain) {
      line(indent, "if (v{0}.requires_grad()) v{0}.retain_grad(), retained.push_back(v{0});", i);
    }
    if (n.hooked) {
      line(indent,
           "if (v{0}.requires_grad()) v{0}.register_hook([this](const at::Tensor& g) {{ kept.push_back(g); }});", i);
    }
  }

  // Sizes, with the batch's from a value that has it.
  std::string sizes(const Node& n) const {
    std::vector<std::string> result;
    for (std::int64_t size : n.shape)
      result.push_back(size == kBatch ? fmt::format("v{}.size(0)", n.in[0]) : std::to_string(size));
    return fmt::format("{{{}}}", fmt::join(result, ", "));
  }

  std::string expression(const Node& n) const {
    const auto in = [&](std::size_t k) { return fmt::format("v{}", n.in[k]); };
    const std::string numbers = fmt::format("{}", fmt::join(n.numbers, ", "));
    switch (n.op) {
      case Op::parameter: return fmt::format("p{}", n.numbers[0]);
      case Op::input: return fmt::format("x{}", n.numbers[0]);
      case Op::data:
        return fmt::format("values({}, {} + batch_salt(rank, step, 0, 0), {})", sizes(n), n.numbers[0],
                           torch_name(n.type));
      case Op::view: return fmt::format("{}.reshape({})", in(0), sizes(n));
      case Op::expand: return fmt::format("{}.expand({})", in(0), sizes(n));
      case Op::slice: return fmt::format("{}.slice({}, c10::nullopt, c10::nullopt, 2)", in(0), numbers);
      case Op::index_select: return fmt::format("rows({}, {}, {})", in(0), n.shape[0], numbers);
      case Op::cat: return fmt::format("torch::cat({{{}, {}}}, {})", in(0), in(1), numbers);
      case Op::to_type: return fmt::format("{}.to({})", in(0), torch_name(n.type));
      case Op::add: return fmt::format("{} + {}", in(0), in(1));
      case Op::mul: return fmt::format("{} * {}", in(0), in(1));
      case Op::scale: return fmt::format("{} * 0.5", in(0));
      case Op::tanh:
      case Op::sigmoid:
      case Op::relu: return fmt::format("torch::{}({})", name_of(n.op), in(0));
      case Op::sum: return fmt::format("{}.sum({}) * 0.01", in(0), numbers);
      case Op::gate:
        return fmt::format("passes({}, {}, rank, step) ? {} : {}", n.numbers[0], n.numbers[1] != 0, in(1), in(0));
      case Op::add_: return fmt::format("{}.add_({})", in(0), in(1));
      case Op::linear: return fmt::format("torch::linear({}, {}{})", in(0), in(1), n.in.size() > 2 ? ", " + in(2) : "");
      case Op::matmul: return fmt::format("{}.matmul({})", in(0), in(1));
      case Op::embedding:
        if (n.numbers[0] == 0) return fmt::format("torch::embedding({}, {})", in(1), in(0));
        if (n.numbers[0] == 1)
          return fmt::format("{}.index_select(0, {}.flatten()).reshape({})", in(1), in(0), sizes(n));
        return fmt::format("{}.index({{{}}})", in(1), in(0));
      case Op::conv1d: return fmt::format("torch::conv1d({}, {}, {}, 1, 1)", in(0), in(1), in(2));
      case Op::conv2d: return fmt::format("torch::conv2d({}, {}, {{}}, 1, 1)", in(0), in(1));
      case Op::layer_norm:
        return fmt::format("torch::layer_norm({}, {{{}}}, {}, {})", in(0), n.shape.back(), in(1), in(2));
      case Op::batch_norm:
        return fmt::format(
            "torch::batch_norm({}, {}.contiguous(), {}.contiguous(), mean{}, variance{}, is_training(), 0.1, 1e-3, "
            "false)",
            in(0), in(1), in(2), n.numbers[0], n.numbers[0]);
      case Op::attention: return fmt::format("attention({}, {}, {}, {})", in(0), in(1), in(2), in(3));
      default: return fmt::format("{}.{}({})", in(0), name_of(n.op), numbers);
    }
  }

  std::vector<std::string> ignored() const {
    std::vector<std::string> result;
    for (std::size_t p = 0; p < model_.parameters.size(); ++p) {
      if (model_.parameters[p].ignored) result.push_back(fmt::format("\"p{}\"", p));
    }
    return result;
  }

  std::string options() const {
    const Options& o = case_.options;
    std::string result = ".process_group = group";
    const auto add = [&result](bool present, const std::string& what) {
      if (present) result += ", " + what;
    };
    add(o.bucket_cap_bytes != Options().bucket_cap_bytes,
        fmt::format(".bucket_cap_mb = {} / 1048576.0", o.bucket_cap_bytes));
    add(o.first_bucket_bytes != Options().first_bucket_bytes,
        fmt::format(".first_bucket_mb = {} / 1048576.0", o.first_bucket_bytes));
    add(!o.broadcast_buffers, ".broadcast_buffers = false");
    add(!o.init_sync, ".init_sync = false");
    add(o.find_unused_parameters, ".find_unused_parameters = true");
    add(o.static_graph, ".static_graph = true");
    add(o.gradient_as_bucket_view, ".gradient_as_bucket_view = true");
    add(!ignored().empty(), fmt::format(".parameters_to_ignore = {{{}}}", fmt::join(ignored(), ", ")));
    add(o.sample_weighted, ".sample_weighted = true");
    add(o.verify_every > 0, fmt::format(".verify_every = {}", o.verify_every));
    return result;
  }

  std::string hook() const {
    switch (case_.options.hook) {
      case Hook::none: return "";
      case Hook::all_reduce: return "all_reduce_hook()";
      case Hook::fp16: return "fp16_compress_hook()";
      case Hook::bf16: return "bf16_compress_hook()";
      case Hook::int8: return "int8_compress_hook()";
      case Hook::power_sgd:
        return fmt::format("power_sgd_hook({{.start_iteration = {}, .min_compression_rate = 1}})",
                           case_.options.hook_start);
      case Hook::noop: return "noop_hook()";
      case Hook::post_local_sgd:
        return fmt::format("post_local_sgd_hook({{.start_step = {}}})", case_.options.hook_start);
    }
    return "";
  }

  std::vector<std::string> inputs() const {
    std::vector<std::string> result;
    for (std::size_t i = 0; i < model_.inputs.size(); ++i) {
      const Input& input = model_.inputs[i];
      std::string sizes = "samples";
      for (std::size_t d = 1; d < input.shape.size(); ++d) sizes += fmt::format(", {}", input.shape[d]);
      const std::string salt = i == 0 ? "salt" : fmt::format("salt + {}", 1000 * i);
      Type type = Type::f32;
      for (const Node& n : model_.nodes) {
        if (n.op == Op::input && n.numbers[0] == static_cast<std::int64_t>(i)) type = n.type;
      }
      result.push_back(input.tokens > 0 ? fmt::format("tokens({{{}}}, {}, {})", sizes, salt, input.tokens)
                                        : fmt::format("values({{{}}}, {}, {}){}", sizes, salt, torch_name(type),
                                                      input.requires_grad ? ".requires_grad_(true)" : ""));
    }
    return result;
  }

  std::string loss() const {
    std::vector<std::string> terms;
    for (std::size_t i = 0; i < model_.outputs.size(); ++i) {
      switch (model_.outputs[i].loss) {
        case Loss::sum: terms.push_back(fmt::format("y[{}].sum()", i)); break;
        case Loss::square: terms.push_back(fmt::format("y[{}].pow(2).sum()", i)); break;
        case Loss::weighted:
          terms.push_back(
              fmt::format("(y[{0}] * values(y[{0}].sizes().slice(1), {1}, y[{0}].scalar_type())).sum()", i, 5 + i));
      }
    }
    return fmt::format("({}) / {}", fmt::join(terms, " + "),
                       case_.training.mean_loss ? "samples" : "std::max(samples, 1)");
  }

  void test() {
    const Training& t = case_.training;
    line(0, "TEST(DdpFuzzed, Seed{}) {{", case_.seed);
    line(1, "run_ranks({}, [](const Group& group) {{", t.world);
    line(2, "const int rank = group->rank();");
    line(2, "const auto net = std::make_shared<FuzzedModel>(), alone = std::make_shared<FuzzedModel>();");
    line(2, "DistributedDataParallel ddp(net, {{{}}});", options());
    if (!hook().empty()) line(2, "ddp.register_comm_hook({});", hook());
    line(2, "torch::optim::SGD optimizer(trained(*net), torch::optim::SGDOptions(0.05).momentum({}));",
         t.momentum && !t.joins() ? 0.9 : 0.0);
    line(2, "const std::vector<int> batches = {{{}}};", fmt::join(t.batches, ", "));
    line(2, "const auto loss_of = [&](auto&& forward, int step, int micro) {{");
    line(3, "const int samples = batches[std::size_t((step * {} + micro) * {} + rank) % batches.size()];",
         t.micro_batches, t.world);
    line(3, "at::Tensor loss = at::zeros({{}});");
    line(3, "for (int f = 0; f < {}; ++f) {{", t.forwards);
    line(4, "const std::int64_t salt = batch_salt(rank, step, micro, f);");
    line(4, "const std::vector<at::Tensor> y = forward({});", fmt::join(inputs(), ", "));
    line(4, "loss = loss + {};", loss());
    line(3, "}}");
    line(3, "return loss / {};", t.micro_batches);
    line(2, "}};");
    if (t.joins()) {
      joined();
    } else {
      loop();
    }
    line(1, "}});");
    line(0, "}}");
  }

  std::string zero() const {
    switch (case_.training.zero) {
      case Zero::none: return "";
      case Zero::to_undefined: return "for (at::Tensor& p : net->parameters()) p.mutable_grad() = at::Tensor();";
      case Zero::in_place: return "net->zero_grad();";
      case Zero::in_own_memory:
        return "for (at::Tensor& p : trained(*net)) p.mutable_grad() = at::zeros({p.numel() + 3}, p.options()"
               ".requires_grad(false)).narrow(0, 1, p.numel()).view(p.sizes());";
    }
    return "";
  }

  void ddp_pass(int indent) {
    const Training& t = case_.training;
    line(indent, "const auto with_ddp = [&](const auto&... x) {{ return ddp(x...); }};");
    for (int micro = 0; micro + 1 < t.micro_batches; ++micro) {
      line(indent, "{{");
      line(indent + 1, "const auto guard = ddp.no_sync();");
      line(indent + 1, "loss_of(with_ddp, step, {}).backward();", micro);
      line(indent, "}}");
    }
    line(indent, "const at::Tensor loss = loss_of(with_ddp, step, {});", t.micro_batches - 1);
    if (t.backward_twice) line(indent, "loss.backward({{}}, /*retain_graph=*/true);");
    line(indent, "loss.backward();");
  }

  void joined() {
    const Training& t = case_.training;
    line(2, "const std::vector<int> steps = {{{}}};", fmt::join(t.join_steps, ", "));
    line(2, "ddp.join([&] {{");
    line(3, "for (int step = 0; step < steps[std::size_t(rank)]; ++step) {{");
    line(4, "net->rank = rank, net->step = step;");
    if (!zero().empty()) line(4, "{}", zero());
    ddp_pass(4);
    line(4, "optimizer.step();");
    line(3, "}}");
    line(2, "}}, {{.divide_by_initial_world_size = {}}});", t.divide_by_world);
    line(2, "ddp.verify_in_sync();");
    line(2, "for (at::Tensor& p : net->parameters()) p.mutable_grad() = at::Tensor();");
    line(2, "const int step = {};  // and one more step, on all ranks", t.steps);
    line(2, "net->rank = rank, net->step = step;");
    ddp_pass(2);
  }

  void backward_by_hand(const std::string& loss, int micro, bool retain = false) {
    if (case_.options.sample_weighted) {
      line(3, "weighted_backward({}, *alone, weight_of({}){});", loss, micro, retain ? ", /*retain_graph=*/true" : "");
    } else {
      line(3, "{}.backward({});", loss, retain ? "{}, /*retain_graph=*/true" : "");
    }
  }

  void average_by_hand() {
    line(3, "average(*alone, group{});", ignored().empty() ? "" : fmt::format(", {{{}}}", fmt::join(ignored(), ", ")));
  }

  void loop() {
    const Training& t = case_.training;
    line(2, "for (int step = 0; step < {}; ++step) {{", t.steps);
    line(3, "net->rank = alone->rank = rank, net->step = alone->step = step;");
    if (!zero().empty()) line(3, "{}", zero());
    line(3, "load(*alone, *net);");
    if (case_.options.sample_weighted) {
      line(3, "const auto weight_of = [&](int micro) {{");
      line(4,
           "const auto samples = [&](int r) {{ return batches[std::size_t((step * {} + micro) * {} + r) % "
           "batches.size()]; }};",
           t.micro_batches, t.world);
      line(4, "int total = 0;");
      line(4, "for (int r = 0; r < {}; ++r) total += samples(r);", t.world);
      line(4, "return total == 0 ? 0 : samples(rank) * {}.0 / total;", t.world);
      line(3, "}};");
    }
    line(3, "const auto by_hand = [&](const auto&... x) {{ return alone->forward(x...); }};");
    const int last = t.micro_batches - 1;
    for (int micro = 0; micro < last; ++micro)
      backward_by_hand(fmt::format("loss_of(by_hand, step, {})", micro), micro);
    line(3, "const at::Tensor expected = loss_of(by_hand, step, {});", last);
    if (t.backward_twice) {
      backward_by_hand("expected", last, true);
      average_by_hand();
    }
    backward_by_hand("expected", last);
    if (watches()) {
      line(3, "const auto local = copies(alone->kept, alone->retained);");
      line(3, "alone->kept.clear(), alone->retained.clear();");
    }
    average_by_hand();
    ddp_pass(3);
    line(3, "expect_same_gradients(*net, *alone);");
    if (watches()) {
      line(3, "expect_close(copies(net->kept, net->retained), local);");
      line(3, "net->kept.clear(), net->retained.clear();");
    }
    line(3, "optimizer.step();");
    if (t.evaluate) {
      line(3, "// The fuzzer also evaluates here, with the same input on every rank, and compares the outputs.");
    }
    if (t.keep_gradients) line(3, "// The fuzzer also keeps each p.grad() here; none may change in later steps.");
    line(2, "}}");
    line(2, "ddp.verify_in_sync();");
  }

  const Case& case_;
  const Model& model_;
  std::string text_;
};

}  // namespace

std::string print_cpp(const Case& item) { return Printer(item).print(); }

}  // namespace lockstep::fuzz

#include <algorithm>
#include <numeric>

#include "ddp/model_fuzz/generate.h"

namespace lockstep::fuzz {

namespace {

std::int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

class Generator {
 public:
  Generator(Random& random, bool large) : random_(random), large_(large) {
    type_ = random_.chance(12) ? Type::f64 : Type::f32;
    width_ = large_ ? random_.pick({4, 8, 16}) : random_.between(1, 8);
    // Elements of about 1 MiB, in rows of `width_`: exactly, one row less, one more.
    many_ = large_ ? (std::int64_t{1} << 20) / bytes_of(type_) / width_ + random_.pick({-1, 0, 0, 1})
                   : random_.between(1, 9);
  }

  Model make() {
    int x = start();
    const int layers = large_ ? random_.between(1, 4) : random_.between(1, 7);
    for (int i = 0; i < layers; ++i) x = layer(x);
    model_.outputs.push_back({x, any_loss()});
    for (int i = 0; i < 2; ++i) {
      if (random_.chance(20))
        model_.outputs.push_back(
            {loose_[static_cast<std::size_t>(random_.below(static_cast<int>(loose_.size())))], any_loss()});
    }
    if (random_.chance(12)) leaf({random_.between(1, 5)}, Purpose::unused);
    watch_gradients();
    remove_dead_nodes(model_);
    return std::move(model_);
  }

 private:
  enum class Purpose { any, essential, unused };

  Loss any_loss() { return random_.pick({Loss::sum, Loss::square, Loss::weighted}); }
  const Shape& shape(int node) const { return model_.nodes[static_cast<std::size_t>(node)].shape; }

  int add(Op op, std::vector<int> in, std::vector<std::int64_t> numbers, Shape result) {
    model_.nodes.push_back({op, std::move(in), std::move(numbers), std::move(result), type_, segment_});
    return static_cast<int>(model_.nodes.size()) - 1;
  }

  int input(Shape per_sample, std::int64_t tokens) {
    per_sample.insert(per_sample.begin(), kBatch);
    model_.inputs.push_back({per_sample, tokens, tokens == 0 && random_.chance(15)});
    return add(Op::input, {}, {static_cast<std::int64_t>(model_.inputs.size()) - 1}, per_sample);
  }

  int parameter_node(std::size_t p) {
    const int node = add(Op::parameter, {}, {static_cast<std::int64_t>(p)}, model_.parameters[p].shape);
    model_.nodes.back().type = model_.parameters[p].type;
    return model_.parameters[p].type == type_ ? node : add(Op::to_type, {node}, {}, shape(node));
  }

  int leaf(const Shape& wanted, Purpose purpose = Purpose::any) {
    Parameter parameter{wanted, type_};
    if (purpose != Purpose::essential) {
      if (random_.chance(10)) parameter.type = random_.pick({Type::f32, Type::f64, Type::bf16});
      parameter.frozen = random_.chance(6);
      parameter.two_names = random_.chance(5);
    }
    parameter.hooked = random_.chance(6);
    model_.parameters.push_back(parameter);
    return purpose == Purpose::unused ? -1 : parameter_node(model_.parameters.size() - 1);
  }

  // Some expression of parameters that has this shape.
  int expression(const Shape& wanted, int depth = 0) {
    const bool small = count_of(wanted) < 100000;
    if (depth >= 3 || random_.chance(small ? 50 : 35)) return reuse_or_leaf(wanted);
    // Large ones: more of those whose gradients share memory, and none that make the parameter larger.
    switch (small ? random_.below(15) : random_.pick({0, 1, 2, 2, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 10})) {
      case 0: return transposed(wanted, depth);
      case 1: return reshaped(wanted, {count_of(wanted)}, depth);
      case 2: {  // a dimension more and less
        Shape longer = wanted;
        longer.insert(longer.begin(), 1);
        return add(Op::squeeze, {add(Op::unsqueeze, {expression(wanted, depth + 1)}, {0}, longer)}, {0}, wanted);
      }
      case 3: return part(wanted, depth);
      case 4: {  // (a.view(-1) + b.view(-1)).view(...)
        const Shape flat{count_of(wanted)};
        const int a = add(Op::view, {expression(wanted, depth + 1)}, {}, flat);
        const int b = add(Op::view, {expression(wanted, depth + 1)}, {}, flat);
        return add(Op::view, {add(Op::add, {a, b}, {}, flat)}, {}, wanted);
      }
      case 5: return add(Op::add, {expression(wanted, depth + 1), expression(wanted, depth + 1)}, {}, wanted);
      case 6:
        return add(Op::mul, {expression(wanted, depth + 1), add(Op::data, {}, {random_.below(100)}, wanted)}, {},
                   wanted);
      case 7:
        return add(random_.pick({Op::tanh, Op::scale, Op::contiguous}), {expression(wanted, depth + 1)}, {}, wanted);
      case 8: return concatenated(wanted, depth);
      case 9:
        return add(Op::mul,
                   {expression(wanted, depth + 1), leaf(wanted.empty() || random_.chance(50) ? Shape{} : Shape{1})}, {},
                   wanted);
      case 10: return add(Op::add, {leaf(wanted), add(Op::view, {leaf({count_of(wanted)})}, {}, wanted)}, {}, wanted);
      case 11: {  // every second
        if (wanted.empty()) return leaf(wanted);
        Shape longer = wanted;
        const int d = random_.below(static_cast<int>(wanted.size()));
        longer[static_cast<std::size_t>(d)] *= 2;
        return add(Op::slice, {expression(longer, depth + 1)}, {d}, wanted);
      }
      case 12: {
        Shape longer = wanted;
        longer.insert(longer.begin(), 2);
        return add(Op::select, {expression(longer, depth + 1)}, {0, random_.below(2)}, wanted);
      }
      case 13: {
        if (wanted.empty()) return leaf(wanted);
        const Shape row(wanted.begin() + 1, wanted.end());
        Shape longer = row;
        longer.insert(longer.begin(), 1);
        return add(Op::expand, {add(Op::unsqueeze, {expression(row, depth + 1)}, {0}, longer)}, {}, wanted);
      }
      default: {
        if (wanted.empty()) return leaf(wanted);
        Shape longer = wanted;
        longer[0] += random_.below(3);
        return add(Op::index_select, {expression(longer, depth + 1)}, {random_.between(1, 3), random_.below(4)},
                   wanted);
      }
    }
  }

  int reuse_or_leaf(const Shape& wanted) {
    if (random_.chance(25)) {
      for (std::size_t p = 0; p < model_.parameters.size(); ++p) {
        if (model_.parameters[p].shape == wanted) return parameter_node(p);
      }
    }
    return leaf(wanted);
  }

  int transposed(Shape wanted, int depth) {
    if (wanted.size() < 2) return leaf(wanted);
    const Shape result = wanted;
    const int a = random_.below(static_cast<int>(wanted.size()) - 1);
    std::swap(wanted[static_cast<std::size_t>(a)], wanted[static_cast<std::size_t>(a) + 1]);
    return add(Op::transpose, {expression(wanted, depth + 1)}, {a, a + 1}, result);
  }

  int reshaped(const Shape& wanted, const Shape& from, int depth) {
    return add(Op::view, {expression(from, depth + 1)}, {}, wanted);
  }

  int part(const Shape& wanted, int depth) {
    if (wanted.empty()) return leaf(wanted);
    Shape longer = wanted;
    const auto d = static_cast<std::size_t>(random_.below(static_cast<int>(wanted.size())));
    longer[d] += random_.between(0, 2);
    const int begin = random_.below(static_cast<int>(longer[d] - wanted[d]) + 1);
    return add(Op::narrow, {expression(longer, depth + 1)}, {static_cast<std::int64_t>(d), begin, wanted[d]}, wanted);
  }

  // Of two parts; the second may have no elements.
  int concatenated(const Shape& wanted, int depth) {
    if (wanted.empty()) return leaf(wanted);
    Shape first = wanted, second = wanted;
    second[0] = random_.chance(30) ? 0 : std::min<std::int64_t>(wanted[0], random_.between(0, 2));
    first[0] -= second[0];
    const int a = expression(first, depth + 1);
    return add(Op::cat, {a, leaf(second)}, {0}, wanted);
  }

  int start() {
    if (random_.chance(large_ ? 55 : 35)) {  // tokens, embedding, positions
      const bool many_tokens = large_ && random_.chance(50);
      const std::int64_t length = many_tokens ? many_ : random_.between(1, 5);
      const std::int64_t vocabulary = large_ && !many_tokens ? many_ : random_.between(1, 9);
      const int tokens = input({length}, vocabulary);
      const int table = leaf({vocabulary, width_}, Purpose::essential);
      int x = add(Op::embedding, {tokens, table}, {random_.below(3)}, {kBatch, length, width_});
      if (random_.chance(70)) x = add_positions(x);
      if (many_tokens) x = add(random_.pick({Op::mean, Op::sum}), {x}, {1}, {kBatch, width_});
      return kept(x);
    }
    int x = input({width_}, 0);
    if (model_.inputs[0].requires_grad && random_.chance(30)) x = add(Op::tanh, {x}, {}, shape(x));
    return kept(add(Op::linear, {x, leaf({width_, width_}, Purpose::essential)}, {}, {kBatch, width_}));
  }

  // A value that may be used again.
  int kept(int node) {
    if (segment_ < 0) loose_.push_back(node);
    return node;
  }

  int add_positions(int x) {
    Shape wanted(shape(x).begin() + 1, shape(x).end());
    int positions = expression(wanted);
    if (random_.chance(60)) {
      wanted.insert(wanted.begin(), 1);
      positions = add(Op::unsqueeze, {positions}, {0}, wanted);
    }
    return add(Op::add, {x, positions}, {}, shape(x));
  }

  int linear(int x, std::int64_t outputs) {
    Shape result = shape(x);
    const std::int64_t inputs = result.back();
    result.back() = outputs;
    if (random_.chance(25)) return add(Op::matmul, {x, expression({inputs, outputs})}, {}, result);
    std::vector<int> in{x, expression({outputs, inputs})};
    if (random_.chance(60)) in.push_back(expression({outputs}));
    return add(Op::linear, in, {}, result);
  }

  // A fresh value, which may be changed in place.
  int changed_in_place(int x) {
    const int fresh = linear(x, shape(x).back());
    const Shape whole = shape(fresh);
    switch (random_.below(4)) {
      case 0: return add(Op::relu_, {fresh}, {}, whole);
      case 1: return add(Op::add_, {fresh, x}, {}, whole);
      case 2: return add(Op::add_, {fresh, expression({whole.back()})}, {}, whole);
      default: {
        const std::int64_t length = random_.between(1, static_cast<int>(std::min<std::int64_t>(whole.back(), 5)));
        const std::int64_t begin = random_.below(static_cast<int>(whole.back() - length) + 1);
        const auto last = static_cast<std::int64_t>(whole.size()) - 1;
        return add(Op::narrow_add_, {fresh, expression({length})}, {last, begin, length}, whole);
      }
    }
  }

  int segment(int x) {
    const bool nested = segment_ >= 0;
    if (nested) return add(Op::tanh, {x}, {}, shape(x));
    segment_ = segments_++;
    const int hole = add(Op::hole, {}, {}, shape(x));
    int y = hole;
    for (int i = random_.between(1, 2); i > 0; --i) y = linear_again(y);
    segment_ = -1;
    return add(Op::checkpoint, {x, hole, y}, {}, shape(y));
  }

  // A layer whose weight may be one that is used elsewhere.
  int linear_again(int x) {
    const std::int64_t width = shape(x).back();
    return add(Op::tanh, {linear(x, width)}, {}, shape(x));
  }

  int gate(int x) {
    const int other = linear(x, shape(x).back());
    return add(Op::gate, {x, other}, {random_.between(1, 254), random_.chance(50)}, shape(x));
  }

  int layer(int x) {
    const int next = shape(x).size() == 2 ? layer_of_rows(x) : layer_of_sequences(x);
    return kept(next);
  }

  int layer_of_any(int x) {
    const std::int64_t width = shape(x).back();
    switch (random_.below(9)) {
      case 0: return linear(x, random_.chance(50) ? width : random_.between(1, 8));
      case 1: return add(Op::layer_norm, {x, expression({width}), expression({width})}, {}, shape(x));
      case 2: return add(random_.pick({Op::tanh, Op::sigmoid, Op::relu}), {x}, {}, shape(x));
      case 3: return add(random_.pick({Op::add, Op::mul}), {x, expression({width})}, {}, shape(x));
      case 4: return changed_in_place(x);
      case 5: return random_.chance(70) ? segment(x) : linear(x, width);
      case 6: return random_.chance(60) ? gate(x) : linear(x, width);
      case 7: {
        const int other = same_shape(x);
        return add(random_.pick({Op::add, Op::mul}), {x, other}, {}, shape(x));
      }
      default: return add(Op::scale, {x}, {}, shape(x));
    }
  }

  // Another value of the same shape, or the value itself.
  int same_shape(int x) {
    for (int node : loose_) {
      if (node != x && shape(node) == shape(x) && random_.chance(60)) return node;
    }
    return x;
  }

  int layer_of_rows(int x) {
    const std::int64_t width = shape(x)[1];
    if (large_ && random_.chance(50)) return large_layer(x);
    switch (random_.below(9)) {
      case 0: return add(Op::unsqueeze, {x}, {1}, {kBatch, 1, width});
      case 1: {
        const std::int64_t rows = width % 2 == 0 ? 2 : 1;
        return add(Op::view, {x}, {}, {kBatch, rows, width / rows});
      }
      case 2: {
        const int number = batch_norms_++;
        return add(Op::batch_norm, {x, expression({width}), expression({width})}, {number}, shape(x));
      }
      case 3: {
        const int begin = random_.below(static_cast<int>(width));
        const std::int64_t length = random_.between(1, static_cast<int>(width) - begin);
        return add(Op::narrow, {x}, {1, begin, length}, {kBatch, length});
      }
      case 4: {
        if (width > 64) return layer_of_any(x);
        const int other = same_shape(x);
        return add(Op::cat, {x, other}, {1}, {kBatch, 2 * width});
      }
      case 5: {
        const std::int64_t vocabulary = random_.between(1, 9);
        const int rows =
            add(Op::embedding, {input({}, vocabulary), expression({vocabulary, width})}, {random_.below(3)}, shape(x));
        return add(Op::add, {x, rows}, {}, shape(x));
      }
      case 6: return add(Op::add, {x, expression({1, width})}, {}, shape(x));
      default: return layer_of_any(x);
    }
  }

  // Something with parameters of `many_` rows.
  int large_layer(int x) {
    const std::int64_t width = shape(x)[1];
    switch (random_.below(4)) {
      case 0: return linear(add(Op::tanh, {linear(x, many_)}, {}, {kBatch, many_}), width);
      case 1: {  // a mean of rows
        const int table = expression({many_, width});
        return add(Op::add, {x, add(random_.pick({Op::mean, Op::sum}), {table}, {0}, {width})}, {}, shape(x));
      }
      case 2: {  // tied weights
        const int table = expression({many_, width});
        const int wide = add(Op::linear, {x, table}, {}, {kBatch, many_});
        return add(Op::matmul, {add(Op::sigmoid, {wide}, {}, {kBatch, many_}), table}, {}, shape(x));
      }
      default: {
        const int rows =
            add(Op::embedding, {input({}, many_), expression({many_, width})}, {random_.below(3)}, shape(x));
        return add(Op::add, {x, rows}, {}, shape(x));
      }
    }
  }

  int layer_of_sequences(int x) {
    const std::int64_t length = shape(x)[1], width = shape(x)[2];
    switch (random_.below(11)) {
      case 0: return add(Op::mean, {x}, {1}, {kBatch, width});
      case 1: return add(Op::view, {x}, {}, {kBatch, length * width});
      case 2: return add(Op::transpose, {x}, {1, 2}, {kBatch, width, length});
      case 3: return add(Op::select, {x}, {1, random_.below(static_cast<int>(length))}, {kBatch, width});
      case 4:
        return add(Op::attention,
                   {x, expression({width, width}), expression({width, width}), expression({width, width})}, {},
                   shape(x));
      case 5: {
        const std::int64_t channels = random_.between(1, 4);
        return add(Op::conv1d, {x, expression({channels, length, 3}), expression({channels})}, {},
                   {kBatch, channels, width});
      }
      case 6: {
        const std::int64_t channels = random_.between(1, 3);
        const int image = add(Op::unsqueeze, {x}, {1}, {kBatch, 1, length, width});
        const int filtered =
            add(Op::conv2d, {image, expression({channels, 1, 3, 3})}, {}, {kBatch, channels, length, width});
        return add(Op::mean, {filtered}, {1}, shape(x));
      }
      case 7: {
        const int number = batch_norms_++;
        return add(Op::batch_norm, {x, expression({length}), expression({length})}, {number}, shape(x));
      }
      case 8: return add_positions(x);
      default: return layer_of_any(x);
    }
  }

  // Gradients that the program looks at: of values that nothing changes in place, outside of segments.
  void watch_gradients() {
    std::vector<bool> changed(model_.nodes.size(), false);
    for (const Node& node : model_.nodes) {
      if (node.op == Op::relu_ || node.op == Op::add_ || node.op == Op::narrow_add_)
        changed[static_cast<std::size_t>(node.in[0])] = true;
    }
    if (!random_.chance(35)) return;
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      Node& node = model_.nodes[i];
      const bool leaf = node.op == Op::parameter || node.op == Op::input || node.op == Op::data || node.op == Op::hole;
      if (changed[i] || leaf || node.segment >= 0) continue;
      node.retain = random_.chance(20);
      node.hooked = random_.chance(20);
    }
  }

  Random& random_;
  const bool large_;
  Type type_;
  std::int64_t width_;
  std::int64_t many_;
  Model model_;
  std::vector<int> loose_;  // values that may be used again
  int segment_ = -1;
  int segments_ = 0;
  int batch_norms_ = 0;
};

}  // namespace

Model generate_model(Random& random, bool large) { return Generator(random, large).make(); }

}  // namespace lockstep::fuzz

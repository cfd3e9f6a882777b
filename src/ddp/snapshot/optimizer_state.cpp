#include "ddp/snapshot/optimizer_state.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <deque>
#include <set>
#include <typeinfo>

#include "base/printable.h"
#include "checkpoint/field_text.h"
#include "ddp/optim/fused_kinds.h"
#include "ddp/optim/step_plan.h"
#include "ddp/snapshot/optimizer_fields.h"
#include "ddp/torch_compat.h"
#include "lockstep/ddp/zero_redundancy_optimizer.h"

namespace lockstep::checkpoint {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

template <typename T>
concept Optional = requires(T value) {
  value.has_value();
};

// The tensor of a parameter's master weight.
constexpr const char* kMaster = "master";

[[noreturn]] void refuse_class(const Optimizer& optimizer, const char* what) {
  throw Error({StatusCode::invalid_argument,
               fmt::format("{} keeps {} of a class of its own, which cannot be saved or sent: only those of LibTorch's "
                           "optimizers can. Leave State::optimizer empty, and keep its tensors in State::values",
                           optimizer_kind(optimizer), what)});
}

// Writes the members of one record.
class Writer {
 public:
  Writer(OptimizerContent& content, std::string prefix) : content_(content), prefix_(std::move(prefix)) {}

  void field(const char* name, const std::string& text) { content_.fields[prefix_ + name] = text; }
  template <typename Value>
  void field(const char* name, const Value& value) {
    if constexpr (Optional<Value>) {
      if (value.has_value()) field(name, *value);
    } else {
      field(name, format_field(value));
    }
  }
  void tensor(const std::string& name, const at::Tensor& tensor, StateShape) {
    if (tensor.defined()) content_.tensors[prefix_ + name] = tensor.detach();
  }
  void tensors(const char* name, const std::deque<at::Tensor>& list, StateShape shape) {
    for (std::size_t i = 0; i < list.size(); ++i) tensor(fmt::format("{}.{}", name, i), list[i], shape);
  }

 private:
  OptimizerContent& content_;
  const std::string prefix_;
};

void write_group(OptimizerContent& content, const Optimizer& optimizer, std::size_t group, std::size_t& index) {
  const auto& params = optimizer.param_groups()[group].params();
  const OptimizerOptions& options = optimizer.param_groups()[group].options();
  const std::string name = fmt::format("group.{}", group);
  content.fields[name + ".parameters"] = fmt::format("{}", params.size());
  const bool known = with_kind(options, [&]<typename Kind>(const char* kind, Kind) {
    content.fields[name] = kind;
    Writer writer(content, name + ".");
    auto copy = static_cast<const typename Kind::Options&>(options);
    fields_of(writer, copy);
    for (const at::Tensor& parameter : params) {
      const std::string state_name = fmt::format("state.{}", index++);
      const auto found = optimizer.state().find(compat::optimizer_state_key(parameter));
      if (found == optimizer.state().end()) continue;
      const OptimizerParamState& state = *found->second;
      using Master = optim::detail::WithMaster<typename Kind::State>;
      const bool has_master = typeid(state) == typeid(Master);
      if (typeid(state) != typeid(typename Kind::State) && !has_master) refuse_class(optimizer, "state");
      content.fields[state_name] = kind;
      Writer state_writer(content, state_name + ".");
      if (has_master) {
        state_writer.tensor(kMaster, static_cast<const Master&>(state).master, StateShape::optional_parameter);
      }
      auto state_copy = static_cast<const typename Kind::State&>(state);  // shares the tensors
      fields_of(state_writer, state_copy);
    }
  });
  if (!known) refuse_class(optimizer, "options");
}

}  // namespace

OptimizerContent content_of_optimizer(const Optimizer& optimizer) {
  if (const auto* const sharded = dynamic_cast<const detail::ShardedOptimizer*>(&optimizer)) {
    return content_of_optimizer(sharded->consolidated());
  }
  OptimizerContent content;
  content.fields["kind"] = optimizer_kind(optimizer);
  content.fields["groups"] = fmt::format("{}", optimizer.param_groups().size());
  std::size_t index = 0;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    write_group(content, optimizer, group, index);
  }
  return content;
}

// Reads the members of one record after the other, and keeps what was read, so that nothing is left over at the end.
class IncomingOptimizer::Reader {
 public:
  Reader(const Metadata& fields, const TensorInfos& infos, const std::string& where, NamedTensors& tensors)
      : fields_(fields), infos_(infos), where_(where), tensors_(tensors) {}

  // Of the record that follows. `flat`: elements of all parameters.
  void begin(std::string prefix, const at::Tensor& parameter, std::int64_t flat) {
    prefix_ = std::move(prefix);
    parameter_ = parameter;
    flat_ = flat;
  }

  const std::string& text(const std::string& name) {
    const auto found = fields_.find(name);
    if (found == fields_.end()) fail(fmt::format("\"{}\" is missing", name));
    used_.insert(name);
    return found->second;
  }
  bool has(const std::string& name) const { return fields_.contains(name); }
  void expect(const std::string& name, const std::string& expected) {
    const std::string& is = text(name);
    if (is != expected)
      fail(fmt::format("\"{}\" is \"{}\", and \"{}\" in this program", name, printable(is), expected));
  }

  template <typename Value>
  void field(const char* name, Value& value) {
    if constexpr (Optional<Value>) {
      value.reset();
      if (!has(prefix_ + name)) return;
      typename Value::value_type content{};
      field(name, content);
      value = content;
    } else if constexpr (std::is_same_v<Value, std::string>) {
      value = text(prefix_ + name);
    } else {
      const std::string& is = text(prefix_ + name);
      if (!parse_field(is, value))
        fail(fmt::format("\"{}{}\" is \"{}\", which is no value for it", prefix_, name, printable(is)));
    }
  }

  void tensor(const std::string& name, at::Tensor& tensor, StateShape shape) {
    const std::string full = prefix_ + name;
    const auto found = infos_.find(full);
    if (found == infos_.end()) {
      tensor = at::Tensor();
      if (shape == StateShape::parameter) fail(fmt::format("tensor \"{}\" is missing", full));
      return;
    }
    const TensorInfo& info = found->second;
    check(full, info, shape);
    const auto options = parameter_.options().dtype(type_in_torch(info)).requires_grad(false);
    const bool like = shape == StateShape::parameter || shape == StateShape::optional_parameter;
    tensor = like ? at::empty_like(parameter_.detach(), options) : at::empty(info.shape, options);
    tensors_[full] = tensor;
  }

  void tensors(const char* name, std::deque<at::Tensor>& list, StateShape shape) {
    list.clear();
    for (int i = 0; infos_.contains(fmt::format("{}{}.{}", prefix_, name, i)); ++i) {
      tensor(fmt::format("{}.{}", name, i), list.emplace_back(), shape);
    }
  }

  // Every field and every tensor was read.
  void finish() const {
    for (const auto& [name, text] : fields_) {
      if (!used_.contains(name) && name != "format") {
        fail(fmt::format("\"{}\" is not a field of this optimizer", printable(name)));
      }
    }
    for (const auto& [name, info] : infos_) {
      if (!tensors_.contains(name)) fail(fmt::format("tensor \"{}\" does not belong to it", printable(name)));
    }
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error({StatusCode::mismatch, fmt::format("{} does not fit this program's optimizer: {}", where_, why)});
  }

 private:
  void check(const std::string& name, const TensorInfo& info, StateShape shape) const {
    const at::ScalarType type = type_in_torch(info);
    if (shape == StateShape::optional_scalar) {
      if (info.shape.size() > 1 || (info.shape.size() == 1 && info.shape[0] != 1)) {
        fail(fmt::format("tensor \"{}\" is {} instead of one element", name, describe(info)));
      }
      return;
    }
    const std::vector<std::int64_t> expected =
        shape == StateShape::optional_flat ? std::vector<std::int64_t>{flat_} : parameter_.sizes().vec();
    // A state may have another precision than its parameter, but never another kind of number.
    if (info.shape == expected && (type == parameter_.scalar_type() || c10::isFloatingType(type))) return;
    fail(fmt::format("tensor \"{}\" is {}, and its parameter is {}", name, describe(info), describe(parameter_)));
  }

  const Metadata& fields_;
  const TensorInfos& infos_;
  const std::string where_;
  NamedTensors& tensors_;
  std::string prefix_;
  at::Tensor parameter_;
  std::int64_t flat_ = 0;
  std::set<std::string> used_;
};

IncomingOptimizer::IncomingOptimizer(Optimizer& optimizer, const Metadata& fields, const TensorInfos& tensors,
                                     const std::string& where)
    : optimizer_(optimizer) {
  if (const auto* const sharded = dynamic_cast<const detail::ShardedOptimizer*>(&optimizer)) {
    plain_ = sharded->make_plain();
  }
  Reader reader(fields, tensors, where, tensors_);
  read_groups(reader);
  reader.finish();
}
IncomingOptimizer::~IncomingOptimizer() = default;
IncomingOptimizer::IncomingOptimizer(IncomingOptimizer&&) noexcept = default;

namespace {

// LBFGS indexes memory of history_size elements by these lists.
void check_history(torch::optim::LBFGSParamState& state, torch::optim::LBFGSOptions& options, const auto& fail) {
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(options.history_size(), 0));
  const std::size_t size = state.old_dirs().size();
  if (size > most || state.old_stps().size() != size || state.ro().size() != size) {
    fail(fmt::format("its history has {}, {} and {} entries, with a history_size of {}", size, state.old_stps().size(),
                     state.ro().size(), options.history_size()));
  }
}
template <typename State, typename Options>
void check_history(State&, Options&, const auto&) {}

}  // namespace

void IncomingOptimizer::read_groups(Reader& reader) {
  const Optimizer& optimizer = plain_ ? *plain_ : optimizer_;
  const bool fused = dynamic_cast<const optim::FusedOptimizer*>(&optimizer) != nullptr;
  reader.expect("kind", optimizer_kind(optimizer));
  reader.expect("groups", fmt::format("{}", optimizer.param_groups().size()));
  std::size_t index = 0;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& params = optimizer.param_groups()[group].params();
    const OptimizerOptions& own = optimizer.param_groups()[group].options();
    const std::string name = fmt::format("group.{}", group);
    reader.expect(name + ".parameters", fmt::format("{}", params.size()));
    std::int64_t flat = 0;
    for (const at::Tensor& parameter : params) flat += parameter.numel();
    const bool known = with_kind(own, [&]<typename Kind>(const char* kind, Kind) {
      reader.expect(name, kind);
      auto options = std::make_unique<typename Kind::Options>(static_cast<const typename Kind::Options&>(own));
      reader.begin(name + ".", at::Tensor(), flat);
      fields_of(reader, *options);
      for (const at::Tensor& parameter : params) {
        const std::string state_name = fmt::format("state.{}", index++);
        if (!reader.has(state_name)) continue;
        reader.expect(state_name, kind);
        auto state = std::make_unique<typename Kind::State>();
        reader.begin(state_name + ".", parameter, flat);
        fields_of(reader, *state);
        check_history(*state, *options, [&](const std::string& why) { reader.fail(why); });
        at::Tensor master;  // read in any case, so that nothing is left over
        reader.tensor(kMaster, master, StateShape::optional_parameter);
        if (master.defined() && master.scalar_type() != at::kFloat) {
          reader.fail(fmt::format("the master weight of parameter {} is not f32", index - 1));
        }
        if (fused && master.defined() && optim::detail::needs_master(parameter)) {
          auto with_master = std::make_unique<optim::detail::WithMaster<typename Kind::State>>(*state);
          with_master->master = master;
          states_.emplace_back(parameter, std::move(with_master));
        } else {
          states_.emplace_back(parameter, std::move(state));
        }
      }
      options_.push_back(std::move(options));
    });
    if (!known) refuse_class(optimizer, "options");
  }
}

void IncomingOptimizer::install() {
  Optimizer& optimizer = plain_ ? *plain_ : optimizer_;
  optimizer.state().clear();
  for (auto& [parameter, state] : states_) {
    optimizer.state()[compat::optimizer_state_key(parameter)] = std::move(state);
  }
  // Assigned, not replaced: the program may hold a reference to the options of a group.
  for (std::size_t group = 0; group < options_.size(); ++group) {
    OptimizerOptions& own = optimizer.param_groups()[group].options();
    with_kind(own, [&]<typename Kind>(const char*, Kind) {
      using Options = typename Kind::Options;
      static_cast<Options&>(own) = static_cast<const Options&>(*options_[group]);
    });
  }
  if (plain_) static_cast<detail::ShardedOptimizer&>(optimizer_).take_from(*plain_);
}

std::string optimizer_kind(const Optimizer& optimizer) {
  const auto* const sharded = dynamic_cast<const detail::ShardedOptimizer*>(&optimizer);
  const Optimizer& plain = sharded == nullptr ? optimizer : sharded->local();
  if (const auto* const fused = dynamic_cast<const optim::FusedOptimizer*>(&plain)) return fused->state_kind();
  const char* const mangled = typeid(plain).name();
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr),
                                                         &std::free);
  return name == nullptr ? mangled : name.get();
}

std::string optimizer_to_bytes(const Optimizer& optimizer) {
  const OptimizerContent content = content_of_optimizer(optimizer);
  return TensorFile::of(content.tensors, false, {}, content.fields).bytes();
}

void optimizer_from_bytes(Optimizer& optimizer, std::string_view bytes) {
  const auto file = parse_safetensors(std::as_bytes(std::span(bytes.data(), bytes.size())));
  if (!file.ok()) throw Error(file.status().with_context("the saved state of a " + optimizer_kind(optimizer)));
  IncomingOptimizer incoming(optimizer, file->metadata, infos_of_file(*file), "the saved state");
  copy_into(incoming.tensors(), tensors_of_file(*file));
  incoming.install();
}

}  // namespace lockstep::checkpoint

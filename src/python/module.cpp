// The extension module lockstep._lockstep. Only this file uses pybind11; the package in python/lockstep has the
// functions for users.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>

#include "lockstep/version.h"
#include "python/backend.h"
#include "python/environment.h"

namespace lockstep::python {
namespace {

namespace py = pybind11;

using BackendPointer = c10::intrusive_ptr<C10dBackend>;

// PyTorch's handle of the base class; on 2.x the package passes the Backend that a ProcessGroup has for the CPU.
TorchBackend& ours(const BackendPointer& backend) {
  auto* group = dynamic_cast<TorchBackend*>(backend.get());
  if (group == nullptr) throw std::invalid_argument("this group does not use backend \"lockstep\"");
  return *group;
}

BackendPointer create(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
                      std::chrono::milliseconds timeout, const std::string& name) {
  return TorchBackend::create({.store = store, .rank = rank, .size = size, .timeout = timeout, .name = name});
}

PYBIND11_MODULE(_lockstep, module) {
  module.doc() = "Backend \"lockstep\" for torch.distributed; see the package lockstep.";
  // ProcessGroup, Backend and Store are classes of this module of PyTorch.
  py::module_::import("torch._C._distributed_c10d");
  using WithoutGil = py::call_guard<py::gil_scoped_release>;
  module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("name"),
             WithoutGil());
  module.def(
      "abort", [](const BackendPointer& backend, const std::string& reason) { ours(backend).group().abort(reason); },
      WithoutGil());
  module.def("describe", [](const BackendPointer& backend) { return ours(backend).group().describe(); });
  module.def("describe_rank",
             [](const BackendPointer& backend, int rank) { return ours(backend).group().describe_rank(rank); });
  module.def("algorithm_table", [](const BackendPointer& backend) { return ours(backend).group().algorithm_table(); });
  module.def("health", [](const BackendPointer& backend) { return ours(backend).group().health().to_string(); });
  module.def("scheduler_environment", &scheduler_environment);
  module.attr("version") = LOCKSTEP_VERSION;
  module.attr("torch_version") = TORCH_VERSION;
}

}  // namespace
}  // namespace lockstep::python

// Python's global interpreter lock (GIL).
#pragma once

#include <Python.h>

namespace lockstep::python {

inline bool has_gil() { return Py_IsInitialized() != 0 && PyGILState_Check() != 0; }

// Releases the GIL while it exists, if this thread has it. Everything here that waits does so without the GIL: the
// thread that completes an operation may need it to free a tensor, or to run a callback written in Python.
class ReleaseGil {
 public:
  ReleaseGil() {
    if (has_gil()) state_ = PyEval_SaveThread();
  }
  ~ReleaseGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_ = nullptr;
};

}  // namespace lockstep::python

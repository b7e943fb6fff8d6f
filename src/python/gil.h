// The GIL, for threads that may outlive the interpreter. Layer: adapter.
//
// Up to 3.13 Python ends a daemon thread that takes the GIL while the interpreter ends, by
// unwinding it; a destructor or `catch (...)` on the way would end the process. One that takes it
// later crashes. Here such a thread waits for the end, as it does from 3.14 on.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <exception>

namespace l3 {

template <typename Work>
auto OrWaitForTheEnd(const Work& work) {
  // No thread has a state once the interpreter is gone; until then, that which ends it has one.
  while (!Py_IsInitialized() && PyGILState_GetThisThreadState() == nullptr) pause();
  try {
    return work();
  } catch (const std::exception&) {
    throw;
  } catch (...) {  // the unwinding, which is no exception
    while (true) pause();
  }
}

// Other threads of Python run while it lives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    OrWaitForTheEnd([this] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// Calls work(), which may use Python, in any thread.
template <typename Work>
auto WithGil(const Work& work) {
  struct Gil {
    PyGILState_STATE state = OrWaitForTheEnd(PyGILState_Ensure);
    ~Gil() { PyGILState_Release(state); }
  };
  const Gil gil;
  return OrWaitForTheEnd(work);
}

}  // namespace l3

// What all Python bindings share: bytes from Python, and errors for it. Layer: adapter.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "format/image_view.h"
#include "format/status.h"

namespace l3 {

namespace py = pybind11;

// l3dali.L3Error, a ValueError with `.status`. Lives as long as the interpreter.
inline PyObject* l3_error = nullptr;

// To be called before the others.
inline void FindL3Error() {
  const py::object error = py::module_::import("l3dali.errors").attr("L3Error");
  l3_error = py::object(error).release().ptr();
}

// `index` is that of an item of a batch.
[[noreturn]] inline void ThrowL3Error(Status status, const std::string& reason,
                                      std::optional<size_t> index = std::nullopt) {
  const std::string item = index ? "item " + std::to_string(*index) + ": " : "";
  const py::object error = py::reinterpret_borrow<py::object>(l3_error)(
      item + reason, static_cast<uint32_t>(status), index);
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

inline void Require(Status status, const std::string& context = "",
                    std::optional<size_t> index = std::nullopt) {
  if (status != Status::kOk) ThrowL3Error(status, context + StatusMessage(status), index);
}

// The bytes of a contiguous buffer. Holds it while it lives.
class BufferBytes {
 public:
  explicit BufferBytes(const py::buffer& buffer) {
    if (PyObject_GetBuffer(buffer.ptr(), &view_, PyBUF_SIMPLE) != 0) {
      throw py::error_already_set();
    }
  }
  ~BufferBytes() { PyBuffer_Release(&view_); }
  BufferBytes(const BufferBytes&) = delete;
  BufferBytes& operator=(const BufferBytes&) = delete;

  const uint8_t* data() const { return static_cast<const uint8_t*>(view_.buf); }
  size_t size() const { return static_cast<size_t>(view_.len); }

 private:
  Py_buffer view_;
};

// The error of ParseIndex() or ParseImage() on `size` bytes, which are damaged or too few.
inline void RequireParsed(Status status, size_t size, const ImageView& view,
                          std::optional<size_t> index = std::nullopt) {
  std::string context;
  if (status == Status::kTruncated && view.payloads_bytes != 0) {
    context = "the file has " + std::to_string(FileBytes(view)) + " bytes";
  } else if (status == Status::kTruncated && view.group_count != 0) {
    context = "header, chunks and index have " + std::to_string(IndexEnd(view)) + " bytes";
  } else if (status == Status::kTruncated) {
    context = "the header has " + std::to_string(kHeaderBytes) + " bytes";
  }
  if (!context.empty()) context += ", here are " + std::to_string(size) + ": ";
  Require(status, context, index);
}

}  // namespace l3

// The readers that derive from DALI's loaders: schemas and registration. Layer: adapter.
// A library of its own: the decoding operators work with a DALI whose loaders have changed. They
// are loaded first, with the schema l3__ReaderAttr.
#include <string>
#include <vector>

#include "dali/operators/reader/loader/utils.h"
#include "op/file_reader.h"
#include "op/webdataset_reader.h"

// DALI's macros name its types without their namespace.
namespace dali {

namespace {

std::vector<std::string> FiltersWithL3() {
  std::vector<std::string> filters = kKnownExtensionsGlob;
  filters.push_back("*.l3");
  return filters;
}

}  // namespace

DALI_SCHEMA(l3__readers__File)
    .DocStr(R"code(Reads files on the pipeline's threads.

Outputs, order, shards and checkpoints are those of :meth:`nvidia.dali.fn.readers.file`. ``.l3`` files
need no filter. ``dont_use_mmap``, ``read_ahead`` and ``tensor_init_bytes`` have no effect.)code")
    .NumInput(0)
    .NumOutput(2)
    .AddOptionalArg("file_filters", R"code(Patterns of the files in ``file_root``.)code",
                    FiltersWithL3())
    .AddParent("l3__ReaderAttr")
    .AddParent("readers__File");

DALI_REGISTER_OPERATOR(l3__readers__File, l3::FileReader, CPU);

DALI_SCHEMA(l3__readers__Webdataset)
    .DocStr(R"code(Reads samples of tar archives on the pipeline's threads.

Outputs, order, shards and checkpoints are those of :meth:`nvidia.dali.fn.readers.webdataset`. With
``lazy``, members that do not end in ``.l3``, or have a ``dtypes`` other than ``UINT8``, are read whole.
``dont_use_mmap``, ``read_ahead`` and ``tensor_init_bytes`` have no effect.)code")
    .NumInput(0)
    .OutputFn([](const OpSpec& spec) {
      return static_cast<int>(spec.GetRepeatedArgument<std::string>("ext").size());
    })
    .AddParent("l3__ReaderAttr")
    .AddParent("readers__Webdataset");

DALI_REGISTER_OPERATOR(l3__readers__Webdataset, l3::TarReader, CPU);

}  // namespace dali

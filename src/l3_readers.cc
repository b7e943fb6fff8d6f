// The readers that derive from DALI's loaders: schemas and registration. Layer: adapter.
// A library of its own: the decoding operators work with a DALI whose loaders have changed.
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
    .AddOptionalArg("lazy", R"code(Give a handle of each L3 file in place of its bytes: a few KB.

The operators of ``fn.l3`` accept handles and read only the tiles that they decode. Other operators
reject handles. Files of other formats are read whole. If a file changes before its tiles are read, its
sample fails with an error, as ``on_error`` of the decoder says.)code",
                    false)
    .AddOptionalArg("use_o_direct", R"code(Read past the page cache, where the file system can.

This pays for data sets larger than memory: pages that will not be read again cost time.)code",
                    false)
    .AddParent("readers__File");

DALI_REGISTER_OPERATOR(l3__readers__File, l3::FileReader, CPU);

DALI_SCHEMA(l3__readers__Webdataset)
    .DocStr(R"code(Reads samples of tar archives on the pipeline's threads.

Outputs, order, shards and checkpoints are those of :meth:`nvidia.dali.fn.readers.webdataset`.
``dont_use_mmap``, ``read_ahead`` and ``tensor_init_bytes`` have no effect.)code")
    .NumInput(0)
    .OutputFn([](const OpSpec& spec) {
      return static_cast<int>(spec.GetRepeatedArgument<std::string>("ext").size());
    })
    .AddOptionalArg("lazy", R"code(Give a handle of each L3 member in place of its bytes: a few KB.

The operators of ``fn.l3`` accept handles and read only the tiles that they decode. Other operators
reject handles. Members that do not end in ``.l3``, and those of a ``dtypes`` other than ``UINT8``, are
read whole. If an archive changes before its tiles are read, the sample fails with an error, as
``on_error`` of the decoder says.)code",
                    false)
    .AddOptionalArg("use_o_direct", R"code(Read past the page cache, where the file system can.

This pays for data sets larger than memory: pages that will not be read again cost time.)code",
                    false)
    .AddParent("readers__Webdataset");

DALI_REGISTER_OPERATOR(l3__readers__Webdataset, l3::TarReader, CPU);

}  // namespace dali

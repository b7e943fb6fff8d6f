// The readers that derive from DALI's loaders: schemas and registration. Layer: adapter.
// A library of its own: the decoding operators work with a DALI whose loaders have changed.
#include <string>
#include <vector>

#include "dali/operators/reader/loader/utils.h"
#include "op/file_reader.h"

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
    .DocStr(R"code(Reads files and gives pairs of a file and its label, as
:meth:`nvidia.dali.fn.readers.file` does, whose arguments it takes: files, order, labels, shards and
checkpoints are the same. The pipeline's threads read, straight into the output. Those arguments
that tune DALI's reading, as ``dont_use_mmap``, have no effect.)code")
    .NumInput(0)
    .NumOutput(2)
    .AddOptionalArg("file_filters", R"code(Patterns of the files that are listed in
``file_root``. The default is that of :meth:`nvidia.dali.fn.readers.file`, and ``*.l3``.)code",
                    FiltersWithL3())
    .AddOptionalArg("lazy", R"code(Give a handle of each L3 file: a few KB that stand for it.

The operators of ``fn.l3`` take handles as they take files, and read only the tiles that they decode.
Other operators do not know handles. Files of other formats are read whole. A file must not change
between reading and decoding; a change is an error, or as the decoder's ``on_error`` says.)code",
                    false)
    .AddParent("readers__File");

DALI_REGISTER_OPERATOR(l3__readers__File, l3::FileReader, CPU);

}  // namespace dali

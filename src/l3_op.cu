// The DALI operators: schemas and registration. Layer: adapter; src/op holds what stands
// behind it, and no other file includes that. Compiled as C++: kernels are in src/cuda.
#include <new>
#include <optional>

#include "dali/pipeline/operator/operator.h"
#include "op/cache_statistics.h"
#include "op/cpu_backend.h"
#include "op/decode_times.h"
#include "op/decode_variants.h"
#include "op/mixed_backend.h"
#include "op/peek_shape.h"
#include "op/sorting.h"

// DALI's macros name its types without their namespace.
namespace dali {

namespace {

int StatusOutputs(const OpSpec& spec) { return spec.GetArgument<bool>("return_status") ? 1 : 0; }

std::optional<DALIDataType> TypeAskedFor(const OpSpec& spec) {
  DALIDataType type;
  return spec.TryGetArgument(type, "dtype") ? std::make_optional(type) : std::nullopt;
}

}  // namespace

DALI_SCHEMA(l3__DecoderAttr)
    .MakeAbstract()
    .AddOptionalArg("output_type", R"code(The channels of the output.

The default, ``types.ANY_DATA``, keeps the stored ones. ``RGB``, ``BGR``, ``GRAY`` and ``YCbCr``
convert as :meth:`nvidia.dali.fn.decoders.image` does for a PNG file of the same samples without
gAMA and sRGB chunks: images with three or four channels are RGB, those with one or two gray; alpha
is dropped.)code",
                    DALI_ANY_DATA)
    .AddOptionalArg<std::vector<int>>("channels",
                                      R"code(The channels of the output, by their numbers
in the file from 0 on, each at most once; they come out in this order. By default all.

Of an image with more than four channels only the groups that have some of them are read, uploaded
and decoded. Needs the default ``output_type``.)code",
                                      nullptr)
    .AddOptionalTypeArg("dtype", R"code(The type of the output.

By default the stored type, ``uint8``, ``uint16``, ``int8`` or ``int16``; then all images of a batch
need the same.

An integer ``dtype`` that holds every value of the stored type keeps the numbers; other types rescale as
:meth:`nvidia.dali.fn.decoders.image` does; signed images refuse narrower and unsigned types, labels any
type that cannot hold them; labels, and operators with ``mean`` and ``std``, never rescale;
``fill_range`` overrides. Labels are masks that were encoded with ``--labels`` or ``--palette index``.)code")
    .AddOptionalArg<bool>("fill_range", R"code(Whether values fill the range of a ``dtype`` that is
not the stored one.

By default ``dtype`` decides. With True, 65535 becomes 255 in ``uint8`` and 1.0 in ``float``. The range of a signed type is that from
0 up, which negative numbers continue below 0: from ``int16``, 32767 becomes 255 in ``uint8``, 127 in
``int8``, 65535 in ``uint16`` and 1.0 in ``float``; -32767 becomes 0, -127, 0 and -1.0. ``mean`` and
``std`` count in that range, too. With False, values keep their numbers and saturate:
65535 becomes 255 in ``uint8``, as 300 does, 65535.0 in ``float`` and infinity in ``float16``, and -5 becomes 0
in ``uint8``. ``scale`` is something else, a factor behind ``mean`` and ``std``.)code",
                          nullptr)
    .AddOptionalArg("adjust_orientation",
                    R"code(Turn the image as the orientation in its EXIF chunk asks. Windows are
those of the turned image.)code",
                    true)
    .AddOptionalArg("affine", R"code(For ``device="mixed"``: bind the operator's threads to the
processors closest to the GPU.)code",
                    true)
    .AddOptionalArg("device_memory_padding", R"code(For ``device="mixed"``: bytes of GPU memory to
allocate at once for each of the two batches that can be in flight. Buffers of batches that need
more grow.)code",
                    16 << 20)
    .AddOptionalArg("host_memory_padding", R"code(The same of pinned host memory, where
windows and small files are gathered to be uploaded.)code",
                    8 << 20)
    .AddOptionalArg("cache_size", R"code(For ``device="mixed"``: megabytes of GPU memory, at most,
that keep encoded images. 0: none.

An image that is cached is decoded without a read of its payloads and without an upload, for any
window. Operators of a process that use the same GPU share one cache and need the same ``cache_``
arguments. Memory is taken as images come. Images are known by the source that the reader names;
those without one (of ``external_source``) are not cached. Files of several folders need names that
differ: a ``file_root`` is no part of them. A file that was changed, or is another of the same name, is
noticed by its size and by its start, up to the page of 4096 bytes that the index ends in, and is then
decoded without the cache; a change behind that which keeps the length of every tile goes unseen.
Images that are damaged are not kept. Each that is takes its head too, and at least 4 KiB, of host
memory. Most readers copy a file even so; ``skip_cached_images`` spares that.)code",
                    0)
    .AddOptionalArg("skip_cached_images",
                    R"code(Tell readers that have ``skip_cached_images=True`` too
which files are cached, so that they do not read them. Operators of a GPU need the same value.

Nobody looks at a file then: that it has changed goes unseen, and **two files of one name are taken
for each other**. Names are what the reader is given, without ``file_root``; pipelines over several
roots should list ``files`` with their whole paths. Other operators behind such a reader get no bytes,
``fn.l3.peek_shape`` too.

Readers ask the cache of :meth:`nvidia.dali.fn.decoders.image`, which gets a byte of each image. If a
process uses both caches on a GPU, that decoder must be made first, and its ``cache_threshold`` be 0 or
1 and its ``cache_type`` ``"threshold"``, or nothing is skipped.)code",
                    false)
    .AddOptionalArg("cache_type", R"code(What to cache: ``"threshold"``, the default, every file of
at least ``cache_threshold`` bytes until the cache is full; ``"largest"`` the largest of them, from
the second epoch on.)code",
                    "")
    .AddOptionalArg("cache_threshold", "Bytes of the smallest file to cache.", 0)
    .AddOptionalArg("cache_debug", R"code(Print the cache's hits, misses and images at the end.
``l3dali.plugin.cache_statistics()`` gives them at any time.)code",
                    false)
    .AddOptionalArg("max_pixels", R"code(The most pixels that the output of a sample may have, up to
2^31. A file of 655 KB can claim 2^31 pixels, 16 GiB: this bounds the memory that a file
which nobody knows can take. A window counts, not the image that it is cut from. A sample with more is
an error, or as ``on_error`` says.)code",
                    static_cast<int64_t>(l3::kDefaultMaxPixels))
    .AddOptionalArg("on_error", R"code(What becomes of a sample that is damaged, no L3 image, or
not what the other arguments ask for.

``"raise"`` ends the pipeline with an error that names the sample and its source. ``"zero"`` goes
on with zeros in the sample's place, and logs its name and how many samples of the operator have
failed so far (of many failures only some). The zeros have the shape that the sample would have;
where the file cannot tell its size, it counts as 1 x 1 pixels, with type and channels as another
sample of the batch. Damage in tiles that no window touches goes unseen.

A sound image fails alone, with status 9 (``kInvalidArgument``), if a window is empty or not inside of
it, if it has other channels than ``mean``, ``std`` or ``fill_values``, or in
``decode_crop_mirror_normalize`` than most images of the batch (an ``output_type`` avoids that),
if ``dtype`` cannot hold its numbers (``fill_range`` avoids that), or if its samples have another type than
those of others: the type of a batch is then the one that most of its images have (a ``dtype`` avoids that). One whose output has more than ``max_pixels`` has status 8
(``kOutputTooSmall``), and zeros of 1 x 1 pixels. Arguments that fit no image are always an error.)code",
                    "raise")
    .AddOptionalArg("return_status", R"code(Whether to give a second output: an ``int32`` scalar a
sample, 0 if it was decoded and else the number of its status in the format's list. It lies where
the first output lies, for ``device="mixed"`` on the GPU.)code",
                    false)
    .AddOptionalArg("_times", "Number of the DecodeTimes to add to; 0: none.", int64_t{0})
    .AddOptionalArg("_numbers", "Places of the samples in a batch of which they are a part.", 0,
                    true);

DALI_SCHEMA(l3__Decode)
    .DocStr(R"code(Decodes lossless L3 images.

The output has the layout HWC and by default the stored channels and the stored type. Images of a
batch may differ in size and in the number of channels.

With ``device="mixed"`` a batch is decoded on the GPU, by a launch or a few, or in parts while it goes up.

Takes the arguments of :meth:`nvidia.dali.fn.decoders.image`. Those that tune its JPEG decoders have
no effect.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "The bytes of an ``.l3`` file a sample.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddParent("l3__DecoderAttr")
    .AddParent("decoders__Image");

DALI_SCHEMA(l3__DecodeCrop)
    .DocStr(R"code(Decodes a window of lossless L3 images, given by its size and its place.

Only the tiles that the window touches are read, uploaded and decoded. A window that reaches out
of its image is an error.

Takes the arguments of :meth:`nvidia.dali.fn.decoders.image_crop`. Those that tune its JPEG
decoders have no effect.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "The bytes of an ``.l3`` file a sample.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddParent("l3__DecoderAttr")
    .AddParent("decoders__ImageCrop");

DALI_SCHEMA(l3__DecodeSlice)
    .DocStr(R"code(Decodes a window of lossless L3 images, given by its bounds.

Only the tiles that the window touches are read, uploaded and decoded. A window that is empty or
reaches out of its image is an error.

Bounds are named arguments (``start`` or ``rel_start``, with one of ``end``, ``rel_end``,
``shape`` and ``rel_shape``), or two more inputs, anchor and shape.

Takes the arguments of :meth:`nvidia.dali.fn.decoders.image_slice`. Those that tune its JPEG
decoders have no effect.)code")
    .NumInput(1, 3)
    .InputDox(0, "encoded", "1D TensorList of uint8", "The bytes of an ``.l3`` file a sample.")
    .InputDox(1, "anchor", "1D TensorList of float or int",
              "The window's begin along each of the axes: pixels, or, of floats with "
              "``normalized_anchor``, shares of the image.")
    .InputDox(2, "shape", "1D TensorList of float or int",
              "The window's size along each of the axes: pixels, or, of floats with "
              "``normalized_shape``, shares of the image.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddParent("l3__DecoderAttr")
    .AddParent("decoders__ImageSlice");

DALI_SCHEMA(l3__DecodeRandomCrop)
    .DocStr(R"code(Decodes a random window of lossless L3 images.

Only the tiles that the window touches are read, uploaded and decoded. With the same ``seed`` the
windows are those of :meth:`nvidia.dali.fn.decoders.image_random_crop`, whose arguments it takes.
Those that tune its JPEG decoders have no effect.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "The bytes of an ``.l3`` file a sample.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddParent("l3__DecoderAttr")
    .AddParent("decoders__ImageRandomCrop");

DALI_SCHEMA(l3__DecodeCropMirrorNormalize)
    .DocStr(R"code(Decodes lossless L3 images, crops, mirrors and normalizes them in one pass.

Equal to ``fn.l3.decode`` followed by :meth:`nvidia.dali.fn.crop_mirror_normalize`, whose arguments
it takes, but decodes only the tiles that the window touches, and straight to the final type and
layout. ``output_type`` may be any but ``YCbCr``.

All images of a batch need the same number of channels: ``output_type=types.RGB`` makes three of each.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "The bytes of an ``.l3`` file a sample.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddOptionalTypeArg("dtype", R"code(The type of the output. Values are those that the formula
of ``mean`` and ``std`` gives, rounded and cut to the range of the type. Where the formula changes nothing,
signed images refuse narrower and unsigned types, and labels any type that cannot hold them, as in ``fn.l3.decode``.)code",
                        DALI_FLOAT)
    .AddParent("l3__DecoderAttr")
    .AddParent("CropMirrorNormalize");

DALI_SCHEMA(l3__DecodeWindows)
    .DocStr(R"code(Decodes many windows of each lossless L3 image, all of one size, in one tensor.

The output of a sample has the layout FHWC, or ``F`` and ``output_layout``: windows are what DALI knows
as the frames of a sequence, so that operators for sequences take them. Their number may differ
from sample to sample. A sample without anchors, or with ``count=0``, has none. 65,536 are the most that one
may have.

Only the tiles that a window touches are read, uploaded and decoded. A tile is decoded once for all
windows that touch it; with ``device="mixed"`` once for every 64 of them.

Where windows lie is told by one of these:

* a second input, the anchors;
* ``stride``: a grid from the upper left corner on;
* ``count``: random places, anew for each batch.

Windows are those of the image as it is shown, see ``adjust_orientation``. They can be normalized
as :meth:`nvidia.dali.fn.crop_mirror_normalize` does it; ``output_type`` may be any but ``YCbCr``.
``max_pixels`` counts those of all windows of a sample.)code")
    .NumInput(1, 2)
    .InputDox(0, "encoded", "1D TensorList of uint8", "The bytes of an ``.l3`` file a sample.")
    .InputDox(1, "anchors", "2D TensorList of int32 or int64",
              "N x 2: y and x of the upper left pixel of each window.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddOptionalArg<std::vector<int>>(
        "window",
        R"code(Height and width of the windows, in pixels, or one number for both. With ``count`` it may be missing: the
windows of a sample then have a random size, by ``random_area`` and ``random_aspect_ratio``.)code",
        nullptr, true)
    .AddOptionalArg<std::vector<int>>(
        "stride",
        R"code(How far the windows of a grid are apart, down and to the right, in pixels, 1 or more;
or one number for both. With ``out_of_bounds_policy="pad"`` there are as many as it takes to cover the
image (if ``stride`` is not above ``window``), and the last ones may reach out. Else there are those that
fit, and an image in which none fits is an error, or as ``on_error`` says. Rows first.)code",
        nullptr, true)
    .AddOptionalArg<int>("count", "How many windows at random places.", nullptr, true)
    .AddOptionalTypeArg("dtype", R"code(The type of the output, by default the stored one; then all
images of a batch need the same. Values are those that the formula of ``mean`` and ``std`` gives, rounded
and cut to the range of the type, which they fill if ``fill_range=True``. Where the formula changes nothing,
signed images refuse narrower and unsigned types, and labels any type that cannot hold them, as in ``fn.l3.decode``.)code")
    .AddOptionalArg("output_layout", "The layout of a window: a permutation of HWC.",
                    TensorLayout("HWC"))
    .AddOptionalArg("pad_output", R"code(Give images of three channels a fourth one: of zeros, or of
``fill_values`` where ``out_of_bounds_policy="pad"``. It does not add to a choice of ``channels``.)code",
                    false)
    .AddOptionalArg("mirror", "1 to mirror the windows of a sample left to right.", 0, true)
    .AddOptionalArg("mean", "What is subtracted, of all channels or of each.",
                    std::vector<float>{0.0f}, true)
    .AddOptionalArg("std", "What is divided by, of all channels or of each.",
                    std::vector<float>{1.0f}, true)
    .AddOptionalArg("scale", "What the result is multiplied by.", 1.0f)
    .AddOptionalArg("shift", "What is added at last.", 0.0f)
    .AddOptionalArg("out_of_bounds_policy", R"code(What becomes of windows that reach out of the
image: ``"error"``, or ``"pad"`` with ``fill_values``.)code",
                    "error")
    .AddOptionalArg("fill_values",
                    R"code(For ``out_of_bounds_policy="pad"``: what is padded with, a value
for all channels or one for each. They are values of the output, so ``mean`` and ``std`` do not change
them; in integers what is behind the point is dropped. With ``pad_output``, the fourth channel gets the
one value or the fourth of four, and zeros where there are three.)code",
                    std::vector<float>{0.0f})
    .AddParent("l3__DecoderAttr")
    .AddParent("RandomCropAttr");

DALI_SCHEMA(l3__PeekShape)
    .DocStr(R"code(Gives the shape, HWC, that ``fn.l3.decode`` gives an L3 image, from the header of
the file alone.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8",
              "An ``.l3`` file a sample. What lies behind its chunks may be missing.")
    .NumOutput(1)
    .AddOptionalArg("image_type", "The ``output_type`` of the decoding operator.", DALI_ANY_DATA)
    .AddParent("PeekImageShape");

DALI_SCHEMA(l3__Recognize)
    .DocStr(R"code(Says whether a sample is an L3 file, from its first bytes alone.

One that is damaged behind them counts as L3, so that the decoder can say what is wrong. With
``l3dali.pipeline.decode`` a batch may hold other formats too.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "A file a sample.")
    .NumOutput(1)
    .OutputDType(0, DALI_BOOL)
    .AddOptionalArg("check_others",
                    R"code(Whether a sample that is neither L3 nor begins as the formats
do that :meth:`nvidia.dali.fn.decoders.image` reads is an error, which names it.)code",
                    false)
    .AddOptionalArg("_with_numbers", "Gives the place of each sample in the batch, too.", false)
    .AdditionalOutputsFn([](const dali::OpSpec& spec) {
      return int{spec.GetArgument<bool>("_with_numbers")};
    });

DALI_SCHEMA(l3__PickShare)
    .DocStr(R"code(Picks a share of the samples of each batch, evenly spread over it.

The same files in the same order give the same picks. Of ``n`` samples it picks ``share * n``, rounded
up or down so that batches make up the share on average: what decides is a hash of the first file's
end.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "A file a sample.")
    .NumOutput(1)
    .OutputDType(0, DALI_BOOL)
    .AddArg("share",
            R"code(From 0, none, to 1, all. Of values for each sample the first counts.)code",
            DALI_FLOAT, true);

DALI_REGISTER_OPERATOR(l3__Decode, l3::Decode<l3::CpuBackend>, CPU);
DALI_REGISTER_OPERATOR(l3__Decode, l3::Decode<l3::MixedBackend>, Mixed);
DALI_REGISTER_OPERATOR(l3__DecodeCrop, l3::DecodeCrop<l3::CpuBackend>, CPU);
DALI_REGISTER_OPERATOR(l3__DecodeCrop, l3::DecodeCrop<l3::MixedBackend>, Mixed);
DALI_REGISTER_OPERATOR(l3__DecodeSlice, l3::DecodeSlice<l3::CpuBackend>, CPU);
DALI_REGISTER_OPERATOR(l3__DecodeSlice, l3::DecodeSlice<l3::MixedBackend>, Mixed);
DALI_REGISTER_OPERATOR(l3__DecodeRandomCrop, l3::DecodeRandomCrop<l3::CpuBackend>, CPU);
DALI_REGISTER_OPERATOR(l3__DecodeRandomCrop, l3::DecodeRandomCrop<l3::MixedBackend>, Mixed);
DALI_REGISTER_OPERATOR(l3__DecodeCropMirrorNormalize, l3::DecodeCropMirrorNormalize<l3::CpuBackend>,
                       CPU);
DALI_REGISTER_OPERATOR(l3__DecodeCropMirrorNormalize,
                       l3::DecodeCropMirrorNormalize<l3::MixedBackend>, Mixed);
DALI_REGISTER_OPERATOR(l3__DecodeWindows, l3::DecodeWindows<l3::CpuBackend>, CPU);
DALI_REGISTER_OPERATOR(l3__DecodeWindows, l3::DecodeWindows<l3::MixedBackend>, Mixed);
DALI_REGISTER_OPERATOR(l3__PeekShape, l3::PeekShape, CPU);
DALI_REGISTER_OPERATOR(l3__Recognize, l3::Recognize, CPU);
DALI_REGISTER_OPERATOR(l3__PickShare, l3::PickShare, CPU);

}  // namespace dali

// For l3dali.plugin.cache_statistics().
extern "C" __attribute__((visibility("default"))) int l3_GetCacheStatistics(int device_id,
                                                                            uint64_t* numbers) {
  return l3::GetCacheStatistics(device_id, numbers) ? 1 : 0;
}

// For l3dali.pipeline. The first opens a clock and returns its number, or 0 without memory. The
// second closes it. The third reads batches, samples and seconds; false if the clock is not open.
extern "C" __attribute__((visibility("default"))) int64_t l3_OpenTimes() {
  try {
    return l3::DecodeTimes::Open();
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

extern "C" __attribute__((visibility("default"))) void l3_CloseTimes(int64_t number) {
  l3::DecodeTimes::Close(number);
}

extern "C" __attribute__((visibility("default"))) int l3_ReadTimes(int64_t number,
                                                                   double* numbers) {
  const auto times = l3::DecodeTimes::Find(number);
  if (times == nullptr) return 0;
  for (const auto place : {l3::DecodeTimes::kCpu, l3::DecodeTimes::kGpu}) {
    const l3::DecodeTimes::Sum sum = times->Get(place);
    *numbers++ = static_cast<double>(sum.batches);
    *numbers++ = static_cast<double>(sum.samples);
    *numbers++ = sum.seconds;
  }
  return 1;
}

// The DALI operators: schemas and registration. Layer: adapter; src/op holds what stands
// behind it, and no other file includes that. Compiled as C++: kernels are in src/cuda.
#include <new>
#include <optional>

#include "dali/pipeline/operator/operator.h"
#include "op/cache_statistics.h"
#include "op/cpu_backend.h"
#include "op/decode_variants.h"
#include "op/mixed_backend.h"
#include "op/peek_shape.h"
#include "op/read_paths.h"
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
    .AddOptionalArg("output_type",
                    R"code(The channels of the output. The default keeps the stored ones.

``RGB``, ``BGR``, ``GRAY`` and ``YCbCr`` convert as :meth:`nvidia.dali.fn.decoders.image` converts a
PNG file of the same samples without gAMA and sRGB chunks. Images with three or four channels are RGB,
those with one or two are gray. Alpha is dropped. JPEG files that were kept as such convert as the JPEG
file does: ``GRAY`` is its luma plane.)code",
                    DALI_ANY_DATA)
    .AddOptionalArg<std::vector<int>>("channels",
                                      R"code(The channels of the output, in this order, by
their numbers in the file from 0 on, each at most once. By default all. Needs the default
``output_type``.

For an image with more than four channels, only the channel groups that contain them are read, uploaded
and decoded.)code",
                                      nullptr)
    .AddOptionalTypeArg("dtype",
                        R"code(The type of the output. By default the stored type: ``uint8``,
``uint16``, ``int8``, ``int16``, ``uint32``, ``int32``, ``float16`` or ``float``. All images of a batch must then have the same type.

An integer ``dtype`` that holds every value of the stored type keeps the numbers. Other types rescale as
:meth:`nvidia.dali.fn.decoders.image` does. Floats and 32-bit integers keep their
numbers. Signed and 32-bit images refuse integer types that cannot hold them. Labels
(masks encoded with ``--labels`` or ``--palette index``) refuse any type that cannot hold them. Labels, and
operators with ``mean`` and ``std``, never rescale. ``fill_range`` overrides.)code")
    .AddOptionalArg<bool>("fill_range", R"code(Whether values are rescaled to the range of a
``dtype`` that differs from the stored type. By default ``dtype`` decides.

True rescales before ``mean`` and ``std``: 65535 becomes 255 in ``uint8`` and 1.0 in ``float``. In signed
types 0 stays 0: ``int16`` 32767 becomes 255 in ``uint8`` and 1.0 in ``float``; -32767 becomes 0 and -1.0.
False keeps the numbers and saturates: 65535 becomes 255 in ``uint8`` and 65535.0 in ``float``; -5 becomes 0 in
``uint8``.)code",
                          nullptr)
    .AddOptionalArg("adjust_orientation",
                    R"code(Turn the image as its EXIF orientation says. Windows are
those of the turned image.)code",
                    true)
    .AddOptionalArg("affine", R"code(For ``device="mixed"``: bind the operator's threads to the
processors closest to the GPU.)code",
                    true)
    .AddOptionalArg("device_memory_padding", R"code(For ``device="mixed"``: bytes of GPU memory to
allocate at the start for each of the two batches in flight. Buffers grow for batches that need more.)code",
                    16 << 20)
    .AddOptionalArg("host_memory_padding", R"code(The same for pinned host memory, which holds
windows and small files before their upload.)code",
                    8 << 20)
    .AddOptionalArg("cache_size", R"code(For ``device="mixed"``: maximum megabytes of GPU memory
for a cache of encoded images. 0 disables it. A cached image is decoded without an upload, for any window.

Operators of a process on the same GPU share one cache and need the same ``cache_`` arguments. The cache
identifies an image by the name that the reader gives, without ``file_root``: files of several folders need
different names. Images without a name (``external_source``) and damaged images are not cached. Each cached
image also takes at least 4 KiB of host memory. A file that has changed is decoded without the cache if its size,
header or index differ; other changes are not detected. Readers still read cached files, unless
``skip_cached_images`` is set.)code",
                    0)
    .AddOptionalArg("skip_cached_images",
                    R"code(Do not read cached files. Readers need
``skip_cached_images=True`` too, and all operators on a GPU need the same value.

Files are then identified by name alone, without ``file_root``: **two files of one name are confused**, and
changes are not detected. Pipelines over several roots should list ``files`` with whole paths. Other
operators after such a reader, ``fn.l3.peek_shape`` too, get no bytes. Readers ask the cache of
:meth:`nvidia.dali.fn.decoders.image`, which holds a byte of each image. If a process uses both caches on a GPU,
create that decoder first, with ``cache_threshold`` 0 or 1 and ``cache_type="threshold"``. Otherwise nothing is
skipped.)code",
                    false)
    .AddOptionalArg("cache_type",
                    R"code(Which files to cache: ``"threshold"``, the default, every file of
at least ``cache_threshold`` bytes until the cache is full; ``"largest"``, the largest of these, from
the second epoch on.)code",
                    "")
    .AddOptionalArg("cache_threshold", "Minimum size in bytes of a cached file.", 0)
    .AddOptionalArg("cache_debug", R"code(Print the cache's hits, misses and images at the end.
``l3dali.plugin.cache_statistics()`` returns them at any time.)code",
                    false)
    .AddOptionalArg("max_pixels", R"code(Maximum pixels of a sample's output, up to 2^31. More is an
error, or as ``on_error`` says.

It limits memory for untrusted files: 655 KB can declare 2^31 pixels, 16 GiB. Only pixels of the window
count.)code",
                    static_cast<int64_t>(l3::kDefaultMaxPixels))
    .AddOptionalArg("on_error", R"code(What to do with a sample that is damaged, is no L3 image or
does not fit the arguments: ``"raise"`` ends the pipeline with an error that names the source; ``"zero"``
fills the sample with zeros and logs its name.

The zeros have the shape of the output. If the header is damaged, they have the size of a fixed crop, else 1 x 1
pixels. The log counts all failures and names only some of many. Damage outside of the window's tiles is not
detected. A valid image fails with status 9 (``kInvalidArgument``) if:

* a window is empty or reaches out of the image;
* its channels differ from ``mean``, ``std`` or ``fill_values``, or in ``decode_crop_mirror_normalize`` from most images
  of the batch (set ``output_type``);
* ``dtype`` cannot hold its numbers (set ``fill_range``);
* its type differs from that of most images of the batch (set ``dtype``).

More pixels than ``max_pixels`` give status 8 (``kOutputTooSmall``) and zeros of 1 x 1 pixels. Arguments that fit no
image always raise.)code",
                    "raise")
    .AddOptionalArg("return_status",
                    R"code(Add a second output: the status of each sample as an ``int32``
scalar, 0 if it was decoded. It is on the GPU for ``device="mixed"``.)code",
                    false)
    .AddOptionalArg("_numbers", "Places of the samples in a batch of which they are a part.", 0,
                    true);

DALI_SCHEMA(l3__Decode)
    .DocStr(R"code(Decodes L3 images.

The output has the layout HWC, and by default the stored channels and type. Images of a batch may differ in
size and number of channels. With ``device="mixed"`` the GPU decodes them.

Takes the arguments of :meth:`nvidia.dali.fn.decoders.image`.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "An ``.l3`` file for each sample.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddParent("l3__DecoderAttr")
    .AddParent("decoders__Image");

DALI_SCHEMA(l3__DecodeCrop)
    .DocStr(R"code(Decodes a crop of each L3 image, given by its size and its place.

Only the tiles that the window touches are read, uploaded and decoded. A window that reaches out
of its image is an error.

Takes the arguments of :meth:`nvidia.dali.fn.decoders.image_crop`.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "An ``.l3`` file for each sample.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddParent("l3__DecoderAttr")
    .AddParent("decoders__ImageCrop");

DALI_SCHEMA(l3__DecodeSlice)
    .DocStr(R"code(Decodes a crop of each L3 image, given by its bounds.

Only the tiles that the window touches are read, uploaded and decoded. A window that is empty or
reaches out of its image is an error.

Bounds are arguments (``start`` or ``rel_start``, with one of ``end``, ``rel_end``, ``shape`` and
``rel_shape``), or the inputs anchor and shape.

Takes the arguments of :meth:`nvidia.dali.fn.decoders.image_slice`.)code")
    .NumInput(1, 3)
    .InputDox(0, "encoded", "1D TensorList of uint8", "An ``.l3`` file for each sample.")
    .InputDox(1, "anchor", "1D TensorList of float or int",
              "Start of the window along each of the axes: in pixels, or, for floats with "
              "``normalized_anchor``, relative to the image's size.")
    .InputDox(2, "shape", "1D TensorList of float or int",
              "Size of the window along each of the axes: in pixels, or, for floats with "
              "``normalized_shape``, relative to the image's size.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddParent("l3__DecoderAttr")
    .AddParent("decoders__ImageSlice");

DALI_SCHEMA(l3__DecodeRandomCrop)
    .DocStr(R"code(Decodes a random crop of each L3 image.

Only the tiles that the window touches are read, uploaded and decoded. With the same ``seed`` the
windows are those of :meth:`nvidia.dali.fn.decoders.image_random_crop`, whose arguments it takes.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "An ``.l3`` file for each sample.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddParent("l3__DecoderAttr")
    .AddParent("decoders__ImageRandomCrop");

DALI_SCHEMA(l3__DecodeCropMirrorNormalize)
    .DocStr(R"code(Decodes, crops, mirrors and normalizes L3 images in one pass.

Equal to ``fn.l3.decode`` followed by :meth:`nvidia.dali.fn.crop_mirror_normalize`, whose arguments
it takes, but it decodes only the tiles that the crop touches. ``output_type`` may be any but ``YCbCr``.

All images of a batch need the same number of channels: ``output_type=types.RGB`` makes three.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "An ``.l3`` file for each sample.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddOptionalTypeArg(
        "dtype", R"code(The type of the output. Normalized values are rounded and saturated to it.

If normalization changes nothing, it must hold the numbers of signed images and labels, as in
``fn.l3.decode``.)code",
        DALI_FLOAT)
    .AddParent("l3__DecoderAttr")
    .AddParent("CropMirrorNormalize");

// Of operators with `mean` and `std` whose outputs have the stored type by default.
constexpr char kTypeOfWindows[] =
    R"code(The type of the output, by default the stored one; all images of a batch
must then have the same type. Normalized values are rounded and saturated to it.

``fill_range=True`` rescales them to its range. If normalization changes nothing, the type must hold the
numbers of signed images and labels, as in ``fn.l3.decode``.)code";

DALI_SCHEMA(l3__WindowAttr)
    .MakeAbstract()
    .AddOptionalArg("pad_output", R"code(Add a fourth channel to images of three: of zeros, or of
``fill_values`` with ``out_of_bounds_policy="pad"``. No effect with ``channels``.)code",
                    false)
    .AddOptionalArg("mirror", "1 mirrors the windows of a sample left to right.", 0, true)
    .AddOptionalArg("mean", "Subtracted first: one value, or one for each channel.",
                    std::vector<float>{0.0f}, true)
    .AddOptionalArg("std", "Divisor: one value, or one for each channel.", std::vector<float>{1.0f},
                    true)
    .AddOptionalArg("scale", "Factor after ``mean`` and ``std``.", 1.0f)
    .AddOptionalArg("shift", "Added last.", 0.0f)
    .AddOptionalArg("out_of_bounds_policy", R"code(For windows that reach out of the image:
``"error"``, or ``"pad"`` with ``fill_values``.)code",
                    "error")
    .AddOptionalArg(
        "fill_values",
        R"code(For ``out_of_bounds_policy="pad"``: values of padded pixels, one, or one for
each channel. They are not normalized; for integer types the fraction is truncated.

With ``pad_output``, the fourth channel gets the one value, the fourth of four, or zeros with three.)code",
        std::vector<float>{0.0f});

DALI_SCHEMA(l3__DecodeWindows)
    .DocStr(R"code(Decodes many windows of each L3 image, all of one size, to one tensor.

The output of a sample has the layout FHWC, or ``F`` and ``output_layout``: windows are the frames of a sequence.
Samples may have different numbers of windows, 0 to 65,536.

Only the tiles that windows touch are read, uploaded and decoded: once for all windows of a sample, with
``device="mixed"`` once for each 64 windows.

One of these gives the places:

* a second input, the anchors;
* ``stride``: a grid from the upper left corner on;
* ``count``: random places, new for each batch.

Windows can be normalized as by :meth:`nvidia.dali.fn.crop_mirror_normalize`. ``output_type`` may be any
but ``YCbCr``. ``max_pixels`` counts the pixels of all windows of a sample.)code")
    .NumInput(1, 2)
    .InputDox(0, "encoded", "1D TensorList of uint8", "An ``.l3`` file for each sample.")
    .InputDox(1, "anchors", "2D TensorList of int32 or int64",
              "N x 2: y and x of the upper left pixel of each window.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddOptionalArg<std::vector<int>>(
        "window",
        R"code(Height and width of the windows, in pixels, or one number for both. Without it, windows of ``count``
have a random size for each sample, by ``random_area`` and ``random_aspect_ratio``.)code",
        nullptr, true)
    .AddOptionalArg<std::vector<int>>(
        "stride",
        R"code(Vertical and horizontal distance between the windows of a grid, in pixels, 1 or more; or one number
for both. Rows first.

With ``out_of_bounds_policy="pad"`` the last windows may reach out of the image, so that all of it is covered if
``stride`` is not above ``window``. Otherwise windows lie inside; an image in which none fits is an error, or as
``on_error`` says.)code",
        nullptr, true)
    .AddOptionalArg<int>("count", "Number of windows at random places.", nullptr, true)
    .AddOptionalTypeArg("dtype", kTypeOfWindows)
    .AddOptionalArg("output_layout", "The layout of a window: a permutation of HWC.",
                    TensorLayout("HWC"))
    .AddParent("l3__DecoderAttr")
    .AddParent("l3__WindowAttr")
    .AddParent("RandomCropAttr");

DALI_SCHEMA(l3__DecodeVolume)
    .DocStr(R"code(Decodes a patch of each volume, or all of it: files of ``l3dali.encode_volume``.

Only the tiles that the patch touches are read, uploaded and decoded. The place is the input ``anchor``, or random
and new for each batch: operators with the same ``seed`` and ``window`` draw the same places in volumes of the same
shape, such as an image and its labels.

Patches can be normalized as by :meth:`nvidia.dali.fn.crop_mirror_normalize`. ``output_type`` may be any but
``YCbCr``. ``max_pixels`` counts the voxels of the patch.)code")
    .NumInput(1, 2)
    .InputDox(0, "encoded", "1D TensorList of uint8", "An ``.l3`` file for each sample.")
    .InputDox(1, "anchor", "1D TensorList of int32 or int64",
              "z, y and x of the first voxel of the patch.")
    .NumOutput(1)
    .AdditionalOutputsFn(StatusOutputs)
    .OutputDType(0, TypeAskedFor)
    .AddOptionalArg<std::vector<int>>(
        "window",
        R"code(Depth, height and width of the patch, in voxels, or one number for all. By default the whole volume.)code",
        nullptr, true)
    .AddOptionalTypeArg("dtype", kTypeOfWindows)
    .AddOptionalArg("output_layout", "``DHWC``, ``CDHW``, or for volumes of one channel ``DHW``.",
                    TensorLayout("DHWC"))
    .AddRandomSeedArg()
    .AddRandomStateArg()
    .AddParent("l3__DecoderAttr")
    .AddParent("l3__WindowAttr");

DALI_SCHEMA(l3__PeekShape)
    .DocStr(
        R"code(Returns the shape, HWC, of the output of ``fn.l3.decode``, from the header of the file.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8",
              "An ``.l3`` file for each sample, or its beginning up to the end of the chunks.")
    .NumOutput(1)
    .AddOptionalArg("image_type", "The ``output_type`` of the decoding operator.", DALI_ANY_DATA)
    .AddParent("PeekImageShape");

DALI_SCHEMA(l3__ReaderAttr)
    .MakeAbstract()
    .AddOptionalArg("lazy", R"code(Give a handle of each L3 file in place of its bytes: a few KB.

The operators of ``fn.l3`` accept handles and read only the tiles that they decode; other operators reject
handles. Files of other formats are read whole. If a file changes before its tiles are read, its sample
fails as ``on_error`` of the decoder says.)code",
                    false)
    .AddOptionalArg("use_o_direct", R"code(Read past the page cache, where the file system can.
Measure whether it is faster on your disk.)code",
                    false)
    .AddOptionalArg("remote_gap",
                    R"code(Bytes between two ranges of an object that are read to save a request.

With ``lazy``, tiles of an object in ``s3://`` or ``gs://`` are read by ranges. -1 reads as many as take the
time of a request, as measured. 0 reads the fewest bytes, in the most requests.)code",
                    int64_t{-1});

DALI_SCHEMA(l3__Read)
    .DocStr(R"code(Reads files whose paths are the input, on the pipeline's threads.)code")
    .NumInput(1)
    .InputDox(0, "paths", "1D TensorList of uint8", "The path of each file.")
    .NumOutput(1)
    .OutputDType(0, DALI_UINT8)
    .AddParent("l3__ReaderAttr");

DALI_SCHEMA(l3__Recognize)
    .DocStr(R"code(Returns whether a sample is an L3 file, by its first bytes.

``l3dali.pipeline.decode`` uses it for batches of several formats.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "A file for each sample.")
    .NumOutput(1)
    .OutputDType(0, DALI_BOOL)
    .AddOptionalArg("check_others",
                    R"code(Raise an error for a sample that is neither L3 nor a format
that :meth:`nvidia.dali.fn.decoders.image` reads.)code",
                    false)
    .AddOptionalArg("_with_numbers", "Gives the place of each sample in the batch, too.", false)
    .AdditionalOutputsFn([](const dali::OpSpec& spec) {
      return int{spec.GetArgument<bool>("_with_numbers")};
    });

DALI_SCHEMA(l3__PickShare)
    .DocStr(R"code(Picks a share of the samples of each batch, evenly spread over it.

It picks ``share * n`` of ``n`` samples, rounded up or down so that batches have the share on average. The
same files in the same order give the same picks.)code")
    .NumInput(1)
    .InputDox(0, "encoded", "1D TensorList of uint8", "A file for each sample.")
    .NumOutput(1)
    .OutputDType(0, DALI_BOOL)
    .AddArg("share",
            R"code(The share, from 0 to 1. Of values for each sample, the first counts.)code",
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
DALI_REGISTER_OPERATOR(l3__DecodeVolume, l3::DecodeVolume<l3::CpuBackend>, CPU);
DALI_REGISTER_OPERATOR(l3__DecodeVolume, l3::DecodeVolume<l3::MixedBackend>, Mixed);
DALI_REGISTER_OPERATOR(l3__PeekShape, l3::PeekShape, CPU);
DALI_REGISTER_OPERATOR(l3__Read, l3::ReadPaths, CPU);
DALI_REGISTER_OPERATOR(l3__Recognize, l3::Recognize, CPU);
DALI_REGISTER_OPERATOR(l3__PickShare, l3::PickShare, CPU);

}  // namespace dali

// For l3dali.plugin.cache_statistics().
extern "C" __attribute__((visibility("default"))) int l3_GetCacheStatistics(int device_id,
                                                                            uint64_t* numbers) {
  return l3::GetCacheStatistics(device_id, numbers) ? 1 : 0;
}

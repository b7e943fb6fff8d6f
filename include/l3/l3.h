// The L3 image format in C99 and C++.
//
//   l3_output output = {.struct_size = sizeof(output)};
//   if (l3_decode_size(file, file_size, NULL, &output) == L3_OK) {
//     void* pixels = malloc(output.bytes);
//     l3_status status = l3_decode(file, file_size, NULL, pixels, output.bytes, NULL);
//   }
//
// For all functions:
// * Files and pixels are in the caller's memory, or in that of its allocator. Working memory comes
//   from malloc(). Functions are thread-safe.
// * Files may be untrusted: damaged files give a status. No byte outside of the buffers is read or
//   written, even if a file changes during the call. An image that changes while it is encoded may
//   give a file that does not decode.
// * A forbidden null pointer, an option out of range and a structure of unknown size give
//   L3_INVALID_ARGUMENT. No C++ exception leaves the library.
// * Structures that begin with struct_size may grow in later versions. Set struct_size to the
//   sizeof, and unused members to 0, the default of each option. Null options are the defaults.
//   Programs run with newer libraries, and with older ones if the options that these lack are 0.
// * The caller's thread and each started thread need up to 512 KiB of stack. musl gives threads
//   128 KiB: link programs with -Wl,-z,stack-size=1048576.
// * Sizes are in bytes, lengths in pixels. Samples have the byte order of the machine.
#ifndef L3_L3_H_
#define L3_L3_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define L3_API __attribute__((visibility("default")))
#else
#define L3_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define L3_VERSION_MAJOR 1
#define L3_VERSION_MINOR 1
#define L3_VERSION_PATCH 0

// The result of a call. docs/format.md defines the numbers below 1000.
typedef uint32_t l3_status;
enum {
  L3_OK = 0,
  L3_TRUNCATED = 1,            // the file ends too early
  L3_BAD_MAGIC = 2,            // not an L3 file
  L3_UNSUPPORTED_VERSION = 3,  // a later version of the format
  L3_UNSUPPORTED_FEATURE = 4,
  L3_CORRUPT_HEADER = 5,  // header, chunks or index break a rule, or bytes follow the file
  L3_CORRUPT_TILE = 6,
  L3_CHECKSUM_MISMATCH = 7,
  L3_OUTPUT_TOO_SMALL = 8,  // the buffer is too small
  L3_INVALID_ARGUMENT = 9,
  L3_OUT_OF_MEMORY = 1000,    // memory, or another resource of the machine
  L3_TYPE_TOO_NARROW = 1001,  // the type cannot hold the file's samples; set fill_range
  L3_TOO_MANY_PIXELS = 1002   // the output has more than max_pixels
};

// The type of a sample.
enum {
  L3_AS_STORED = 0,
  L3_UINT8 = 1,  // files have one of these eight
  L3_UINT16 = 2,
  L3_INT8 = 3,
  L3_INT16 = 4,
  L3_UINT32 = 5,
  L3_INT32 = 6,
  L3_FLOAT16 = 7,
  L3_FLOAT32 = 8,
  L3_INT64 = 9  // outputs may also have this one
};

// How samples convert to another type than the stored one.
enum {
  // Labels, floats and integers of 32 bits keep their numbers, and so do integer types that hold
  // every number of the stored type; other types rescale as L3_FILL_RANGE. L3_TYPE_TOO_NARROW: the
  // type cannot hold the labels, or is an integer type that cannot hold signed samples or those of
  // 32 bits.
  L3_FILL_BY_TYPE = 0,
  // Rescale, labels too: the largest number of the stored type becomes that of the output type, or
  // 1 in floats. 0 stays 0. L3_TYPE_TOO_NARROW: the samples are floats. In floats the sample is
  // divided by 255, 65535, 127 or 32767.
  L3_FILL_RANGE = 1,
  L3_KEEP_NUMBERS = 2  // keep the numbers, and saturate
};

// The channels of the output. Files with one or two channels are gray, those with three or four
// red, green and blue. The last of two or four is alpha; without one, alpha is opaque.
enum {
  L3_COLORS_AS_STORED = 0,
  L3_COLORS_RGB = 1,
  L3_COLORS_BGR = 2,
  // (9797 red + 19234 green + 3737 blue) / 32768, that is 0.299, 0.587 and 0.114 of them. Samples
  // of 8 bits are rounded down, those of 16 bits to the nearest. Of jpeg tiles in YCbCr it is their
  // luma, as libjpeg gives it.
  L3_COLORS_GRAY = 3,
  L3_COLORS_RGB_ALPHA = 4,
  L3_COLORS_GRAY_ALPHA = 5
};

// The order of samples in memory, the slowest axis first: height, width, channel.
enum { L3_HWC = 0, L3_CHW = 1 };

// One for each processor.
#define L3_ALL_THREADS 0xFFFFFFFFu

// How tiles are coded.
enum {
  L3_CODING_RANS = 0,    // small
  L3_CODING_PACKED = 1,  // fast to decode
  L3_CODING_STORED = 2   // raw samples
};

typedef struct l3_bytes {
  const void* data;
  size_t size;  // 0: none
} l3_bytes;

// The version of the library, as "1.1.0"; L3_VERSION_... is the header's.
L3_API const char* l3_version(void);

// The name of a status in docs/format.md, as "kTruncated", and a sentence for users. Never null.
L3_API const char* l3_status_name(l3_status status);
L3_API const char* l3_status_message(l3_status status);

// ---- What a file holds ----

typedef struct l3_info {
  size_t struct_size;
  uint32_t height, width;
  uint32_t channels;     // 1 to 4096
  uint32_t type;         // of the samples: L3_UINT8 to L3_INT16
  uint32_t used_bits;    // bits of a coded sample, or of its index in the value table
  uint32_t shift;        // low bits that are 0 in every sample
  uint32_t value_count;  // entries of the value table, the list of samples that occur; 0: none
  uint32_t group_count;  // groups of up to four channels that decode together
  uint32_t labels;       // 1: samples are numbers of classes; else 0
  uint32_t tile_height, tile_width;
  uint32_t tile_count;
  uint64_t image_bytes;  // decoded as stored, rows packed
  uint64_t head_bytes;   // header, chunks and index, which l3_read_head() reads
  uint64_t file_bytes;   // the whole file
  // Pointers into the file that was read.
  l3_bytes icc, exif, xmp;
  l3_bytes palette;   // red, green, blue, alpha of each label
  l3_bytes metadata;  // a JSON object in UTF-8; not validated
  // With more than four channels, for each group: the number of its channels, 8 bits, and their
  // numbers in the image, 16 bits each, little-endian (docs/format.md 4).
  l3_bytes groups;
  l3_bytes chunks;  // all chunks, unchanged
} l3_info;

// Validates header, chunks, index and size of a file, in constant memory. Does not read tiles.
//
// info: set, except struct_size. After L3_TRUNCATED only head_bytes, the least that another call
//   needs, and file_bytes, or 0 if not yet known; after other errors all 0.
// Returns L3_OK, L3_TRUNCATED to L3_CORRUPT_HEADER, L3_CHECKSUM_MISMATCH, L3_INVALID_ARGUMENT,
//   L3_OUT_OF_MEMORY.
L3_API l3_status l3_read_info(const void* file, size_t file_size, l3_info* info);

// The same for the beginning of a file; tiles may be missing. To read a file in parts, begin with
// the first KiB. While it returns L3_TRUNCATED, call it with head_bytes bytes, always more than
// before. A damaged file may claim any size: stop if the file is shorter.
L3_API l3_status l3_read_head(const void* file, size_t file_size, l3_info* info);

// ---- Decoding ----

// A part of an image, inside it; all 0: the whole image. Only tiles that it touches are read.
typedef struct l3_window {
  uint32_t top, left;
  uint32_t height, width;
} l3_window;

typedef struct l3_decode_options {
  size_t struct_size;
  // Number of threads, the caller's included: up to 1024, or L3_ALL_THREADS. 0: 1.
  uint32_t threads;
  // The type of the output; fill_range sets the conversion, in 32-bit floats, rounded to nearest.
  uint32_t type;
  // L3_COLORS_AS_STORED if channels is set or the image has more than four; else any L3_COLORS_...
  uint32_t colors;
  uint32_t layout;  // L3_HWC or L3_CHW
  l3_window window;
  // Numbers of the channels to decode, from 0, each at most once, in the order of the output; null
  // with channel_count 0: all. Only the groups that hold these channels are read.
  const uint32_t* channels;
  size_t channel_count;
  // Bytes from a row of the output to the next, a multiple of the size of a sample; 0: packed.
  // Planes of L3_CHW are output.height * row_stride apart.
  size_t row_stride;
  // Larger outputs give L3_TOO_MANY_PIXELS before memory is taken. A pixel counts once for each
  // four channels, rounded up. 0: 2^28; the format's limit is 2^31.
  uint64_t max_pixels;
  uint32_t fill_range;  // L3_FILL_BY_TYPE, L3_FILL_RANGE or L3_KEEP_NUMBERS
} l3_decode_options;

typedef struct l3_output {
  size_t struct_size;
  uint32_t height, width, channels;  // of the output
  uint32_t type;  // L3_UINT8 to L3_INT64
  uint64_t bytes;  // size of the buffer, gaps between rows included
  uint64_t row_stride;  // bytes from a row to the next
  uint64_t plane_stride;  // L3_CHW: bytes from a channel to the next; else 0
  uint32_t bad_tile;  // the first damaged tile, row by row from 0; L3_NO_TILE without one
} l3_output;
#define L3_NO_TILE 0xFFFFFFFFu

// Returns the size and type of the output of l3_decode(), without decoding.
//
// output: set, except struct_size; all 0 but bad_tile after an error.
// Returns the statuses of l3_read_info(), L3_TOO_MANY_PIXELS, L3_TYPE_TOO_NARROW;
//   L3_INVALID_ARGUMENT also if the image does not have this window, channel or colors.
L3_API l3_status l3_decode_size(const void* file, size_t file_size,
                                const l3_decode_options* options, l3_output* output);

// Decodes a file, or the part that options select.
//
// pixels: a buffer aligned to the size of a sample, which must not overlap the file. Gaps between
//   rows are not written. After an error the pixels are undefined.
// pixels_size: size of the buffer, at least the bytes of l3_decode_size().
// output: null, or set as by l3_decode_size(), also after L3_OUTPUT_TOO_SMALL and damaged tiles.
// Returns the statuses of l3_decode_size(); L3_OUTPUT_TOO_SMALL; L3_INVALID_ARGUMENT also for an
//   unaligned buffer; L3_TRUNCATED to L3_CHECKSUM_MISMATCH for damaged tiles.
// Takes up to 3 MiB of working memory per thread, or 12 MiB with more than four channels.
L3_API l3_status l3_decode(const void* file, size_t file_size, const l3_decode_options* options,
                           void* pixels, size_t pixels_size, l3_output* output);

typedef struct l3_range {
  uint64_t offset, size;
} l3_range;

// Lists the parts of a file that l3_decode() needs. Read each part to its offset in a buffer from
// calloc(file_bytes, 1), whose other pages take no memory, and pass the buffer to l3_decode_size()
// and l3_decode() as the file. A local file can be mapped instead: l3_decode() reads these parts.
//
// head, head_size: the beginning of the file, at least the head_bytes of l3_read_head().
// max_gap: parts with at most this many bytes between them are joined.
// ranges: set to the parts in the order of the file, the head first; null only if capacity is 0.
// capacity: room in ranges.
// count: set to the number of parts, also after L3_OUTPUT_TOO_SMALL; 0 after other errors.
// Returns the statuses of l3_decode_size(); L3_TRUNCATED if head_size is less than head_bytes;
//   L3_OUTPUT_TOO_SMALL.
L3_API l3_status l3_payload_ranges(const void* head, size_t head_size,
                                   const l3_decode_options* options, uint64_t max_gap,
                                   l3_range* ranges, size_t capacity, size_t* count);

// The source of memory for l3_decode_alloc() and l3_encode_alloc().
typedef struct l3_allocator {
  size_t struct_size;
  // Called once, in the caller's thread. Returns memory aligned as malloc()'s, or null, which gives
  // L3_OUT_OF_MEMORY. Must not leave by longjmp() or an exception.
  void* (*allocate)(void* context, size_t bytes);
  void* context;
} l3_allocator;

// l3_decode() into memory from an allocator, of exactly the size needed.
//
// pixels: set to the memory, or to null if none was taken. The caller frees it, after errors too.
//   If that needs the size, keep the one that allocate() received.
// output: set as by l3_decode(); not null.
L3_API l3_status l3_decode_alloc(const void* file, size_t file_size,
                                 const l3_decode_options* options, const l3_allocator* allocator,
                                 void** pixels, l3_output* output);

// ---- Encoding ----

// At most 2^31 pixels, and 2^35 - 2^16 bytes of samples.
typedef struct l3_image {
  const void* pixels;      // in the order L3_HWC; any alignment
  uint32_t height, width;  // at least 1
  uint32_t channels;       // 1 to 4096
  uint32_t type;           // L3_UINT8 to L3_INT16
  size_t row_stride;       // bytes from a row to the next; 0: packed
} l3_image;

typedef struct l3_encode_options {
  size_t struct_size;
  uint32_t coding;  // L3_CODING_...
  // 1 (fastest) to 9 (smallest); 0: 5. 7 to 9 take two to five times as long as 5, for 1 to 2 %
  // fewer bytes. Only L3_CODING_RANS differs by it.
  uint32_t effort;
  uint32_t threads;  // as in l3_decode_options
  // Powers of two: heights of 8 to 256, widths of 32 to 256. 0: the encoder chooses.
  uint32_t tile_height, tile_width;
  uint32_t labels;  // 1: samples are numbers of classes; else 0
  // Stored unchanged; together at most 2^28 - 2^20 bytes.
  l3_bytes icc;
  l3_bytes exif;      // from its TIFF header on
  l3_bytes xmp;       // UTF-8
  l3_bytes palette;   // with labels: red, green, blue, alpha of each of up to 256
  l3_bytes metadata;  // a JSON object in UTF-8
  l3_bytes groups;    // as in l3_info; none: the encoder chooses
  // The chunks of l3_info, to encode a file anew: optional chunks of types unknown to this library
  // are kept, others ignored.
  l3_bytes other_chunks;
} l3_encode_options;

// Sets *bound to an upper limit of the size of the file. If the encoder chooses the tiles, it is at
// most the sum of:
// * the size of the samples, and 1 % of it;
// * 512 bytes, and 40 for each four channels;
// * the icc, exif and other blocks of the options.
// image->pixels may be null.
//
// Returns L3_OK, L3_INVALID_ARGUMENT, or L3_OUT_OF_MEMORY if the bound exceeds a size_t.
L3_API l3_status l3_encode_bound(const l3_image* image, const l3_encode_options* options,
                                 size_t* bound);

// Encodes an image without loss. The same pixels and options give the same bytes on every machine,
// with any number of threads.
//
// file: a buffer for the file, which must not overlap the pixels; null only if capacity is 0.
// capacity: size of the buffer; l3_encode_bound() gives a size that suffices.
// file_size: set to the size of the file, also after L3_OUTPUT_TOO_SMALL; 0 after other errors.
// Returns L3_OK, L3_OUTPUT_TOO_SMALL, L3_INVALID_ARGUMENT, L3_OUT_OF_MEMORY.
// Takes as much working memory as the file. L3_CODING_RANS takes another 4 to 10 times the samples,
// 8 MiB, and up to 5 KiB per tile. N channels, if more than four, take another 8 * N * N bytes.
L3_API l3_status l3_encode(const l3_image* image, const l3_encode_options* options, void* file,
                           size_t capacity, size_t* file_size);

// l3_encode() into memory from an allocator, of the size of the file.
//
// file: set to the memory, or to null if none was taken, as by l3_decode_alloc().
L3_API l3_status l3_encode_alloc(const l3_image* image, const l3_encode_options* options,
                                 const l3_allocator* allocator, void** file, size_t* file_size);

#ifdef __cplusplus
}
#endif

#endif  // L3_L3_H_

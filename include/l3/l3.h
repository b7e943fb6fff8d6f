// The L3 image format in C99 and C++: what a file holds, decoding, encoding.
//
//   l3_output output = {.struct_size = sizeof(output)};
//   if (l3_decode_size(file, file_size, NULL, &output) == L3_OK) {
//     void* pixels = malloc(output.bytes);
//     l3_status status = l3_decode(file, file_size, NULL, pixels, output.bytes, NULL);
//   }
//
// What holds for all functions:
// * Memory is the caller's, or comes from its allocator. Nothing is kept between calls, so any
// threads may call at once.
// * A file may hold any bytes: damaged or hostile ones give a status, and no byte outside of the
//   buffers is read or written. One that changes during a call gives a status or pixels. An image
//   that changes while it is encoded may give a file that does not decode.
// * A null pointer where none is allowed, an option out of range and a structure of unknown size
//   give L3_INVALID_ARGUMENT. No C++ exception leaves the library.
// * A structure that begins with struct_size may grow in later versions. Set struct_size to its
//   sizeof, and what you do not use to 0, which is the default of each option. A program runs with
//   newer libraries, and with older ones too if the options that these do not know are 0.
// * A call takes up to 512 KiB of stack, and so does each thread that it starts: with musl, whose
//   threads have 128 KiB, link programs with -Wl,-z,stack-size=1048576.
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
#define L3_VERSION_MINOR 0
#define L3_VERSION_PATCH 0

// What became of a call. The numbers up to 999 are those of docs/format.md, those from 1000 on are
// of this interface alone.
typedef uint32_t l3_status;
enum {
  L3_OK = 0,
  L3_TRUNCATED = 1,            // the file ends too early
  L3_BAD_MAGIC = 2,            // no L3 file
  L3_UNSUPPORTED_VERSION = 3,  // of a later version of the format
  L3_UNSUPPORTED_FEATURE = 4,
  L3_CORRUPT_HEADER = 5,  // header, chunks or index break a rule, or bytes follow the file
  L3_CORRUPT_TILE = 6,
  L3_CHECKSUM_MISMATCH = 7,
  L3_OUTPUT_TOO_SMALL = 8,  // the buffer is too small
  L3_INVALID_ARGUMENT = 9,
  L3_OUT_OF_MEMORY = 1000,  // memory, or another resource of the machine
  L3_TYPE_TOO_NARROW = 1001,  // the type cannot hold the file's values; fill_range is not set
  L3_TOO_MANY_PIXELS = 1002  // the output has more than max_pixels
};

// The type of a sample.
enum {
  L3_AS_STORED = 0,
  L3_UINT8 = 1,  // files have one of the first four
  L3_UINT16 = 2,
  L3_INT8 = 3,
  L3_INT16 = 4,
  L3_UINT32 = 5,  // these and L3_INT64 only come out of l3_decode()
  L3_INT32 = 6,
  L3_FLOAT16 = 7,
  L3_FLOAT32 = 8,
  L3_INT64 = 9
};

// What becomes of samples in another type than the stored one.
enum {
  // An integer type that holds every value of the stored type keeps the numbers; other types are
  // filled, as by L3_FILL_RANGE. Labels always keep their numbers.
  // L3_TYPE_TOO_NARROW: the type cannot hold the labels, or it is an integer type that cannot hold
  // the signed samples.
  L3_FILL_BY_TYPE = 0,
  // Samples fill the range of the type. That of floats is 0 to 1, or -1 to 1 for signed samples.
  L3_FILL_RANGE = 1,
  L3_KEEP_NUMBERS = 2  // the numbers stay, and saturate
};

// Which channels come out of l3_decode(). All but the first read channels 0 to 2 of an image with
// three or four as red, green and blue, and channel 0 of one with fewer as gray. Alpha is the last
// of two or four channels, and opaque where the file has none.
enum {
  L3_COLORS_AS_STORED = 0,
  L3_COLORS_RGB = 1,
  L3_COLORS_BGR = 2,
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
  L3_CODING_STORED = 2   // samples as they are, in files as large as the pixels
};

typedef struct l3_bytes {
  const void* data;
  size_t size;  // 0: none
} l3_bytes;

// The version of the library, as "1.0.0". The header's is L3_VERSION_MAJOR and so on.
L3_API const char* l3_version(void);

// The name that docs/format.md gives a status, as "kTruncated", and a sentence for people. Never
// null: any other number is "unknown status".
L3_API const char* l3_status_name(l3_status status);
L3_API const char* l3_status_message(l3_status status);

// ---- What a file holds ----

typedef struct l3_info {
  size_t struct_size;
  uint32_t height, width;
  uint32_t channels;     // 1 to 4096
  uint32_t type;         // of the samples: L3_UINT8 to L3_INT16
  uint32_t used_bits;    // of the values that are coded
  uint32_t shift;        // low bits that are 0 in every sample
  uint32_t value_count;  // of the value table; 0 without one
  uint32_t group_count;  // groups of channels that decode alone; 1 for up to four channels
  uint32_t labels;       // 1: samples are numbers of classes, not to be blended; else 0
  uint32_t tile_height, tile_width;
  uint32_t tile_count;
  uint64_t image_bytes;  // decoded as stored, rows packed
  uint64_t head_bytes;   // of the file: header, chunks and index, what l3_read_head() reads
  uint64_t file_bytes;   // of the whole file
  // Within the file that was read.
  l3_bytes icc, exif, xmp;
  l3_bytes palette;     // red, green, blue, alpha of each label
  l3_bytes metadata;  // a JSON object in UTF-8; not validated
  // Of more than four channels: for each group the number of its channels, a byte, and theirs in
  // the image, 16 bits each, the low byte first (docs/format.md 4).
  l3_bytes groups;
  l3_bytes chunks;  // all chunks as they stand.
} l3_info;

// Validates header, chunks and index of a whole file, and its size; no payload is read. Takes
// little time and no memory that grows with the image.
//
// file, file_size: the file; null if file_size is 0.
// info: set, apart from struct_size. After an error it is all 0, but after L3_TRUNCATED head_bytes
//   and file_bytes are what is known of them: head_bytes is then the least that a call needs to
//   find out more, file_bytes may be 0.
// Returns L3_OK, L3_TRUNCATED to L3_CORRUPT_HEADER, L3_CHECKSUM_MISMATCH, L3_INVALID_ARGUMENT,
//   L3_OUT_OF_MEMORY.
L3_API l3_status l3_read_info(const void* file, size_t file_size, l3_info* info);

// The same of the beginning of a file: payloads may be missing. For files that are read in parts,
// begin with some KiB. While it returns L3_TRUNCATED, read head_bytes bytes and call it again.
L3_API l3_status l3_read_head(const void* file, size_t file_size, l3_info* info);

// ---- Decoding ----

// A part of an image, inside it. Only tiles that it touches are read.
typedef struct l3_window {
  uint32_t top, left;
  uint32_t height, width;  // both 0, and top and left too: the whole image
} l3_window;

typedef struct l3_decode_options {
  size_t struct_size;
  // How many threads work, the caller's among them: up to 1024, or L3_ALL_THREADS. 0: 1. The
  // samples do not depend on it.
  uint32_t threads;
  // L3_AS_STORED, or another type: fill_range says what becomes of the samples. The arithmetic is
  // that of 32-bit floats, rounded to the nearest.
  uint32_t type;
  // L3_COLORS_... If channels is set, or the image has more than four, only L3_COLORS_AS_STORED.
  uint32_t colors;
  uint32_t layout;  // L3_HWC or L3_CHW
  l3_window window;
  // The numbers of the channels to decode, each at most once, in the order in which they come out.
  // Null, with channel_count 0: all. In images of more than four channels only the groups that
  // hold these are read.
  const uint32_t* channels;
  size_t channel_count;
  // Bytes from a row of the output to the next, a multiple of the size of a sample; 0: packed. In
  // L3_CHW a plane has as many rows as the window, so planes are height * row_stride apart.
  size_t row_stride;
  // An output of more pixels gives L3_TOO_MANY_PIXELS before memory is taken for it: 20 bytes of a
  // file can claim 65,536 pixels. A pixel counts once for each four of its channels, rounded up.
  // 0: 2^28. The format's own limit is 2^31.
  uint64_t max_pixels;
  uint32_t fill_range;  // L3_FILL_BY_TYPE, L3_FILL_RANGE or L3_KEEP_NUMBERS
} l3_decode_options;

typedef struct l3_output {
  size_t struct_size;
  uint32_t height, width, channels;  // of the output
  uint32_t type;                     // L3_UINT8 to L3_INT64
  uint64_t bytes;                    // what l3_decode() needs, gaps between rows included
  uint64_t row_stride;               // bytes from a row to the next
  uint64_t plane_stride;             // L3_CHW: bytes from a channel to the next; else 0
  // The first damaged tile of those that were decoded, counted row by row from 0. Without one, and
  // where a file is refused as a whole, L3_NO_TILE.
  uint32_t bad_tile;
} l3_output;
#define L3_NO_TILE 0xFFFFFFFFu

// Says what l3_decode() makes of a file with these options.
//
// options: null for the defaults.
// output: set, apart from struct_size; all 0 but bad_tile after an error.
// Returns what l3_read_info() does; L3_INVALID_ARGUMENT also for a window that is not inside the
//   image, a channel that it does not have and colors that it cannot have; L3_TOO_MANY_PIXELS for
//   more than max_pixels; L3_TYPE_TOO_NARROW as L3_FILL_BY_TYPE says.
L3_API l3_status l3_decode_size(const void* file, size_t file_size,
                                const l3_decode_options* options, l3_output* output);

// Decodes a file, or what options say of it.
//
// pixels: gets output.bytes of l3_decode_size(), at an address that is a multiple of the size of a
//   sample. Bytes between rows stay as they are. After an error the pixels are undefined. They do
//   not overlap the file.
// pixels_size: how many bytes there are.
// output: null, or set as by l3_decode_size(), also after L3_OUTPUT_TOO_SMALL and after a damaged
//   tile, which sets bad_tile.
// Returns what l3_decode_size() does; L3_OUTPUT_TOO_SMALL if pixels_size is less than needed;
//   L3_INVALID_ARGUMENT for an address that is not aligned; for damaged tiles L3_TRUNCATED to
//   L3_CHECKSUM_MISMATCH.
// Takes up to 3 MiB a thread, and 12 MiB with more than four channels.
L3_API l3_status l3_decode(const void* file, size_t file_size, const l3_decode_options* options,
                           void* pixels, size_t pixels_size, l3_output* output);

// A part of a file: `size` bytes from `offset` on.
typedef struct l3_range {
  uint64_t offset, size;
} l3_range;

// Lists the parts of a file that l3_decode() needs for these options, from the file's beginning
// alone. Read them to their offsets in a buffer of file_bytes (l3_info) zeros, and hand that to
// l3_decode_size() and l3_decode().
//
// head, head_size: the beginning of a file, at least the head_bytes of l3_read_head().
// max_gap: parts with at most so many bytes between them are joined.
// ranges: gets the parts in the order of the file, the first of which is the beginning; null only
//   if capacity is 0.
// capacity: how many parts there is room for.
// count: set to the number of parts; after L3_OUTPUT_TOO_SMALL too, else 0 after an error.
// Returns what l3_decode_size() does, L3_TRUNCATED only if head_size is less than head_bytes;
//   L3_OUTPUT_TOO_SMALL if capacity is less than the number of parts.
L3_API l3_status l3_payload_ranges(const void* head, size_t head_size,
                                   const l3_decode_options* options, uint64_t max_gap,
                                   l3_range* ranges, size_t capacity, size_t* count);

// Where l3_decode_alloc() and l3_encode_alloc() take memory from.
typedef struct l3_allocator {
  size_t struct_size;
  // Called once, in the caller's thread. Returns `bytes` bytes, aligned as malloc() aligns, or null
  // for L3_OUT_OF_MEMORY. It returns as a C function does, without longjmp() or an exception.
  void* (*allocate)(void* context, size_t bytes);
  void* context;  // handed to it
} l3_allocator;

// Decodes as l3_decode() does to memory of an allocator, and reads header and index once.
//
// pixels: set to the memory, output.bytes of it; null if none was taken. The caller frees it, after
//   a damaged tile too.
// output: set as by l3_decode(); not null.
// Returns what l3_decode() does; L3_INVALID_ARGUMENT for an allocator without function.
L3_API l3_status l3_decode_alloc(const void* file, size_t file_size,
                                 const l3_decode_options* options, const l3_allocator* allocator,
                                 void** pixels, l3_output* output);

// ---- Encoding ----

// Pixels in the order L3_HWC. Rows lie row_stride bytes apart, 0: packed. No alignment is needed.
// At most 2^31 pixels and 2^35 - 2^16 bytes of samples.
typedef struct l3_image {
  const void* pixels;
  uint32_t height, width;  // at least 1
  uint32_t channels;  // 1 to 4096
  uint32_t type;  // L3_UINT8 to L3_INT16
  size_t row_stride;
} l3_image;

typedef struct l3_encode_options {
  size_t struct_size;
  uint32_t coding;  // L3_CODING_...
  // 1 (fast) to 9 (small); 0: 5. Only L3_CODING_RANS uses it. 7 to 9 take two to five times as
  // long as 5, for 1 to 2 % fewer bytes. Files decode equally fast.
  uint32_t effort;
  uint32_t threads;  // as in l3_decode_options; the bytes do not depend on it
  // Powers of two, 8 to 256 and 32 to 256. 0: the encoder chooses.
  uint32_t tile_height, tile_width;
  uint32_t labels;  // 1: samples are numbers of classes; else 0
  // Kept in the file as they are; together at most 2^28 - 2^20 bytes.
  l3_bytes icc;
  l3_bytes exif;  // from its TIFF header on
  l3_bytes xmp;  // UTF-8
  l3_bytes palette;  // with labels: 4 bytes, red, green, blue, alpha, for each of up to 256
  l3_bytes metadata;  // a JSON object in UTF-8
  // Of more than four channels, those that decode together, as in l3_info. None: the encoder
  // chooses.
  l3_bytes groups;
  // The l3_info.chunks of a file that is encoded anew: optional ones of types unknown to
  // this library are kept, the others ignored.
  l3_bytes other_chunks;
} l3_encode_options;

// Sets *bound to a size that no file of this image exceeds. Where the encoder chooses the tiles
// that is at most 1 % above the samples, 512 bytes, 40 for each four channels, and what options
// keep. Takes no time: image->pixels is not read and may be null.
//
// options: null for the defaults.
// Returns L3_OK, L3_INVALID_ARGUMENT, L3_OUT_OF_MEMORY if a size_t is too small for it.
L3_API l3_status l3_encode_bound(const l3_image* image, const l3_encode_options* options,
                                 size_t* bound);

// Encodes an image without loss. The same pixels and options give the same bytes on every machine.
//
// file: gets the file, apart from the pixels; null only if capacity is 0.
// capacity: how many bytes there are. Those of l3_encode_bound() are always enough.
// file_size: set to the size of the file; after L3_OUTPUT_TOO_SMALL too, else 0 after an error.
// Returns L3_OK, L3_OUTPUT_TOO_SMALL, L3_INVALID_ARGUMENT, L3_OUT_OF_MEMORY.
// Takes memory for the file once more; L3_CODING_RANS 4 to 10 times that of the samples, 8 MiB and
// up to 5 KiB a tile more; of more than four channels 8 bytes times the square of their number.
L3_API l3_status l3_encode(const l3_image* image, const l3_encode_options* options, void* file,
                           size_t capacity, size_t* file_size);

// Encodes as l3_encode() does, to memory of an allocator of the size of the file.
//
// file: set to the memory, which the caller frees, after an error too; null if none was taken.
// Returns what l3_encode() does; L3_INVALID_ARGUMENT for an allocator without function.
L3_API l3_status l3_encode_alloc(const l3_image* image, const l3_encode_options* options,
                                 const l3_allocator* allocator, void** file, size_t* file_size);

#ifdef __cplusplus
}
#endif

#endif  // L3_L3_H_

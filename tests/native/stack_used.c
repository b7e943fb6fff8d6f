// Prints how many bytes of a thread's stack calls of l3.h take: for each file, decodes it as stored
// and as planes of floats, and encodes its pixels anew.
#include <l3/l3.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kStackBytes = 1 << 23, kUnused = 0xA5, kMostBytes = 1 << 24 };

static unsigned char file[kMostBytes], pixels[kMostBytes], other[kMostBytes];
static size_t file_size;

static void Encode(const l3_image* image, uint32_t coding, uint32_t effort) {
  l3_encode_options options = {.struct_size = sizeof(options), .coding = coding, .effort = effort};
  size_t size = 0;
  if (l3_encode(image, &options, other, kMostBytes, &size) != L3_OK) exit(1);
}

static void* Call(void* unused) {
  l3_info info = {.struct_size = sizeof(info)};
  if (l3_read_info(file, file_size, &info) != L3_OK) exit(1);
  if (l3_decode(file, file_size, NULL, pixels, kMostBytes, NULL) != L3_OK) exit(1);
  l3_decode_options options = {.struct_size = sizeof(options), .type = L3_FLOAT32};
  options.layout = L3_CHW;
  if (l3_decode(file, file_size, &options, other, kMostBytes, NULL) != L3_OK) exit(1);
  l3_image image = {.pixels = pixels, .height = info.height, .width = info.width};
  image.channels = info.channels;
  image.type = info.type;
  Encode(&image, L3_CODING_PACKED, 5);
  for (uint32_t effort = 1; effort <= 9; effort += 4) Encode(&image, L3_CODING_RANS, effort);
  return unused;
}

int main(int count, char** names) {
  unsigned char* const stack = aligned_alloc(4096, kStackBytes);
  size_t unused = kStackBytes;
  for (int i = 1; i < count; ++i) {
    FILE* const source = fopen(names[i], "rb");
    if (source == NULL) return 1;
    file_size = fread(file, 1, kMostBytes, source);
    fclose(source);
    memset(stack, kUnused, kStackBytes);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, stack, kStackBytes) != 0) return 1;
    if (pthread_create(&thread, &attributes, Call, NULL) != 0) return 1;
    pthread_join(thread, NULL);
    size_t first = 0;
    while (stack[first] == kUnused) ++first;
    if (first < unused) unused = first;
  }
  printf("%zu\n", kStackBytes - unused);
}
